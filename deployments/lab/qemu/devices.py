"""Drives, network cards and boot order: texts of the configuration and their meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployments.lab.cluster import new_mac
from deployments.lab.formats import split_list
from deployments.lab.qemu.options import DISK_KEYS, NET_FORMAT, NET_KEYS, drive_format
from deployments.lab.schema import parse_property_string, print_property_string

_DISK_SET = frozenset(DISK_KEYS)
_NET_SET = frozenset(NET_KEYS)


def is_drive_key(key: str) -> bool:
    """``scsi0``, ``ide2``, ``efidisk0`` and the like."""
    return key in _DISK_SET


def is_net_key(key: str) -> bool:
    """``net0`` and the like."""
    return key in _NET_SET


def is_unused_key(key: str) -> bool:
    """``unused0`` and the like."""
    return bool(re.fullmatch(r"unused\d+", key))


@dataclass(frozen=True)
class Drive:
    """A drive option, parsed."""

    key: str
    values: dict[str, Any]

    @property
    def file(self) -> str:
        """The volume id, ``none``, ``cdrom``, or a request such as ``local:4``."""
        return str(self.values["file"])

    @property
    def is_cdrom(self) -> bool:
        """Optical drives; cloud-init drives count as such."""
        return self.values.get("media") == "cdrom"

    @property
    def is_cloudinit(self) -> bool:
        """Whether the lab writes this drive from the cloud-init options."""
        return bool(re.search(r"(?:^|:|/)(?:vm-\d+-)?cloudinit(?:\.\w+)?$", self.file))

    @property
    def bus(self) -> str:
        """``scsi``, ``virtio``, ``sata``, ``ide``, ``efidisk``, ``tpmstate``."""
        return re.sub(r"\d+$", "", self.key)

    @property
    def is_plain_disk(self) -> bool:
        """A disk that a system can live on."""
        return not self.is_cdrom and self.bus in ("scsi", "virtio", "sata", "ide")

    def text(self) -> str:
        """The canonical text."""
        return print_property_string(self.values, drive_format(self.key))

    def with_values(self, **changes: Any) -> Drive:
        """A copy with other values; None removes one. ``_`` stands for ``-``."""
        merged = dict(self.values)
        for name, value in changes.items():
            key = name.replace("_", "-")
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        return Drive(self.key, merged)


def parse_drive(key: str, text: str) -> Drive:
    """Parse a drive option."""
    return Drive(key, parse_property_string(text, drive_format(key), key))


def drives(values: Mapping[str, str]) -> list[Drive]:
    """All drives of a configuration, sorted by option name."""
    return [parse_drive(key, values[key]) for key in sorted(values) if is_drive_key(key)]


def parse_net(text: str) -> dict[str, Any]:
    """Parse a network option."""
    return parse_property_string(text, NET_FORMAT)


def complete_net(text: str) -> str:
    """Canonical text of a network option, with a MAC made up where none is given."""
    values = parse_net(text)
    values.setdefault("macaddr", new_mac())
    return print_property_string(values, NET_FORMAT)


def nets(values: Mapping[str, str]) -> list[tuple[int, dict[str, Any]]]:
    """Index and parsed values of all network cards, in order."""
    keys = sorted((int(key[3:]), key) for key in values if is_net_key(key))
    return [(index, parse_net(values[key])) for index, key in keys]


def boot_devices(values: Mapping[str, str]) -> list[str]:
    """Devices in boot order; empty for the legacy form or none."""
    match = re.search(r"order=([^,]*)", values.get("boot", ""))
    return [word for word in split_list(match.group(1)) if word] if match else []


def default_boot(values: Mapping[str, str]) -> str:
    """The boot order of a new guest: first disk, first CD, first card; a blank if nothing."""
    order: list[str] = []
    disk = next((d.key for d in _by_bus(values) if d.is_plain_disk), None)
    if disk:
        order.append(disk)
    cdrom = next((d.key for d in _by_bus(values) if d.is_cdrom), None)
    if cdrom:
        order.append(cdrom)
    net = next((f"net{index}" for index, _ in nets(values)), None)
    if net:
        order.append(net)
    return boot_text(order)


def boot_text(order: list[str]) -> str:
    """The ``boot`` option for some devices."""
    return f"order={';'.join(order)}" if order else " "


def _by_bus(values: Mapping[str, str]) -> list[Drive]:
    rank = {key: index for index, key in enumerate(DISK_KEYS)}
    return sorted(drives(values), key=lambda d: rank[d.key])


def first_boot_disk(values: Mapping[str, str]) -> Drive | None:
    """The first real disk in boot order."""
    found = {drive.key: drive for drive in drives(values)}
    for key in boot_devices(values):
        drive = found.get(key)
        if drive is not None and drive.is_plain_disk:
            return drive
    return None
