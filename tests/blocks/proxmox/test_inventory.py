"""Typed facts of the lab, over HTTPS."""

from collections.abc import Callable, Iterator

import pytest
from pydantic import SecretStr

from blocks.proxmox import inventory
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.proxmox.errors import NotFound, PermissionDenied
from blocks.proxmox.inventory import Inventory, Permissions
from deployments.lab.testing import RunningLab
from tests.labfixture import LabFactory, lab, lab_factory

__all__ = ["lab", "lab_factory"]

ClientOf = Callable[[str], Client]

GIB = 1024**3


@pytest.fixture(scope="module")
def client(lab: RunningLab) -> Iterator[Client]:
    with Client(lab_connection(lab.state)) as one:
        one.post("/pools", poolid="team")
        one.run(
            "POST",
            "/nodes/pve2/qemu",
            vmid=150,
            name="db",
            memory=512,
            cores=2,
            tags="Blue;alpha",
            pool="team",
            scsi0="local-lvm:3",
            scsi1="local:1",
        )
        yield one


@pytest.fixture(scope="module")
def found(client: Client) -> Inventory:
    return inventory.read_inventory(client)


def test_everything_comes_from_one_call(client: Client) -> None:
    before = client.calls.total()
    inventory.read_inventory(client)
    assert client.calls.total() == before + 1


def test_nodes_are_there_in_order_with_their_sizes(found: Inventory) -> None:
    assert [node.name for node in found.nodes] == ["pve1", "pve2", "pve3"]
    node = found.node("pve1")
    assert node is not None
    assert node.online
    assert (node.maxcpu, node.maxmem) == (8, 64 * GIB)
    assert found.node("pve9") is None


def test_storages_are_rows_of_node_and_name(found: Inventory) -> None:
    local, shared = found.storage("pve1", "local"), found.storage("pve3", "shared")
    assert local is not None
    assert shared is not None
    assert {"iso", "vztmpl", "import"} <= local.content
    assert (local.shared, local.active, local.plugin) == (False, True, "dir")
    assert 0 < local.available <= local.total
    assert shared.shared
    assert {row.storage for row in found.storages_of("pve2")} == {"local", "local-lvm", "shared"}
    assert found.storage("pve1", "nosuch") is None


def test_a_guest_has_its_place_its_tags_and_its_pool(found: Inventory) -> None:
    guest = found.guest(150)
    assert guest is not None
    assert (guest.kind, guest.node, guest.name) == ("qemu", "pve2", "db")
    assert (guest.tags, guest.pool, guest.template, guest.lock) == (
        ("alpha", "blue"),
        "team",
        False,
        None,
    )
    assert found.named("db") == (guest,)
    assert found.guest(9999) is None
    assert found.pools == {"team"}


def test_a_guests_lock_is_seen(lab: RunningLab, client: Client) -> None:
    (file,) = lab.state.rglob("150.conf")
    text = file.read_text()
    file.write_text("lock: backup\n" + text)
    try:
        assert inventory.find_guest(client, 150).lock == "backup"
    finally:
        file.write_text(text)


def test_an_offline_node_is_not_online(lab: RunningLab, client: Client) -> None:
    lab.node_offline("pve3")
    try:
        node = inventory.read_inventory(client).node("pve3")
        assert node is not None
        assert not node.online
    finally:
        lab.node_offline("pve3", on=False)


def test_a_config_is_read_by_row(client: Client, found: Inventory) -> None:
    guest = found.guest(150)
    assert guest is not None
    config = inventory.guest_config(client, guest)
    assert config["name"] == "db"
    assert config["scsi0"].startswith("local-lvm:vm-150-disk-0")


def test_a_guest_that_is_gone_is_not_found(client: Client, found: Inventory) -> None:
    guest = found.guest(150)
    assert guest is not None
    gone = guest.model_copy(update={"vmid": 1999})
    with pytest.raises(NotFound):
        inventory.guest_config(client, gone)
    with pytest.raises(NotFound, match="no guest 1999"):
        inventory.find_guest(client, 1999)


def test_volumes_have_name_kind_size_and_owner(client: Client) -> None:
    isos = inventory.storage_content(client, "pve1", "local", "iso")
    assert isos
    assert all(row.content == "iso" and row.size > 0 and row.vmid is None for row in isos)
    assert [row.volid for row in isos] == sorted(row.volid for row in isos)
    (disk,) = inventory.storage_content(client, "pve2", "local-lvm")
    assert (disk.name, disk.content, disk.size, disk.vmid) == (
        "vm-150-disk-0",
        "images",
        3 * GIB,
        150,
    )


def test_bridges_are_listed_by_name(client: Client) -> None:
    rows = inventory.bridges(client, "pve1")
    assert [row.name for row in rows] == ["vmbr0", "vmbr1"]
    assert all(row.active and row.kind == "bridge" for row in rows)


def test_free_ids_are_known(client: Client) -> None:
    assert inventory.next_vmid(client) == 100
    assert not inventory.vmid_is_free(client, 150)
    assert inventory.vmid_is_free(client, 151)


def test_a_token_of_root_lacks_nothing(client: Client) -> None:
    held = inventory.permissions(client, "/vms/150")
    assert held.missing("/vms/150", ["VM.Allocate", "VM.Clone"]) == ()
    assert held.missing("/storage/local", ["Datastore.AllocateSpace"]) == ()


USERS = """
users:
  - userid: low@pve
    tokens: [{name: t1, secret: s, privsep: false}]
    acl: [{path: /vms, role: PVEVMUser}]
  - userid: flat@pve
    tokens: [{name: t1, secret: s, privsep: false}]
    acl: [{path: /vms, role: PVEVMAdmin, propagate: false}]
  - userid: holed@pve
    tokens: [{name: t1, secret: s, privsep: false}]
    acl: [{path: /vms, role: PVEVMAdmin}, {path: /vms/150, role: NoAccess}]
  - userid: apart@pve
    tokens: [{name: t1, secret: s}]
    acl: [{path: /, role: Administrator}, {path: /vms, role: PVEAuditor, token: t1}]
"""


@pytest.fixture(scope="module")
def restricted(lab_factory: LabFactory) -> ClientOf:
    """Clients of users with few rights, by name."""
    running = lab_factory(seed=USERS)
    of_root = lab_connection(running.state)

    def client_of(name: str) -> Client:
        update = {"token_id": f"{name}@pve!t1", "token_secret": SecretStr("s")}
        return Client(of_root.model_copy(update=update))

    return client_of


def test_rights_go_down_from_where_they_were_given(restricted: ClientOf) -> None:
    with restricted("low") as low:
        held = inventory.permissions(low)
        assert held.missing("/vms/150", ["VM.PowerMgmt"]) == ()
        assert held.missing("/storage/local", ["Datastore.Audit"]) == ("Datastore.Audit",)
        assert held.missing("/vms/150", ["VM.Clone", "VM.Audit", "VM.Allocate"]) == (
            "VM.Clone",
            "VM.Allocate",
        )


def test_rights_without_propagation_stay_where_they_are(restricted: ClientOf) -> None:
    with restricted("flat") as flat:
        held = inventory.permissions(flat)
        assert held.missing("/vms", ["VM.Clone"]) == ()
        assert held.missing("/vms/150", ["VM.Clone"]) == ("VM.Clone",)


def test_a_path_asked_for_by_name_is_exact_where_rights_were_taken_away_below(
    restricted: ClientOf,
) -> None:
    with restricted("holed") as holed:
        held = inventory.permissions(holed, "/vms/150", "/vms/151")
        assert held.missing("/vms/150", ["VM.Audit"]) == ("VM.Audit",)
        assert held.missing("/vms/151", ["VM.Audit"]) == ()


def test_a_separated_token_has_its_own_rights_and_not_its_users(restricted: ClientOf) -> None:
    with restricted("apart") as apart:
        held = inventory.permissions(apart)
    assert held.missing("/vms/7", ["VM.Audit", "VM.Allocate"]) == ("VM.Allocate",)


def test_a_refused_call_names_what_is_missing(restricted: ClientOf) -> None:
    with restricted("low") as low, pytest.raises(PermissionDenied) as told:
        low.delete("/nodes/pve1/qemu/150")
    assert (told.value.path, told.value.privileges) == ("/vms/150", ("VM.Allocate",))


def test_rights_on_a_pool_count_for_its_guests() -> None:
    held = Permissions(by_path={"/pool/team": {"VM.Allocate": True, "Pool.Audit": False}})
    assert held.missing("/vms/200", ["VM.Allocate"]) == ("VM.Allocate",)
    assert held.missing("/vms/200", ["VM.Allocate"], pool="team") == ()


def test_the_nearest_listed_parent_decides_and_not_a_higher_one() -> None:
    held = Permissions(by_path={"/": {"VM.Audit": True}, "/vms": {"VM.Clone": True}})
    assert held.privileges("/vms/7") == {"VM.Clone"}
    assert held.privileges("/nodes/pve1") == {"VM.Audit"}
    assert Permissions(by_path={}).privileges("/") == frozenset()
