"""What goes into a property string of Proxmox VE holds nothing that would end it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.blocks.manifest.sample import changed, load, only_fault

ISO = "iso: { storage: local, image: rocky9.iso }"
UEFI = "memory: 2048, bios: ovmf, efi_storage: "
# Where a value stands in the sample, and the words that refuse one that is unfit there.
PLACES = {
    "storage of the iso": (ISO, "iso: {{ image: rocky9.iso, storage: {} }}", "is no storage id"),
    "storage of the seed": (
        ISO,
        "iso: {{ storage: local, image: a.iso, kickstart_storage: {} }}",
        "is no storage id",
    ),
    "storage of a disk": (
        "storage_class: slow, role",
        "storage: {}, role",
        "is no storage id",
    ),
    "storage of a class": ("backend: local-lvm", "backend: {}", "is no storage id"),
    "storage of the firmware": ("memory: 2048", UEFI + "{}", "neither a storage class nor"),
    "bridge": ("bridge: vmbr0", "bridge: {}", "is no name of a bridge"),
    "bridge of a zone": (
        "cidr: 10.0.1.0/24",
        "cidr: 10.0.1.0/24, bridge: {}",
        "is no name of a bridge",
    ),
    "model": ("bridge: vmbr0", "bridge: vmbr0\n            model: {}", "is no model"),
    "image": (ISO, "iso: {{ storage: local, image: {} }}", "rename the ISO"),
}


@pytest.mark.parametrize("value", ["a,b=1", "a\nb", "a\0b", "a\n", "a\r"])
@pytest.mark.parametrize("place", PLACES)
def test_a_value_that_would_end_a_property_is_refused(
    tmp_path: Path, place: str, value: str
) -> None:
    old, new, words = PLACES[place]

    fault = only_fault(tmp_path, changed(old, new.format(json.dumps(value))))

    assert words in str(fault)


@pytest.mark.parametrize(
    "image", ["../a.iso", "sub/a.iso", "a\\b.iso", "..", "iso/", "x y:iso/a.iso", "local:iso/../a"]
)
def test_an_image_with_a_folder_in_it_is_refused(tmp_path: Path, image: str) -> None:
    text = changed("image: rocky9.iso", f"image: {json.dumps(image)}")

    assert "write" in only_fault(tmp_path, text).remedy


@pytest.mark.parametrize(
    "image", ["a.iso", "Rocky 9 (x86_64).iso", "iso/a.iso", "nas-1:iso/a.iso", "nas:a.iso"]
)
def test_file_names_and_volume_ids_are_images(tmp_path: Path, image: str) -> None:
    environment = load(tmp_path, changed("image: rocky9.iso", f"image: '{image}'"))

    source = environment.guests[0].install
    assert source is not None
    assert source.iso.endswith(image)


def test_a_bridge_name_longer_than_an_interface_name_is_refused(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, changed("bridge: vmbr0", f"bridge: {'v' * 16}"))

    assert fault.problem == "is no name of a bridge"


@pytest.mark.parametrize("value", ["5", "true", "'fe80::1%eth0'", "1.5"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ips: { public: 10.0.0.11 }", "ips: {{ public: {} }}"),
        ("dns: [10.0.0.2]", "dns: [{}]"),
        ("cidr: 10.0.1.0/24", "cidr: 10.0.1.0/24, gateway: {}"),
    ],
)
def test_an_address_is_text_without_an_interface(
    tmp_path: Path, old: str, new: str, value: str
) -> None:
    fault = only_fault(tmp_path, changed(old, new.format(value)))

    assert str(fault).endswith("is no IP address; write it such as 10.0.0.11")
