"""Devices, displays and imported disks: what is written is what was recorded, and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocks.manifest.guest import Disk, Guest, PciDevice
from blocks.proxmox.properties import decode, encode_create, parse
from blocks.proxmox.properties.guests import decode_pci, display_of, encode_import, encode_pci
from blocks.units import GIB

IDS = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{1,8}", fullmatch=True)
ADDRESSES = st.from_regex(r"0000:[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?", fullmatch=True)
DEVICES = st.builds(
    PciDevice,
    mapping=IDS,
    device=st.none(),
    pcie=st.booleans(),
    primary=st.booleans(),
    rombar=st.booleans(),
    romfile=st.none() | IDS,
    mdev=st.none() | IDS,
) | st.builds(
    PciDevice, mapping=st.none(), device=st.lists(ADDRESSES, min_size=1, max_size=3).map(";".join)
)


def _guest(**changes: object) -> Guest:
    return Guest(label="g", node="pve1", vmid=100, name="g").model_copy(update=changes)


@given(st.lists(DEVICES, max_size=12), st.none() | st.sampled_from(["std", "serial0", "none"]))
def test_devices_and_display_of_a_guest_come_back_in_their_order(
    devices: list[PciDevice], display: str | None
) -> None:
    guest = _guest(pci=tuple(devices), display=display)

    found = decode(encode_create(guest), node="pve1", vmid=100)

    assert found.pci == guest.pci
    assert found.display == display_of(guest)


@pytest.mark.parametrize(
    ("device", "line"),
    [
        (PciDevice(mapping="gpu", pcie=False), "mapping=gpu"),
        (PciDevice(mapping="gpu", primary=True), "mapping=gpu,pcie=1,x-vga=1"),
        (PciDevice(device="0000:00:01.0", pcie=False), "0000:00:01.0"),
        (PciDevice(device="0000:01:00.0;0000:01:00.1"), "0000:01:00.0;0000:01:00.1,pcie=1"),
        (
            PciDevice(mapping="gpu", rombar=False, romfile="vbios.bin", mdev="nvidia-63"),
            "mapping=gpu,mdev=nvidia-63,pcie=1,rombar=0,romfile=vbios.bin",
        ),
    ],
)
def test_a_device_is_written_as_the_server_takes_it(device: PciDevice, line: str) -> None:
    assert encode_pci(device) == line
    assert decode_pci(line) == device


def test_a_device_that_names_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="neither a mapping nor an id"):
        encode_pci(PciDevice())


def test_a_first_graphics_card_of_the_node_leaves_no_emulated_one() -> None:
    card = PciDevice(mapping="gpu", primary=True)

    assert encode_create(_guest(pci=(card,)))["vga"] == "none"


def test_a_declared_display_wins_over_that() -> None:
    card = PciDevice(mapping="gpu", primary=True)

    assert display_of(_guest(pci=(card,), display="std")) == "std"


def test_a_display_that_is_not_declared_is_not_written() -> None:
    assert "vga" not in encode_create(_guest())


def test_an_imported_disk_asks_for_size_zero_and_keeps_its_options() -> None:
    disk = Disk(slot="scsi0", storage="local-lvm", size=8 * GIB, cache="writeback", format="qcow2")

    line = encode_import(disk, "local:import/proxflow-debian13-0123456789ab.qcow2")

    assert parse("disk", line) == {
        "file": "local-lvm:0",
        "import-from": "local:import/proxflow-debian13-0123456789ab.qcow2",
        "discard": "on",
        "iothread": True,
        "ssd": True,
        "cache": "writeback",
        "format": "qcow2",
    }
