"""Only what is declared is a difference; nothing that a server does by itself is one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocks.manifest.guest import Disk, Firmware, Guest, Nic, PciDevice, SharedDisk
from blocks.manifest.mark import Mark, marked
from blocks.manifest.plans import Change
from blocks.proxmox.properties import decode, encode_create
from blocks.units import GIB, KIB, MIB
from tasks.plan import diff
from tests.blocks.proxmox.guests import as_server, guests

MAC = "02:00:00:00:00:AB"


def a_guest(**fields: Any) -> Guest:
    base: dict[str, Any] = {
        "label": "db1",
        "node": "pve1",
        "vmid": 101,
        "name": "db1",
        "disks": (Disk(slot="scsi0", storage="lvm", size=32 * GIB),),
        "nics": (Nic(slot="net0", bridge="vmbr0", mac=MAC),),
        "drives": {"ide2": "none", "ide3": "none"},
        "boot": ("scsi0",),
        "tags": ("db", "web"),
    }
    return Guest(**base | fields)


def a_config(**keys: Any) -> dict[str, Any]:
    """The config of ``a_guest()``; a key that is None is left out."""
    guest = a_guest()
    config = as_server(guest, encode_create(guest)) | keys
    return {key: value for key, value in config.items() if value is not None}


def only(changes: tuple[Change, ...]) -> Change:
    assert len(changes) == 1, [str(change) for change in changes]
    return changes[0]


@given(guests())
def test_a_guest_that_was_just_created_has_no_difference(guest: Guest) -> None:
    assert diff(guest, as_server(guest, encode_create(guest))) == ()


@settings(max_examples=40)
@given(guests())
def test_a_guest_has_no_difference_to_itself_read_back(guest: Guest) -> None:
    live = decode(as_server(guest, encode_create(guest)), node=guest.node, vmid=guest.vmid)
    assert diff(live, live) == ()


@pytest.mark.parametrize(
    "keys",
    [
        {"tags": "WEB;db"},
        {"tags": "added-by-hand;db;web"},
        {"description": "written by hand\n"},
        {"description": f"{Mark(env='e', guest='db1', vmid=101, run='r')}\n"},
        {"scsi0": "lvm:vm-101-disk-7,size=32768M,discard=on,iothread=1,ssd=1"},
        {"scsi0": "lvm:vm-101-disk-0,size=32G,discard=on,iothread=on,ssd=true,replicate=0"},
        {"net0": f"model=virtio,macaddr={MAC.lower()},bridge=vmbr0"},
        {"net0": f"virtio={MAC},bridge=vmbr0,firewall=1"},
        {"net0": f"virtio={MAC},bridge=vmbr0,mtu=1,queues=4,rate=10"},
        {"net7": f"virtio={MAC},bridge=vmbr0"},
        {"scsi5": "lvm:vm-101-disk-3,size=1G"},
        {"unused0": "lvm:vm-101-disk-9"},
        {"ide2": None},
        {"ide3": None},
        {"agent": "1"},
        {"agent": "enabled=1,fstrim_cloned_disks=1"},
        {"memory": "current=2048"},
        {"cores": "1"},
        {"sockets": None},
        {"cpu": "cputype=x86-64-v2-AES,flags=+aes"},
        {"machine": "pc"},
        {"machine": "pc-i440fx-9.2+pve1"},
        {"balloon": 1024},
        {"onboot": "0"},
        {"boot": "order=scsi0,"},
        {"efidisk0": "lvm:vm-101-disk-4,size=4M"},
        {"hostpci0": "mapping=gpu", "startup": "order=2", "brand-new-key": "x"},
    ],
    ids=str,
)
def test_what_nobody_declared_is_no_difference(keys: dict[str, Any]) -> None:
    assert diff(a_guest(), a_config(**keys)) == ()


def test_a_declared_mac_may_be_written_in_small_letters() -> None:
    guest = a_guest(nics=(Nic(slot="net0", bridge="vmbr0", mac=MAC.lower()),))
    assert diff(guest, a_config()) == ()


def test_a_mac_that_is_not_declared_may_be_any() -> None:
    guest = a_guest(nics=(Nic(slot="net0", bridge="vmbr0"),))
    assert diff(guest, a_config()) == ()


def test_the_declared_description_may_stand_amid_what_others_wrote() -> None:
    mark = Mark(env="e", guest="db1", vmid=101, run="r", ready=True)
    guest = a_guest(description="golden\n")
    assert diff(guest, a_config(description=marked(mark, "by hand:\ngolden\nand more\n"))) == ()
    assert only(diff(guest, a_config(description=marked(mark, "other")))).target == "description"


@pytest.mark.parametrize("live", ["33554432K", "32G", str(32 * GIB + 3 * MIB), "33554435K"])
def test_rounding_by_the_storage_is_no_difference(live: str) -> None:
    text = f"lvm:vm-101-disk-0,discard=on,iothread=1,size={live},ssd=1"
    assert diff(a_guest(), a_config(scsi0=text)) == ()


def test_a_create_rounded_down_to_whole_kib_is_no_difference() -> None:
    guest = a_guest(disks=(Disk(slot="scsi0", storage="lvm", size=32 * GIB + 1000),))
    assert diff(guest, a_config()) == ()
    bigger = a_guest(disks=(Disk(slot="scsi0", storage="lvm", size=32 * GIB + KIB),))
    assert only(diff(bigger, a_config())).after == 32 * GIB + KIB


DISK = "lvm:vm-101-disk-0,discard=on,iothread=1,size=32G,ssd=1"


@pytest.mark.parametrize(
    ("fields", "keys", "expected"),
    [
        ({"memory": 4096}, {}, "~ memory: 2048 MiB -> 4096 MiB"),
        ({"cores": 4}, {}, "~ cores: 1 -> 4"),
        ({"name": "db2"}, {}, "~ name: db1 -> db2"),
        ({"cpu": "host"}, {}, "~ cpu: x86-64-v2-AES -> host"),
        ({"onboot": True}, {}, "~ onboot: off -> on"),
        ({}, {"agent": None}, "~ agent: off -> on"),
        ({"tags": ("x",)}, {}, "~ tags: db;web -> db;web;x"),
        ({"tags": ("x",)}, {"tags": " "}, "+ tags: x"),
        ({"description": "new"}, {}, "+ description: new"),
        ({"description": "an"}, {"description": "banana"}, "~ description: banana -> an"),
        ({}, {"boot": " "}, "+ boot: scsi0"),
        ({"balloon": 0}, {}, "+ balloon: 0 MiB"),
        ({"serial_console": False}, {}, "- serial0: socket"),
        ({}, {"serial0": None}, "+ serial0: socket"),
        ({}, {"ide2": "local:iso/a.iso,media=cdrom,size=366K"}, "~ ide2: local:iso/a.iso -> none"),
        ({"drives": {"ide2": "l:iso/b.iso"}}, {"ide2": None}, "+ ide2: l:iso/b.iso"),
        ({}, {"boot": "order=scsi0;ide2"}, "~ boot: scsi0;ide2 -> scsi0"),
        ({}, {"net0": f"virtio={MAC},bridge=vmbr1"}, "~ net0.bridge: vmbr1 -> vmbr0"),
        ({}, {"net0": f"virtio={MAC},bridge=vmbr0,tag=20"}, "- net0.vlan: 20"),
        ({}, {"net0": f"e1000={MAC},bridge=vmbr0"}, "~ net0.model: e1000 -> virtio"),
        ({}, {"net0": f"virtio={MAC},bridge=vmbr0,link_down=1"}, "~ net0.link_down: on -> off"),
        (
            {},
            {"net0": "virtio=02:00:00:00:00:09,bridge=vmbr0"},
            f"~ net0.mac: 02:00:00:00:00:09 -> {MAC}",
        ),
        ({}, {"net0": None}, "+ net0: virtio on vmbr0"),
        ({}, {"scsi0": DISK.replace("32G", "16G")}, "~ scsi0.size: 16G -> 32G"),
        ({}, {"scsi0": DISK.replace("ssd=1", "ssd=0")}, "~ scsi0.ssd: off -> on"),
        ({}, {"scsi0": DISK.replace("discard=on", "discard=ignore")}, "~ scsi0.discard: off -> on"),
        ({}, {"scsi0": DISK + ",backup=0"}, "~ scsi0.backup: off -> on"),
        ({}, {"scsi0": None}, "+ scsi0: 32 GiB on lvm"),
        ({"firmware": Firmware(tpm_storage="lvm")}, {}, "+ tpmstate0.storage: lvm"),
        ({"firmware": Firmware(machine="i440fx-9.2")}, {}, "~ machine: i440fx -> i440fx-9.2"),
    ],
)
def test_a_declared_difference_is_found_and_can_be_made_in_place(
    fields: dict[str, Any], keys: dict[str, Any], expected: str
) -> None:
    change = only(diff(a_guest(**fields), a_config(**keys)))
    assert str(change).startswith(expected)
    assert change.in_place


@pytest.mark.parametrize(
    ("fields", "keys", "target", "note"),
    [
        ({}, {"scsi0": DISK.replace("32G", "64G")}, "scsi0.size", "can grow, not shrink"),
        ({}, {"scsi0": DISK.replace("lvm:", "ceph:")}, "scsi0.storage", "to be moved"),
        ({}, {"scsi0": None, "ide2": DISK}, "ide2", "taken by a disk"),
        ({}, {"scsi0": "none,media=cdrom"}, "scsi0", "taken by a CD drive"),
        ({"node": "pve2"}, {}, "node", "migrated"),
        ({"firmware": Firmware(bios="ovmf")}, {}, "bios", "anew"),
        ({"firmware": Firmware(machine="q35")}, {}, "machine", "anew"),
        ({"firmware": Firmware(efi_storage="lvm")}, {}, "efidisk0.storage", "anew"),
        ({"firmware": Firmware(tpm_storage="a")}, {"tpmstate0": "b:1,size=4M"}, "tpmstate0", "mov"),
        (
            {"firmware": Firmware(efi_storage="lvm", secure_boot=True)},
            {"efidisk0": "lvm:vm-101-disk-1,efitype=4m,pre-enrolled-keys=0,size=4M"},
            "efidisk0.secure_boot",
            "anew",
        ),
        (
            {"disks": (Disk(slot="scsi0", storage="lvm", size=32 * GIB, format="qcow2"),)},
            {"scsi0": "lvm:101/vm-101-disk-0.raw,discard=on,iothread=1,size=32G,ssd=1"},
            "scsi0.format",
            "converted",
        ),
    ],
)
def test_what_a_config_write_cannot_do_is_said(
    fields: dict[str, Any], keys: dict[str, Any], target: str, note: str
) -> None:
    guest = a_guest(**fields)
    live = decode(a_config(**keys), node="pve1", vmid=101)
    stuck = only(tuple(change for change in diff(guest, live) if not change.in_place))
    assert stuck.target.startswith(target)
    assert note in stuck.note


def test_another_kind_of_guest_is_the_only_difference_that_is_looked_at() -> None:
    container = a_guest(kind="lxc", cores=9)
    change = only(diff(a_guest(), container))
    assert (change.target, change.before, change.in_place) == ("kind", "lxc", False)


SHARED = Disk(slot="scsi1", storage="lvm", size=GIB, shared_with=SharedDisk(vmid=100, slot="scsi1"))


def test_a_shared_disk_that_is_not_attached_names_its_owner() -> None:
    change = only(diff(a_guest(disks=(*a_guest().disks, SHARED)), a_config()))
    assert str(change) == "+ scsi1: 1 GiB on lvm (the volume of scsi1 of guest 100)"


@pytest.mark.parametrize(("owner", "targets"), [(100, []), (101, ["scsi1.owner"])])
def test_an_attached_shared_disk_must_be_the_owners(owner: int, targets: list[str]) -> None:
    text = f"lvm:vm-{owner}-disk-1,discard=on,iothread=1,size=1G,ssd=1"
    changes = diff(a_guest(disks=(*a_guest().disks, SHARED)), a_config(scsi1=text))
    assert [change.target for change in changes] == targets


def test_a_disk_whose_size_is_unknown_is_not_compared_by_size() -> None:
    text = "lvm:vm-101-disk-0,discard=on,iothread=1,ssd=1"
    assert diff(a_guest(), a_config(scsi0=text)) == ()


@pytest.mark.parametrize(
    ("live", "targets"),
    [
        ("local:101/vm-101-cloudinit.qcow2,media=cdrom,size=4M", []),
        ("other:101/vm-101-cloudinit.qcow2,media=cdrom", ["ide2"]),
        ("none,media=cdrom", ["ide2"]),
    ],
)
def test_a_cloud_init_drive_is_known_by_its_storage(live: str, targets: list[str]) -> None:
    guest = a_guest(drives={"ide2": "local:cloudinit"})
    assert [change.target for change in diff(guest, a_config(ide2=live))] == targets


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_change_is_one_short_line_that_cannot_upset_a_terminal(before: str, after: str) -> None:
    line = str(Change(kind="change", target="description", before=before, after=after))
    assert len(line) < 200
    assert line.isprintable()


@pytest.mark.parametrize(
    ("live", "targets"),
    [
        ("mapping=gpu,pcie=1,x-vga=1", []),
        ("x-vga=1,pcie=1,mapping=gpu", []),
        ("mapping=other,pcie=1,x-vga=1", ["hostpci0"]),
        (None, ["hostpci0"]),
    ],
)
def test_a_passed_through_device_is_compared_by_what_it_says(
    live: str | None, targets: list[str]
) -> None:
    guest = a_guest(pci=(PciDevice(mapping="gpu", primary=True),))
    found = diff(guest, a_config(hostpci0=live, vga="none"))
    assert [change.target for change in found] == targets


def test_devices_and_displays_that_are_not_declared_are_no_difference() -> None:
    assert diff(a_guest(), a_config(hostpci0="mapping=gpu", vga="qxl,memory=64")) == ()


def test_a_display_is_a_difference_where_it_is_declared() -> None:
    change = only(diff(a_guest(display="serial0"), a_config(vga="std")))
    assert (change.target, change.before, change.after) == ("vga", "std", "serial0")
