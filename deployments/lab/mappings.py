"""Resource mappings of PCI devices, and the devices that nodes have.

From the public documentation and source of Proxmox VE 9, not recorded; only that a guest may name
a mapping that does not exist is (scenario 06). USB and directory mappings are not modelled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployments.lab import formats
from deployments.lab.errors import failure
from deployments.lab.files import read_json, write_json
from deployments.lab.schema import (
    PropertyFormat,
    integer,
    parse_property_string,
    string,
)

_ADDRESS = r"[a-f0-9]{4,}:[a-f0-9]{2}:[a-f0-9]{2}(?:\.[a-f0-9])?"
_IDENTITY = r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}"
MAP_FORMAT: PropertyFormat = {
    "node": string(formats.node_name, optional=False),
    "id": string(pattern=_IDENTITY, optional=False),
    "subsystem-id": string(pattern=_IDENTITY),
    "path": string(pattern=rf"(?:{_ADDRESS};)*{_ADDRESS}", optional=False),
    "iommugroup": integer(),
    "description": string(max_length=4096),
}
_CHECKED = ("id", "iommugroup", "subsystem-id")


@dataclass
class PciDevice:
    """A device of a node: its address, and what tells it from others."""

    path: str
    id: str
    iommugroup: int | None = None
    subsystem_id: str | None = None


@dataclass
class PciMapping:
    """A name for devices, one or more on each of some nodes. ``map``: property strings."""

    map: list[str]
    description: str | None = None
    mdev: bool = False

    def entries(self, node: str) -> list[dict[str, Any]]:
        """The parsed entries for one node."""
        return [entry for entry in map(parse_entry, self.map) if entry["node"] == node]

    def shown(self, name: str, digest: str) -> dict[str, Any]:
        """As the API shows it in a list."""
        row: dict[str, Any] = {"id": name, "type": "pci", "map": list(self.map), "digest": digest}
        if self.description is not None:
            row["description"] = self.description
        if self.mdev:
            row["mdev"] = 1
        return row


@dataclass
class PciMappings:
    """All PCI mappings of the cluster, kept in one file."""

    file: Path
    found: dict[str, PciMapping] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file."""
        self.found = {name: PciMapping(**one) for name, one in read_json(self.file, {}).items()}

    def __iter__(self) -> Iterator[tuple[str, PciMapping]]:
        """Names and mappings, sorted."""
        return iter(sorted(self.found.items()))

    def save(self) -> None:
        """Write the file."""
        write_json(self.file, {name: vars(one) for name, one in self.found.items()})

    def digest(self) -> str:
        """Changes with every change of any mapping."""
        text = json.dumps({name: vars(one) for name, one in self})
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def check_entry(
    name: str, entry: Mapping[str, Any], devices: Mapping[str, PciDevice]
) -> str | None:
    """Why an entry does not fit the devices of its node; None when it does."""
    for number, path in enumerate(str(entry["path"]).split(";")):
        address = path if "." in path else f"{path}.0"
        device = devices.get(address)
        if device is None:
            return f"pci device '{address}' not found"
        expected = {
            "id": device.id,
            "iommugroup": device.iommugroup,
            "subsystem-id": device.subsystem_id,
        }
        for key in _CHECKED:
            if key == "iommugroup" and number:
                continue
            there, said = expected[key], entry.get(key)
            if there is None and said is None:
                continue
            if said is None:
                return f"missing expected property '{key}' for device '{address}'"
            if there is None:
                return f"unexpected property '{key}' configured for device '{address}'"
            if str(there) != str(said):
                return f"'{key}' does not match for '{name}' ({there} != {said})"
    return None


def devices_of(
    name: str, mappings: PciMappings, node: str, devices: Mapping[str, PciDevice]
) -> list[tuple[str, ...]]:
    """The alternatives of a mapping on a node, each the addresses that go together.

    Refused in the words of a start where there are none.
    """
    mapping = mappings.found.get(name)
    entries = mapping.entries(node) if mapping is not None else []
    if not entries:
        raise failure(f"PCI device mapping not found for '{name}'")
    for entry in entries:
        if (fault := check_entry(name, entry, devices)) is not None:
            raise failure(f"PCI device mapping invalid (hardware probably changed): {fault}")
    return [tuple(str(entry["path"]).split(";")) for entry in entries]


def parse_entry(entry: str) -> dict[str, Any]:
    """A map entry by its keys. Raises FormatError."""
    return parse_property_string(entry, MAP_FORMAT, "map")
