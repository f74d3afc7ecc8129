"""A guest survives the way into a config and back; recorded configs are understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from blocks.manifest.guest import Disk, Firmware, Guest, Nic, SharedDisk
from blocks.proxmox.properties import (
    UNKNOWN_SIZE,
    UnsupportedGuest,
    decode,
    encode_boot,
    encode_create,
    encode_disk,
    encode_drive,
    encode_nic,
    format,
    kind_of,
    parse,
)
from blocks.units import GIB, MIB
from tests.blocks.proxmox.guests import as_server, guests

CONFIGS = json.loads((Path(__file__).parent / "recorded_configs.json").read_text())["configs"]
VMS = [row for row in CONFIGS if row["kind"] == "qemu"]


def _config(scenario: str, step: int) -> dict[str, Any]:
    return next(row["config"] for row in VMS if (row["scenario"], row["step"]) == (scenario, step))


@given(guests())
def test_a_guest_read_back_is_the_guest_that_was_created(guest: Guest) -> None:
    config = as_server(guest, encode_create(guest))
    found = decode(config, node=guest.node, vmid=guest.vmid, label=guest.label, pool=guest.pool)
    volumes = tuple(disk.model_copy(update={"volume": None}) for disk in found.disks)
    assert found.model_copy(update={"disks": volumes}) == guest


@settings(max_examples=30)
@given(guests())
def test_create_parameters_are_what_a_form_can_carry(guest: Guest) -> None:
    params = encode_create(guest)
    assert all(isinstance(value, str | int) and value != "" for value in params.values())
    assert not any(isinstance(value, bool) for value in params.values())


def test_the_create_call_is_the_one_that_was_recorded() -> None:
    guest = Guest(
        label="db1",
        node="pve1",
        vmid=1050,
        name="iso-vm",
        cores=2,
        cpu="host",
        memory=512,
        balloon=0,
        firmware=Firmware(bios="ovmf", machine="q35", efi_storage="local", tpm_storage="local"),
        disks=(
            Disk(slot="scsi0", storage="local", size=4 * GIB),
            Disk(slot="scsi1", storage="local", size=GIB // 2, serial="DATA01", backup=False),
        ),
        nics=(Nic(slot="net0", bridge="vmbr0", mac="AA:BB:CC:00:11:22", vlan=20, firewall=True),),
        drives={"ide2": "local:iso/rec-inst.iso", "ide3": "none"},
        boot=("scsi0", "ide2"),
        onboot=True,
        tags=("Web", "db", "web"),
        pool="recpool",
        description="line one\nline two",
    )
    assert encode_create(guest) == {
        "vmid": 1050,
        "name": "iso-vm",
        "cores": 2,
        "sockets": 1,
        "cpu": "host",
        "memory": 512,
        "balloon": 0,
        "ostype": "l26",
        "scsihw": "virtio-scsi-single",
        "bios": "ovmf",
        "machine": "q35",
        "agent": "enabled=1",
        "serial0": "socket",
        "onboot": 1,
        "tags": "db;web",
        "pool": "recpool",
        "description": "line one\nline two",
        "efidisk0": "local:1,efitype=4m,pre-enrolled-keys=0",
        "tpmstate0": "local:1,version=v2.0",
        "scsi0": "local:4,discard=on,iothread=1,ssd=1",
        "scsi1": "local:0.5,backup=0,discard=on,iothread=1,serial=DATA01,ssd=1",
        "net0": "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1,tag=20",
        "ide2": "local:iso/rec-inst.iso,media=cdrom",
        "ide3": "none,media=cdrom",
        "boot": "order=scsi0;ide2",
    }


def test_a_disk_of_another_guest_is_not_created_again() -> None:
    guest = Guest(
        label="rac2",
        node="pve1",
        vmid=102,
        name="rac2",
        disks=(
            Disk(slot="scsi0", storage="local", size=GIB),
            Disk(
                slot="scsi1",
                storage="shared",
                size=GIB,
                shared_with=SharedDisk(vmid=101, slot="scsi1"),
            ),
        ),
        boot=("scsi0", "scsi1"),
    )
    params = encode_create(guest)
    assert "scsi1" not in params
    assert params["boot"] == "order=scsi0"


def test_a_container_is_refused_by_name() -> None:
    guest = Guest(kind="lxc", label="ct", node="pve1", vmid=200, name="ct")
    with pytest.raises(UnsupportedGuest, match="guest 200 is a container"):
        encode_create(guest)
    with pytest.raises(UnsupportedGuest, match="guest 200 is a container"):
        decode({}, node="pve1", vmid=200, kind="lxc")


@pytest.mark.parametrize("row", VMS, ids=lambda row: f"{row['scenario']}-{row['step']}")
def test_every_recorded_vm_config_can_be_read(row: dict[str, Any]) -> None:
    config = row["config"]
    guest = decode(config, node="pve1", vmid=1000)
    slots = {disk.slot for disk in guest.disks} | guest.drives.keys()
    assert slots == {key for key in config if kind_of(key) == "disk"}
    assert {nic.slot for nic in guest.nics} == {key for key in config if kind_of(key) == "net"}


def test_a_recorded_uefi_guest_is_read_in_full() -> None:
    guest = decode(_config("05-iso-vm-life", 2), node="pve1", vmid=1050, label="db1")
    assert guest.firmware == Firmware(bios="ovmf", machine="q35", efi_storage="local")
    assert guest.disks[1] == Disk(
        slot="scsi1",
        storage="local",
        size=2 * GIB,
        volume="local:1050/vm-1050-disk-2.raw",
        format="raw",
        serial="DATA01",
    )
    assert guest.nics[1].mac == "AA:BB:CC:00:11:22"
    assert (guest.nics[0].vlan, guest.nics[0].mtu, guest.nics[0].firewall) == (20, 1, True)
    assert guest.drives == {"ide2": "local:iso/rec-inst.iso", "ide3": "local:iso/rec-seed.iso"}
    assert guest.boot == ("scsi0", "ide2", "net0")
    assert guest.tags == ("db", "web")
    assert (guest.memory, guest.balloon, guest.onboot, guest.agent) == (512, 0, True, True)


def test_an_empty_guest_has_the_servers_defaults_and_no_boot_order() -> None:
    guest = decode(_config("05-iso-vm-life", 10), node="pve1", vmid=1051)
    assert (guest.cores, guest.memory, guest.scsihw, guest.agent) == (1, 512, "lsi", False)
    assert (guest.boot, guest.tags, guest.firmware) == ((), (), Firmware())


def test_disks_and_cards_come_in_the_order_of_their_numbers() -> None:
    config = {
        f"{bus}{n}": f"{what},size=1G"
        for n in (10, 2)
        for bus, what in (("scsi", "a:b"), ("net", "virtio,bridge=v"))
    }
    guest = decode(config, node="n", vmid=100)
    assert [disk.slot for disk in guest.disks] == ["scsi2", "scsi10"]
    assert [nic.slot for nic in guest.nics] == ["net2", "net10"]


def test_a_live_mac_is_read_in_capitals_whatever_the_server_kept() -> None:
    guest = decode(_config("12-hardware-edits", 40), node="pve1", vmid=1230)
    assert (guest.nics[0].model, guest.nics[0].mac) == ("e1000", "AA:BB:CC:00:40:02")


def test_a_passed_through_device_has_no_size_and_no_storage() -> None:
    guest = decode({"scsi1": "/dev/disk/by-id/ata-x"}, node="pve1", vmid=100)
    assert (guest.disks[0].size, guest.disks[0].storage) == (UNKNOWN_SIZE, "")


@pytest.mark.parametrize(
    ("slot", "text"),
    [
        ("scsi0", "lvm:1,discard=on,iothread=1,ssd=1"),
        ("virtio0", "lvm:1,discard=on,iothread=1"),
        ("sata0", "lvm:1,discard=on,ssd=1"),
        ("ide0", "lvm:1,discard=on,ssd=1"),
    ],
)
def test_a_bus_gets_only_the_options_that_it_knows(slot: str, text: str) -> None:
    assert encode_disk(Disk(slot=slot, storage="lvm", size=GIB)) == text


def test_an_existing_volume_is_attached_as_it_is() -> None:
    disk = Disk(slot="scsi1", storage="s", size=3584 * MIB, format="raw", discard=False, ssd=False)
    assert encode_disk(disk, "s:vm-101-disk-1") == "s:vm-101-disk-1,iothread=1"
    assert encode_disk(disk) == "s:3.5,format=raw,iothread=1"


def test_drives_and_boot_orders_are_written_as_recorded() -> None:
    assert encode_drive("none") == "none,media=cdrom"
    assert encode_drive("local:iso/a.iso") == "local:iso/a.iso,media=cdrom"
    assert encode_drive("local:cloudinit") == "local:cloudinit"
    assert encode_boot(["scsi0", "net0"]) == "order=scsi0;net0"
    assert encode_boot([]) == " "


def test_a_card_without_a_mac_leaves_it_to_the_server() -> None:
    assert encode_nic(Nic(slot="net0", bridge="vmbr1", model="e1000")) == "e1000,bridge=vmbr1"


def test_recorded_unknown_options_are_no_obstacle() -> None:
    text = "local:vm-1-disk-0,brand-new=7,size=1G"
    assert decode({"scsi0": text}, node="n", vmid=100).disks[0].size == GIB
    assert format("disk", parse("disk", text)) == text
