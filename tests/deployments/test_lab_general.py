"""The rules behind the recordings hold for other ids, names, orders and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

SEED = """
nodes: [{name: north}, {name: south, cores: 2}]
storages:
  - {name: tank, content: [iso, images, rootdir, vztmpl], path: /tank}
  - {name: thin7, type: lvmthin}
files:
  - {storage: tank, name: setup.iso}
  - {storage: tank, name: other.iso}
  - {storage: tank, content: vztmpl, name: alpine-3.20-default_20240908_amd64.tar.xz, size: 64}
"""
TEMPLATE = "tank:vztmpl/alpine-3.20-default_20240908_amd64.tar.xz"
MAC = "BC:24:11:0A:0B:0C"
FAST = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def general_lab(lab_factory: LabFactory) -> RunningLab:
    return lab_factory(seed=SEED)


@pytest.fixture(scope="module")
def shared(general_lab: RunningLab) -> Client:
    """One client and one guest of each kind for the properties that change only options."""
    client = Client(general_lab)
    assert client.task("POST", "/nodes/north/qemu", vmid=5000, scsi0="thin7:1") == "OK"
    made = {"vmid": 6000, "ostemplate": TEMPLATE, "rootfs": "thin7:1"}
    assert client.task("POST", "/nodes/north/lxc", **made) == "OK"
    return client


@pytest.fixture
def client(general_lab: RunningLab) -> Iterator[Client]:
    yield Client(general_lab)
    general_lab.clear_faults()


VM, CT = "/nodes/north/qemu/5000", "/nodes/north/lxc/6000"


def create(client: Client, vmid: int, node: str = "south", **options: object) -> str:
    assert client.task("POST", f"/nodes/{node}/qemu", vmid=vmid, **options) == "OK"
    return f"/nodes/{node}/qemu/{vmid}"


def config(client: Client, path: str, **params: object) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"{path}/config", **params)
    return found


def put(client: Client, path: str, **options: object) -> None:
    client.call("PUT", f"{path}/config", **options)


def pending(client: Client, path: str) -> dict[str, dict[str, Any]]:
    rows = client.get(f"{path}/pending")
    return {r["key"]: r for r in rows if "pending" in r or "delete" in r}


def refused(client: Client, method: str, path: str, **params: object) -> dict[str, str]:
    place = "params" if method == "DELETE" else "data"
    answer = client.raw(method, path, **{place: params})
    assert (answer.status_code, answer.reason) == (400, "Parameter verification failed.")
    errors: dict[str, str] = answer.json()["errors"]
    return errors


# -- what goes in comes out ----------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.just("\n"), max_size=80)
TAG = st.from_regex(r"[a-zA-Z0-9_][a-zA-Z0-9_\-+.]{0,8}", fullmatch=True)


@FAST
@given(TEXT.filter(lambda text: text.strip(" ")))
def test_a_machines_description_comes_back_as_it_was_given(shared: Client, text: str) -> None:
    put(shared, VM, description=text)

    assert config(shared, VM)["description"] == text


@FAST
@given(TEXT.filter(lambda text: text.strip()))
def test_a_containers_description_ends_with_one_newline(shared: Client, text: str) -> None:
    put(shared, CT, description=text)

    assert config(shared, CT)["description"] == text.rstrip("\n") + "\n"


@FAST
@given(st.lists(TAG, min_size=1, max_size=6), st.sampled_from([";", ",", " ", " ; "]))
def test_tags_are_lowered_sorted_and_named_once(
    shared: Client, tags: list[str], separator: str
) -> None:
    for path in (VM, CT):
        put(shared, path, tags=separator.join(tags))

        expected = ";".join(sorted({tag.lower() for tag in tags}))
        assert config(shared, path)["tags"] == expected


@FAST
@given(
    st.permutations(["bridge=vmbr0", "firewall=1", "tag=77", "rate=3.5", "queues=4"]),
    st.sampled_from(["virtio", "e1000", "vmxnet3", "rtl8139"]),
    st.booleans(),
)
def test_a_card_is_kept_with_its_model_first_and_its_keys_sorted(
    shared: Client, parts: list[str], model: str, short: bool
) -> None:
    head = f"{model}={MAC}" if short else f"macaddr={MAC},model={model}"
    text = ",".join([*parts[:2], head, *parts[2:]])

    put(shared, VM, net3=text)

    assert config(shared, VM)["net3"] == ",".join([f"{model}={MAC}", *sorted(parts)])


@FAST
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "cores": st.integers(1, 512),
            "sockets": st.integers(1, 8),
            "balloon": st.integers(0, 1 << 20),
            "onboot": st.integers(0, 1),
            "numa": st.integers(0, 1),
            "cpuunits": st.integers(1, 262144),
            "shares": st.integers(0, 50000),
        },
    ).filter(bool),
    st.integers(16, 1 << 20),
)
def test_numbers_are_numbers_and_memory_is_a_text(
    shared: Client, numbers: dict[str, int], memory: int
) -> None:
    put(shared, VM, memory=memory, **numbers)

    found = config(shared, VM)
    assert {key: found[key] for key in numbers} == numbers
    assert found["memory"] == str(memory)


# -- what is refused -----------------------------------------------------------------------------

ENUM = "value '{}' does not have a value in the enumeration '{}'"


@FAST
@given(
    st.text("abcXYZ .-", min_size=1, max_size=6), st.sampled_from(["cores", "balloon", "onboot"])
)
def test_a_word_is_no_number(shared: Client, word: str, key: str) -> None:
    kind = "boolean" if key == "onboot" else "integer"

    errors = refused(shared, "PUT", f"{VM}/config", **{key: word})

    assert errors == {key: f"type check ('{kind}') failed - got '{word}'"}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("cores", 0, "value must have a minimum value of 1"),
        ("cpuunits", 262145, "value must have a maximum value of 262144"),
        ("cpulimit", 129, "value must have a maximum value of 128"),
        ("shares", -1, "value must have a minimum value of 0"),
        ("description", "x" * 8193, "value may only be 8192 characters long"),
        ("bios", "uefi", ENUM.format("uefi", "seabios, ovmf")),
        ("citype", "none", ENUM.format("none", "configdrive2, nocloud, opennebula")),
        ("onboot", "true", "type check ('boolean') failed - got 'true'"),
        ("name", "a_b", "invalid format - value does not look like a valid DNS name\n"),
        ("tags", "ok;no/slash", "invalid format - invalid characters in tag\n"),
        ("delete", "9x", "invalid format - invalid configuration ID '9x'\n"),
    ],
)
def test_each_kind_of_parameter_is_refused_in_its_own_words(
    shared: Client, key: str, value: object, text: str
) -> None:
    assert refused(shared, "PUT", f"{VM}/config", **{key: value}) == {key: text}


def test_all_wrong_parameters_are_named_at_once(shared: Client) -> None:
    errors = refused(shared, "PUT", f"{VM}/config", cores="two", nonsense=1, bios="x", memory=64)

    assert sorted(errors) == ["bios", "cores", "nonsense"]
    assert errors["nonsense"].startswith("property is not defined in schema")


def test_every_wrong_key_of_a_property_string_has_its_line(shared: Client) -> None:
    errors = refused(shared, "PUT", f"{VM}/config", net5="bridge=vmbr0,tag=5000,colour=red")

    lines = errors["net5"].split("\n")
    assert lines[0] == "invalid format - format error"
    assert "net5.tag: value must have a maximum value of 4094" in lines
    assert any(line.startswith("net5.colour: property is not defined") for line in lines)
    assert "net5.model: property is missing and it is not optional" in lines


@pytest.mark.parametrize(
    ("method", "path", "params"),
    [
        ("PUT", f"{VM}/config", {"virtiofs3": "share"}),
        ("PUT", f"{VM}/config", {"intel-tdx": "type=tdx"}),
        ("POST", f"{VM}/status/start", {"stateuri": "tcp"}),
        ("POST", f"{VM}/status/suspend", {"todisk": 1}),
        ("POST", "/nodes/south/qemu", {"vmid": 5900, "archive": "backup"}),
        ("POST", "/nodes/south/qemu", {"vmid": 5900, "ha-managed": 1}),
        ("POST", f"{VM}/move_disk", {"disk": "scsi0", "target-vmid": 5001}),
        ("PUT", f"{CT}/config", {"dev4": "/dev/ttyUSB0"}),
        ("POST", "/nodes/north/lxc", {"vmid": 6900, "ostemplate": TEMPLATE, "restore": 1}),
        ("GET", f"{VM}/rrddata", {"timeframe": "hour"}),
        ("POST", f"{VM}/remote_migrate", {"target-vmid": 1}),
        ("POST", "/nodes/south/vzdump", {"vmid": 5000}),
    ],
)
def test_what_the_real_api_has_and_the_lab_does_not_model_is_not_implemented(
    shared: Client, method: str, path: str, params: dict[str, object]
) -> None:
    before = shared.lab.snapshot()
    place = "params" if method == "GET" else "data"

    answer = shared.raw(method, path, **{place: params})

    assert answer.status_code == 501
    assert shared.lab.snapshot() == before


def test_a_switch_of_the_unmodelled_kind_may_be_off(client: Client) -> None:
    off: dict[str, Any] = {"ha-managed": 0, "live-restore": 0}
    create(client, 5901, **off)

    assert config(client, "/nodes/south/qemu/5901")["boot"] == " "


# -- disks ---------------------------------------------------------------------------------------


@FAST
@given(st.lists(st.sampled_from(["scsi1", "scsi2", "virtio0", "sata3"]), min_size=1, max_size=8))
def test_a_new_volume_has_the_lowest_free_number(shared: Client, slots: list[str]) -> None:
    path = "/nodes/south/qemu/5100"
    if shared.raw("GET", f"{path}/config").status_code != 200:
        create(shared, 5100)
    taken: dict[str, int] = {}
    for slot in slots:
        if slot in taken:
            put(shared, path, delete=slot)
            put(shared, path, delete="unused0")
            del taken[slot]
        else:
            put(shared, path, **{slot: "thin7:1"})
            lowest = next(n for n in range(20) if n not in taken.values())
            taken[slot] = lowest
            assert config(shared, path)[slot] == f"thin7:vm-5100-disk-{lowest},size=1G"
    for slot in taken:
        put(shared, path, delete=slot)
        put(shared, path, delete="unused0")
    rows = shared.get("/nodes/south/storage/thin7/content", vmid=5100)
    assert rows == []


def test_replaced_and_deleted_disks_become_unused_until_they_are_used_again(
    client: Client,
) -> None:
    path = create(client, 5101, virtio2="tank:1,format=qcow2", sata1="tank:0.5")
    put(client, path, virtio2="tank:2", delete="sata1")
    found = config(client, path)
    unused = {found["unused0"], found["unused1"]}
    assert unused == {"tank:5101/vm-5101-disk-0.raw", "tank:5101/vm-5101-disk-1.qcow2"}

    put(client, path, scsi7="tank:5101/vm-5101-disk-1.qcow2,ssd=1")

    found = config(client, path)
    assert found["scsi7"] == "tank:5101/vm-5101-disk-1.qcow2,size=1G,ssd=1"
    assert [value for key, value in found.items() if key.startswith("unused")] == [
        "tank:5101/vm-5101-disk-0.raw"
    ]


@pytest.mark.parametrize(
    ("asked", "size"), [("0.5", "512M"), ("3", "3G"), ("1.25", "1280M"), ("1024", "1T")]
)
def test_a_size_without_unit_is_in_gib_and_shown_in_the_largest_unit(
    client: Client, asked: str, size: str
) -> None:
    path = create(client, 5102, scsi4=f"thin7:{asked}")

    shown = config(client, path)["scsi4"]
    assert client.task("DELETE", path) == "OK"

    assert shown == f"thin7:vm-5102-disk-0,size={size}"


# -- boot order ----------------------------------------------------------------------------------


def test_a_new_machine_boots_from_its_first_disk_its_first_cd_and_its_first_card(
    client: Client,
) -> None:
    path = create(
        client,
        5200,
        sata2="tank:1",
        virtio1="tank:1",
        ide3="tank:iso/setup.iso,media=cdrom",
        net4="virtio",
    )

    assert config(client, path)["boot"] == "order=virtio1;ide3;net4"


def test_several_changes_of_one_call_meet_in_one_boot_order(client: Client) -> None:
    disks = {f"scsi{n}": "thin7:1" for n in range(4)}
    path = create(client, 5201, **disks, boot="order=scsi2;scsi0;scsi3")

    put(client, path, delete="scsi2,scsi3", ide1="tank:iso/other.iso,media=cdrom")

    assert config(client, path)["boot"] == "order=scsi0;ide1"


def test_a_boot_order_names_only_what_will_be_there(client: Client) -> None:
    path = create(client, 5202, scsi0="thin7:1", scsi1="thin7:1")
    url = f"{path}/config"

    missing = client.raw("PUT", url, data={"boot": "order=scsi0;sata5"})
    leaving = client.raw("PUT", url, data={"boot": "order=scsi1", "delete": "scsi1"})
    put(client, path, boot="order=virtio4;scsi0", virtio4="thin7:1")

    assert missing.reason == "invalid bootorder: device 'sata5' does not exist'"
    assert leaving.reason == "invalid bootorder: device 'scsi1' does not exist'"
    assert config(client, path)["boot"] == "order=virtio4;scsi0"


# -- a running machine ---------------------------------------------------------------------------


def running(client: Client, vmid: int, **options: Any) -> str:
    path = create(client, vmid, **options)
    assert client.task("POST", f"{path}/status/start") == "OK"
    return path


def test_changes_that_need_a_stop_wait_and_can_be_taken_back(client: Client) -> None:
    path = running(client, 5300, cores=2, memory=256, sockets=1)

    put(client, path, cores=7, sockets=2, delete="memory", cpu="host")

    assert (config(client, path)["cores"], config(client, path, current=1)["cores"]) == (7, 2)
    assert "memory" not in config(client, path)
    waiting = pending(client, path)
    assert sorted(waiting) == ["cores", "cpu", "memory", "sockets"]
    put(client, path, revert="cores,memory")
    assert sorted(pending(client, path)) == ["cpu", "sockets"]
    assert client.task("POST", f"{path}/status/stop") == "OK"
    stopped = config(client, path, current=1)
    assert (stopped["cores"], stopped["sockets"], stopped["memory"]) == (2, 2, "256")


def test_names_cloud_init_cards_and_scsi_disks_change_at_once(client: Client) -> None:
    path = running(client, 5301, scsi0="thin7:1", net0="virtio")

    put(
        client,
        path,
        name="renamed",
        ciuser="ops",
        ipconfig0="ip=dhcp",
        scsi5="thin7:1",
        net1="e1000",
        onboot=1,
    )

    assert pending(client, path) == {}
    assert config(client, path, current=1)["scsi5"].startswith("thin7:vm-5301-disk-1")


def test_features_switched_off_make_cards_and_disks_wait(client: Client) -> None:
    path = running(client, 5302, scsi0="thin7:1", net0=f"virtio={MAC}", hotplug="usb")

    put(client, path, scsi5="thin7:1", net0=f"e1000={MAC}", net1="virtio")
    assert sorted(pending(client, path)) == ["net0", "net1", "scsi5"]
    put(client, path, net0=f"virtio={MAC},link_down=1")

    assert sorted(pending(client, path)) == ["net1", "scsi5"]


def test_a_disk_that_is_booted_from_cannot_be_unplugged_or_replaced(client: Client) -> None:
    path = running(client, 5303, scsi0="thin7:1", scsi1="thin7:1", boot="order=scsi1;scsi0")

    errors = refused(client, "PUT", f"{path}/config", scsi0="thin7:2")
    again = refused(client, "PUT", f"{path}/config", delete="scsi1")

    assert errors == {"scsi0": "hotplug problem - can't unplug bootdisk 'scsi0'\n"}
    assert again == {"scsi1": "hotplug problem - can't unplug bootdisk 'scsi1'\n"}


def test_a_pending_disk_that_is_replaced_or_deleted_becomes_unused(client: Client) -> None:
    path = running(client, 5304, scsi0="thin7:1")
    put(client, path, sata1="thin7:1")
    put(client, path, sata1="thin7:2")
    put(client, path, sata2="thin7:1")
    put(client, path, delete="sata2")

    found = config(client, path)

    kept = {value for key, value in found.items() if key.startswith("unused")}
    assert kept == {"thin7:vm-5304-disk-1", "thin7:vm-5304-disk-3"}
    assert sorted(pending(client, path)) == ["sata1"]


# -- containers, clones, snapshots ---------------------------------------------------------------


def test_a_containers_volume_moves_and_leaves_the_old_one_unused(client: Client) -> None:
    made = {"vmid": 6100, "ostemplate": TEMPLATE, "rootfs": "thin7:1", "mp4": "tank:1,mp=/srv"}
    assert client.task("POST", "/nodes/south/lxc", **made) == "OK"
    path = "/nodes/south/lxc/6100"

    moved = client.task("POST", f"{path}/move_volume", volume="mp4", storage="thin7")
    gone = client.task("POST", f"{path}/move_volume", volume="rootfs", storage="tank", delete=1)

    found = config(client, path)
    assert (moved, gone) == ("OK", "OK")
    assert found["mp4"] == "thin7:vm-6100-disk-1,mp=/srv,size=1G"
    assert found["rootfs"].startswith("tank:6100/vm-6100-disk-1.raw")
    assert found["unused0"] == "tank:6100/vm-6100-disk-0.raw"
    assert "lock" not in found


def test_a_chain_of_snapshots_keeps_its_line_when_one_in_the_middle_goes(client: Client) -> None:
    path = create(client, 5400, scsi0="thin7:1", cores=1)
    for number, name in enumerate(["one", "two", "three"], 1):
        put(client, path, cores=number)
        assert client.task("POST", f"{path}/snapshot", snapname=name) == "OK"

    assert client.task("DELETE", f"{path}/snapshot/two") == "OK"
    assert client.task("POST", f"{path}/snapshot/one/rollback") == "OK"

    rows = {row["name"]: row.get("parent") for row in client.get(f"{path}/snapshot")}
    assert rows == {"one": None, "three": "one", "current": "one"}
    assert config(client, path)["cores"] == 1


def test_a_linked_clone_needs_its_template_as_long_as_it_lives(client: Client) -> None:
    gold = create(client, 5401, virtio0="tank:1,format=qcow2", name="gold")
    assert client.task("POST", f"{gold}/template") == "OK"
    assert client.task("POST", f"{gold}/clone", newid=5402, name="leaf") == "OK"
    leaf = "/nodes/south/qemu/5402"
    assert config(client, leaf)["virtio0"].startswith(
        "tank:5401/base-5401-disk-0.qcow2/5402/vm-5402-disk-0.qcow2"
    )

    kept = client.task("DELETE", gold)

    assert kept == "base volume 'tank:5401/base-5401-disk-0.qcow2' is still in use by linked cloned"
    assert client.task("DELETE", leaf) == "OK"
    assert client.task("DELETE", gold) == "OK"


def test_two_nodes_do_not_share_a_number_but_their_local_volumes_do_not_meet(
    client: Client,
) -> None:
    create(client, 5500, "north", scsi0="tank:1")

    taken = client.raw("POST", "/nodes/south/qemu", data={"vmid": 5500})

    assert taken.reason == "unable to create VM 5500 - VM 5500 already exists on node 'north'"
    assert client.get("/nodes/south/storage/tank/content", vmid=5500) == []
    elsewhere = client.raw("GET", "/nodes/south/qemu/5500/config").reason
    assert elsewhere == "Configuration file 'nodes/south/qemu-server/5500.conf' does not exist"
