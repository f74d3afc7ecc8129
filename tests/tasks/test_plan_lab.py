"""Against a cluster: what was created is as declared, and an update makes it so again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from blocks.manifest.guest import Disk, Firmware, Guest, Nic, SharedDisk
from blocks.manifest.mark import Mark, marked
from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection
from blocks.proxmox.inventory import read_inventory
from blocks.proxmox.properties import encode_create, format, parse
from blocks.units import GIB, MIB, format_size
from deployments.lab.testing import RunningLab
from tasks.plan import diff, make_plan, update_params
from tests.labfixture import lab, lab_factory  # noqa: F401 - fixtures
from tests.tasks.test_plan import Environment

CONFIG = "/nodes/pve1/qemu/{}/config"


@pytest.fixture(scope="module")
def client(lab: RunningLab) -> Iterator[Client]:  # noqa: F811
    connection = Connection(
        endpoint=lab.endpoint,
        token_id=lab.connection["token_id"],
        token_secret=SecretStr(str(lab.connection["token_secret"])),
        ca_file=lab.connection["ca_file"],
    )
    with Client(connection) as opened:
        yield opened


def declared(vmid: int, **fields: Any) -> Guest:
    mark = Mark(env="lab", guest=f"g{vmid}", vmid=vmid, run="r1", ready=True)
    base: dict[str, Any] = {
        "label": f"g{vmid}",
        "node": "pve1",
        "vmid": vmid,
        "name": f"g{vmid}",
        "cores": 2,
        "memory": 1024,
        "balloon": 0,
        "firmware": Firmware(
            bios="ovmf",
            machine="q35",
            efi_storage="local-lvm",
            secure_boot=True,
            tpm_storage="local-lvm",
        ),
        "disks": (
            Disk(slot="scsi0", storage="local-lvm", size=4 * GIB, serial="A 1"),
            Disk(slot="virtio1", storage="local-lvm", size=1536 * MIB, backup=False),
        ),
        "nics": (
            Nic(slot="net0", bridge="vmbr0", mac="02:00:00:00:0A:01", vlan=20, firewall=True),
            Nic(slot="net1", bridge="vmbr1"),
        ),
        "drives": {"ide2": "none", "ide3": "none"},
        "boot": ("scsi0",),
        "tags": ("Web", "db", "web"),
        "onboot": True,
        "description": marked(mark, "line one\nü 100 % <b>"),
    }
    return Guest(**base | fields)


def config_of(client: Client, vmid: int) -> dict[str, Any]:
    return dict(client.get(CONFIG.format(vmid)))


def test_a_created_guest_is_as_declared_to_the_differ_and_to_the_plan(client: Client) -> None:
    guest = declared(4101)
    client.wait(client.post("/nodes/pve1/qemu", **encode_create(guest)))
    config = config_of(client, 4101)
    assert diff(guest, config) == ()
    assert not update_params(guest, config)
    plan = make_plan(Environment((guest,)), read_inventory(client), {4101: config})
    assert plan.changes_nothing


def test_an_update_makes_a_guest_as_declared_and_keeps_what_nobody_declared(client: Client) -> None:
    client.wait(client.post("/nodes/pve1/qemu", **encode_create(declared(4102))))
    before = config_of(client, 4102)
    by_hand = parse("disk", before["scsi0"]) | {"iops": 100}
    client.put(
        CONFIG.format(4102),
        scsi0=format("disk", by_hand),
        tags="db;web;mine",
        boot="order=scsi0;net0",
        delete="ide3",
    )
    wanted = declared(
        4102,
        cores=4,
        disks=(
            Disk(slot="scsi0", storage="local-lvm", size=6 * GIB, serial="A 1", ssd=False),
            Disk(slot="virtio1", storage="local-lvm", size=1536 * MIB, backup=False),
            Disk(slot="scsi2", storage="local-lvm", size=GIB),
        ),
        nics=(Nic(slot="net0", bridge="vmbr1"), Nic(slot="net1", bridge="vmbr1")),
        serial_console=False,
        agent=False,
        onboot=False,
    )
    update = update_params(wanted, config_of(client, 4102))
    client.put(CONFIG.format(4102), **update.put, delete=",".join(update.delete))
    for slot, size in update.resizes:
        client.run("PUT", "/nodes/pve1/qemu/4102/resize", disk=slot, size=format_size(size))
    after = config_of(client, 4102)
    assert diff(wanted, after) == ()
    assert parse("disk", after["scsi0"])["file"] == parse("disk", before["scsi0"])["file"]
    assert parse("disk", after["scsi0"])["iops"] == 100
    assert parse("net", after["net0"])["macaddr"] == "02:00:00:00:0A:01"
    assert after["net1"] == before["net1"]
    assert after["tags"] == "db;mine;web"
    assert (after["smbios1"], after["vmgenid"]) == (before["smbios1"], before["vmgenid"])
    assert "unused0" not in after


def test_a_disk_of_another_guest_is_attached_once_its_volume_is_known(client: Client) -> None:
    owner = declared(
        4103, firmware=Firmware(), disks=(Disk(slot="scsi0", storage="shared", size=GIB),)
    )
    disk = Disk(
        slot="scsi1", storage="shared", size=GIB, shared_with=SharedDisk(vmid=4103, slot="scsi0")
    )
    user = declared(4104, firmware=Firmware(), disks=(disk,), boot=())
    for guest in (owner, user):
        client.wait(client.post("/nodes/pve1/qemu", **encode_create(guest)))
    assert update_params(user, config_of(client, 4104)).attach == ("scsi1",)
    volume = str(parse("disk", config_of(client, 4103)["scsi0"])["file"])
    update = update_params(user, config_of(client, 4104), volumes={"scsi1": volume})
    client.put(CONFIG.format(4104), **update.put)
    config = config_of(client, 4104)
    assert parse("disk", config["scsi1"])["file"] == volume
    assert diff(user, config) == ()
