"""Guests that live: installers read seeds, systems boot, addresses answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deployments.lab.clock import DURATIONS
from deployments.lab.isos import make_iso
from deployments.lab.testing import RunningLab, running_lab
from tests.deployments.labclient import Client, eventually
from tests.labfixture import lab, lab_factory

__all__ = ["lab", "lab_factory"]

MAC = "BC:24:11:AA:00:{:02X}"
ROCKY = "local:iso/Rocky-9.6-x86_64-dvd.iso,media=cdrom"
UBUNTU = "local:iso/ubuntu-24.04.3-live-server-amd64.iso,media=cdrom"
# The lab's own as well, with the argument in its menu that Ubuntu's installer wants.
UNATTENDED = UBUNTU.replace(".iso", ".proxflow-7c41d09e52ab.iso")
# As a lab has them at its start.
TIMES = {name: DURATIONS[name] for name in ("boot", "load", "install")}
KICKSTART = """
network --device={mac} --bootproto=static --ip={ip} --netmask=255.255.0.0 --hostname={name}
{finish}
"""


@pytest.fixture
def client(lab: RunningLab) -> Client:
    return Client(lab)


def seed(client: Client, tmp_path: Path, name: str, label: str, files: dict[str, str]) -> str:
    make_iso(tmp_path / name, label, files)
    assert client.upload("pve1", "local", tmp_path / name) == "OK"
    return f"local:iso/{name},media=cdrom"


def create(client: Client, vmid: int, **options: object) -> None:
    base = {"vmid": vmid, "name": f"vm{vmid}", "agent": "1", "scsi0": "local-lvm:8"}
    card = {"net0": f"virtio={MAC.format(vmid % 256)},bridge=vmbr0"}
    assert client.task("POST", "/nodes/pve1/qemu", **{**base, **card, **options}) == "OK"


def start(client: Client, vmid: int) -> None:
    assert client.task("POST", f"/nodes/pve1/qemu/{vmid}/status/start") == "OK"


def life(client: Client, vmid: int) -> dict[str, Any]:
    rows = client.lab.snapshot()["running"]
    return next((row for row in rows if row["vmid"] == vmid), {})


def addresses(client: Client, vmid: int) -> list[str]:
    path = f"/nodes/pve1/qemu/{vmid}/agent/network-get-interfaces"
    answer = client.raw("GET", path)
    if answer.status_code != 200:
        return []
    rows = answer.json()["data"]["result"]
    assert rows[0]["name"] == "lo"
    return [a["ip-address"] for row in rows[1:] for a in row["ip-addresses"]]


def test_a_kickstart_on_an_oemdrv_iso_installs_a_guest_that_answers_at_its_address(
    client: Client, tmp_path: Path
) -> None:
    text = KICKSTART.format(mac=MAC.format(101), ip="10.77.0.11", name="web1", finish="reboot")
    iso = seed(client, tmp_path, "seed101.iso", "OEMDRV", {"ks.cfg": text})
    create(client, 101, ide2=ROCKY, ide3=iso, boot="order=scsi0;ide2")

    start(client, 101)

    assert "10.77.0.11" in eventually(lambda: addresses(client, 101))
    assert client.ssh_banner("10.77.0.11").startswith("SSH-2.0-")
    assert client.ssh_banner("web1").startswith("SSH-2.0-")
    assert "refused" in client.ssh_banner("10.77.0.11", 80).lower()


def test_without_a_seed_the_installer_waits_and_nothing_answers(client: Client) -> None:
    create(client, 102, ide2=ROCKY, boot="order=scsi0;ide2")

    start(client, 102)

    assert "waits for somebody" in eventually(lambda: life(client, 102).get("note"))
    assert addresses(client, 102) == []


def test_a_seed_for_another_installer_is_not_read(client: Client, tmp_path: Path) -> None:
    text = KICKSTART.format(mac=MAC.format(103), ip="10.77.0.13", name="x", finish="reboot")
    iso = seed(client, tmp_path, "seed103.iso", "OEMDRV", {"ks.cfg": text})
    create(client, 103, ide2=UBUNTU, ide3=iso, boot="order=scsi0;ide2")

    start(client, 103)

    assert "waits for somebody" in eventually(lambda: life(client, 103).get("note"))


def test_a_boot_order_with_the_iso_first_installs_again_and_again(
    client: Client, tmp_path: Path
) -> None:
    text = KICKSTART.format(mac=MAC.format(104), ip="10.77.0.14", name="loop", finish="reboot")
    iso = seed(client, tmp_path, "seed104.iso", "OEMDRV", {"ks.cfg": text})
    create(client, 104, ide2=ROCKY, ide3=iso, boot="order=ide2;scsi0")

    start(client, 104)

    assert eventually(lambda: int(life(client, 104).get("installs", 0)) >= 2)
    assert client.task("POST", "/nodes/pve1/qemu/104/status/stop") == "OK"


def test_a_kickstart_that_powers_off_leaves_a_stopped_guest_whose_next_start_boots_the_disk(
    client: Client, tmp_path: Path
) -> None:
    text = KICKSTART.format(mac=MAC.format(105), ip="10.77.0.15", name="off", finish="poweroff")
    iso = seed(client, tmp_path, "seed105.iso", "OEMDRV", {"ks.cfg": text})
    create(client, 105, ide2=ROCKY, ide3=iso, boot="order=scsi0;ide2")
    start(client, 105)
    current = "/nodes/pve1/qemu/105/status/current"
    eventually(lambda: client.get(current)["status"] == "stopped")

    start(client, 105)

    assert "10.77.0.15" in eventually(lambda: addresses(client, 105))


def test_cloud_init_user_data_names_cards_by_mac_and_leaves_others_to_dhcp(
    client: Client, tmp_path: Path
) -> None:
    text = (
        "#cloud-config\nautoinstall:\n  identity: {hostname: deb}\n  network:\n    version: 2\n"
        f"    ethernets:\n      lan: {{match: {{macaddress: '{MAC.format(106).lower()}'}},"
        " addresses: [10.77.0.16/16]}\n"
        f"      wan: {{match: {{macaddress: '{MAC.format(206)}'}}, dhcp4: true}}\n"
    )
    iso = seed(client, tmp_path, "seed106.iso", "cidata", {"user-data": text, "meta-data": ""})
    second = f"virtio={MAC.format(206)},bridge=vmbr1"
    create(client, 106, ide2=UNATTENDED, ide3=iso, boot="order=scsi0;ide2", net1=second)

    start(client, 106)

    assert "10.77.0.16" in eventually(lambda: addresses(client, 106))
    leased = eventually(lambda: [a for a in addresses(client, 106) if a.startswith("10.78.")])
    assert len(leased) == 1


def test_an_untouched_ubuntu_iso_asks_although_a_seed_is_there(
    client: Client, tmp_path: Path
) -> None:
    files = {"user-data": "#cloud-config\nautoinstall: {}\n", "meta-data": ""}
    iso = seed(client, tmp_path, "seed150.iso", "cidata", files)
    create(client, 150, ide2=UBUNTU, ide3=iso, boot="order=scsi0;ide2")

    start(client, 150)

    assert "waits for somebody" in eventually(lambda: life(client, 150).get("note"))


@pytest.mark.parametrize(
    ("medium", "vmid", "installs"),
    [
        ("SLES-16.0-Full-x86_64-GM.install.iso", 192, False),
        ("SLES-16.0-Full-x86_64-GM.install.proxflow-3f60c2a8d915.iso", 193, True),
    ],
)
def test_agamas_medium_boots_the_disk_unless_its_menu_says_otherwise(
    client: Client, tmp_path: Path, medium: str, vmid: int, installs: bool
) -> None:
    card = {"id": "a", "macAddress": MAC.format(vmid), "addresses": [f"10.77.1.{vmid}/16"]}
    profile = {"hostname": {"static": "new"}, "network": {"connections": [card]}}
    iso = seed(client, tmp_path, f"s{vmid}.iso", "OEMDRV", {"autoinst.json": json.dumps(profile)})
    drive = f"local:iso/{medium},media=cdrom"
    create(client, vmid, ide2=drive, ide3=iso, boot="order=scsi0;ide2")

    start(client, vmid)

    if installs:
        assert f"10.77.1.{vmid}" in eventually(lambda: addresses(client, vmid))
    else:
        assert "waits for somebody" in eventually(lambda: life(client, vmid).get("note"))


def test_an_installation_is_seen_from_outside_by_the_counters_of_its_one_process(
    client: Client, tmp_path: Path
) -> None:
    text = KICKSTART.format(mac=MAC.format(151), ip="10.77.0.51", name="seen", finish="reboot")
    marker = "%post\necho PROXFLOW_ENVIRONMENT=prod > /etc/proxflow-release\n%end\n"
    iso = seed(client, tmp_path, "seed151.iso", "OEMDRV", {"ks.cfg": text + marker})
    create(client, 151, ide2=ROCKY, ide3=iso, boot="order=scsi0;ide2")
    client.lab.set_time(0.001, boot=1e9, install=60_000)
    start(client, 151)
    current = "/nodes/pve1/qemu/151/status/current"
    first = client.get(current)
    client.lab.set_time(boot=0)
    writing = eventually(lambda: int(client.get(current)["diskwrite"]))
    client.lab.set_time(0, **TIMES)
    eventually(lambda: addresses(client, 151))
    last = client.get(current)
    path = "/nodes/pve1/qemu/151/agent/file-read"
    read = client.get(path, file="/etc/proxflow-release")
    missing = client.raw("GET", path, params={"file": "/etc/motd"})

    assert first["diskwrite"] == 0
    assert writing > 0
    assert last["pid"] == first["pid"]
    assert last["diskwrite"] >= writing
    assert last["uptime"] >= first["uptime"]
    assert read["content"] == "PROXFLOW_ENVIRONMENT=prod\n"
    assert "No such file or directory" in missing.text


def counters(client: Client, vmid: int) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = client.get(f"/nodes/pve1/qemu/{vmid}/status/current")[
        "blockstat"
    ]
    return found


def test_an_installer_reads_its_iso_before_it_writes_the_disk_and_again_when_booted_again(
    client: Client, tmp_path: Path
) -> None:
    text = KICKSTART.format(mac=MAC.format(152), ip="10.77.0.52", name="again", finish="reboot")
    iso = seed(client, tmp_path, "seed152.iso", "OEMDRV", {"ks.cfg": text})
    create(client, 152, ide2=ROCKY, ide3=iso, boot="order=ide2;scsi0")

    client.lab.set_time(0.001, boot=1e9, load=1e9, install=1e9)
    start(client, 152)
    off = counters(client, 152)
    client.lab.set_time(boot=0)
    loaded = eventually(lambda: counters(client, 152)["ide2"]["rd_bytes"])
    untouched = counters(client, 152)["scsi0"]
    client.lab.set_time(boot=1e9, load=0, install=0)
    eventually(lambda: life(client, 152)["installs"] == 1)
    done = counters(client, 152)
    client.lab.set_time(boot=0, load=1e9, install=1e9)
    eventually(lambda: life(client, 152)["phase"] == "install")
    again = counters(client, 152)
    status = client.get("/nodes/pve1/qemu/152/status/current")
    assert client.task("POST", "/nodes/pve1/qemu/152/status/stop") == "OK"
    client.lab.set_time(0, **TIMES)

    nothing = {"rd_bytes": 0, "wr_bytes": 0}
    assert off == {"ide2": nothing, "ide3": nothing, "scsi0": nothing}
    assert untouched == nothing
    assert done["ide2"]["rd_bytes"] > loaded
    assert done["scsi0"]["wr_bytes"] > 2**30
    assert again["ide2"]["rd_bytes"] == done["ide2"]["rd_bytes"] + loaded
    assert again["scsi0"] == done["scsi0"]
    assert (status["diskread"], status["diskwrite"]) == tuple(
        sum(one[key] for one in again.values()) for key in ("rd_bytes", "wr_bytes")
    )


def test_a_reboot_by_the_api_is_a_new_process_and_one_from_inside_or_a_reset_is_none(
    client: Client,
) -> None:
    image_disk(client, 153)
    start(client, 153)
    eventually(lambda: addresses(client, 153))
    current = "/nodes/pve1/qemu/153/status/current"
    first = client.get(current)

    client.call("POST", "/nodes/pve1/qemu/153/agent/exec", command=["reboot"])
    inside = eventually(lambda: loaded_twice(client, first))
    assert client.task("POST", "/nodes/pve1/qemu/153/status/reset") == "OK"
    eventually(lambda: addresses(client, 153))
    reset = client.get(current)
    assert client.task("POST", "/nodes/pve1/qemu/153/status/reboot") == "OK"
    rebooted = client.get(current)

    assert inside["pid"] == first["pid"] == reset["pid"]
    assert reset["diskread"] == 3 * first["diskread"]
    assert rebooted["pid"] != first["pid"]
    assert rebooted["diskread"] <= first["diskread"]


def loaded_twice(client: Client, first: dict[str, int]) -> dict[str, int] | None:
    now: dict[str, int] = client.get("/nodes/pve1/qemu/153/status/current")
    return now if now["diskread"] == 2 * first["diskread"] else None


def image_disk(client: Client, vmid: int) -> None:
    """A machine whose disk holds a system from the start on."""
    image = client.lab.state / "storage" / "pve1" / "local" / "import" / "cloud.raw"
    image.parent.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as handle:
        handle.truncate(1 << 20)
    disk = "local-lvm:0,import-from=local:import/cloud.raw"
    create(client, vmid, scsi0=disk, boot="order=scsi0")


def test_an_imported_image_boots_at_once_with_its_ipconfig_address(client: Client) -> None:
    image = client.lab.state / "storage" / "pve1" / "local" / "import" / "cloud.raw"
    image.parent.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as handle:
        handle.truncate(1 << 20)
    create(
        client,
        107,
        scsi0="local-lvm:0,import-from=local:import/cloud.raw",
        ide2="local-lvm:cloudinit",
        ipconfig0="ip=10.77.0.17/16,gw=10.77.0.1",
        boot="order=scsi0",
    )

    start(client, 107)

    assert "10.77.0.17" in eventually(lambda: addresses(client, 107))


def test_a_booted_guest_obeys_acpi_and_its_address_falls_silent(client: Client) -> None:
    start_path = "/nodes/pve1/qemu/107/status"
    eventually(lambda: addresses(client, 107))

    assert client.task("POST", f"{start_path}/shutdown") == "OK"

    assert client.get(f"{start_path}/current")["status"] == "stopped"
    assert "unreachable" in client.ssh_banner("10.77.0.17").lower()


def test_of_two_guests_with_one_address_the_first_that_was_up_answers_until_it_stops(
    client: Client, tmp_path: Path
) -> None:
    for vmid in (108, 109):
        text = KICKSTART.format(
            mac=MAC.format(vmid), ip="10.77.0.18", name=f"twin{vmid}", finish="reboot"
        )
        iso = seed(client, tmp_path, f"seed{vmid}.iso", "OEMDRV", {"ks.cfg": text})
        create(client, vmid, ide2=ROCKY, ide3=iso, boot="order=scsi0;ide2")
        start(client, vmid)
        eventually(lambda vmid=vmid: addresses(client, vmid))

    assert client.task("POST", "/nodes/pve1/qemu/108/status/stop") == "OK"

    assert client.ssh_banner("10.77.0.18").startswith("SSH-2.0-")
    assert client.task("POST", "/nodes/pve1/qemu/109/status/stop") == "OK"
    assert "unreachable" in client.ssh_banner("10.77.0.18").lower()


def test_guests_tasks_and_credentials_survive_a_restart_of_the_lab(tmp_path: Path) -> None:
    with running_lab(tmp_path / "state") as first:
        client = Client(first)
        create(client, 100)
        start(client, 100)
        before = first.snapshot()

    with running_lab(tmp_path / "state") as second:
        client = Client(second)
        after = second.snapshot()
        status = client.get("/nodes/pve1/qemu/100/status/current")
        finished = client.get("/nodes/pve1/tasks", vmid=100)

    assert after["guests"] == before["guests"]
    assert after["volumes"] == before["volumes"]
    assert status["status"] == "running"
    assert [row["type"] for row in finished] == ["qmstart", "qmcreate"]


def test_a_container_is_up_at_once_and_shows_its_addresses_to_the_host(client: Client) -> None:
    archive = client.lab.state / "storage" / "pve1" / "local" / "template" / "cache"
    archive.mkdir(parents=True, exist_ok=True)
    (archive / "debian-13-standard_13.1-1_amd64.tar.zst").write_bytes(b"x" * 100)
    made = client.task(
        "POST",
        "/nodes/pve1/lxc",
        vmid=120,
        hostname="ct1",
        ostemplate="local:vztmpl/debian-13-standard_13.1-1_amd64.tar.zst",
        rootfs="local-lvm:2",
        net0="name=eth0,bridge=vmbr0,ip=10.77.0.20/16",
    )
    assert made == "OK"

    assert client.task("POST", "/nodes/pve1/lxc/120/status/start") == "OK"

    rows = {row["name"]: row for row in client.get("/nodes/pve1/lxc/120/interfaces")}
    assert rows["eth0"]["inet"] == "10.77.0.20/16"
    assert client.ssh_banner("ct1").startswith("SSH-2.0-")


def test_a_clone_of_an_installed_template_boots_with_the_addresses_given_to_it(
    client: Client, tmp_path: Path
) -> None:
    text = KICKSTART.format(mac=MAC.format(121), ip="10.77.0.21", name="gold", finish="poweroff")
    iso = seed(client, tmp_path, "seed121.iso", "OEMDRV", {"ks.cfg": text})
    create(client, 121, ide2=ROCKY, ide3=iso, boot="order=scsi0;ide2", scsi1="local-lvm:cloudinit")
    start(client, 121)
    eventually(lambda: client.get("/nodes/pve1/qemu/121/status/current")["status"] == "stopped")
    assert client.task("POST", "/nodes/pve1/qemu/121/template") == "OK"
    assert client.task("POST", "/nodes/pve1/qemu/121/clone", newid=122, name="copy") == "OK"
    client.call("PUT", "/nodes/pve1/qemu/122/config", ipconfig0="ip=10.77.0.22/16")

    start(client, 122)

    assert "10.77.0.22" in eventually(lambda: addresses(client, 122))


def test_a_rolled_back_disk_forgets_what_was_installed_after_the_snapshot(
    client: Client, tmp_path: Path
) -> None:
    text = KICKSTART.format(mac=MAC.format(123), ip="10.77.0.23", name="back", finish="poweroff")
    iso = seed(client, tmp_path, "seed123.iso", "OEMDRV", {"ks.cfg": text})
    create(client, 123, ide2=ROCKY, ide3=iso, boot="order=scsi0;ide2")
    base = "/nodes/pve1/qemu/123"
    assert client.task("POST", f"{base}/snapshot", snapname="empty") == "OK"
    start(client, 123)
    eventually(lambda: client.get(f"{base}/status/current")["status"] == "stopped")

    assert client.task("POST", f"{base}/snapshot/empty/rollback") == "OK"

    client.call("PUT", f"{base}/config", boot="order=scsi0")
    start(client, 123)
    assert eventually(lambda: life(client, 123).get("note")) == "no bootable device"
