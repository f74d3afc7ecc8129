"""Devices of the node that a template hands to its guests."""

from __future__ import annotations

import re
from typing import Any

from blocks.manifest.guest import Guest
from blocks.proxmox.client import api_path
from blocks.proxmox.errors import ProxmoxError
from tasks.errors import StageError
from tasks.session import Session

_AMD = "1002"
_ROOT = "root@pam"
_MAPPING = re.compile(r"(?:^|,)(?P<key>[a-z-]+)=(?P<value>[^,]*)")


def refuse_devices(here: Session, guest: Guest) -> None:
    """Refuse what Proxmox VE would refuse, or take and fail on at the start. No call.

    Raises StageError: a raw device id needs root@pam with a password (06-cloud-image-template),
    PCI Express needs the machine q35, and only one device can be the first graphics card.
    """
    machine = guest.firmware.machine
    for device in guest.pci:
        if device.mapping is None and here.connection.identity != _ROOT:
            raise StageError(
                f"PCI device {device.device} is given by its id, which Proxmox VE lets only "
                f"{_ROOT} with a password do, not {here.connection.identity}",
                advice="make a resource mapping of it (Datacenter > Resource Mappings > PCI, or "
                "`pvesh create /cluster/mapping/pci`), name that as `mapping` in the manifest, "
                "and give the role PVEMappingUser on /mapping/pci/NAME",
            )
        if device.pcie and "q35" not in machine:
            raise StageError(
                f"PCI device {device.mapping or device.device} is declared with PCI Express, "
                f"which machine {machine} lacks",
                advice="declare `machine: q35`, or `pcie: false` for the device",
            )
    primary = [device for device in guest.pci if device.primary]
    if len(primary) > 1:
        names = ", ".join(str(device.mapping or device.device) for device in primary)
        raise StageError(
            f"{len(primary)} devices are declared as first graphics card: {names}",
            advice="declare `primary` for one of them",
        )


def device_notes(here: Session, guest: Guest) -> tuple[str, ...]:
    """What should be known about the mapped devices; one call a mapping.

    Who may not read a mapping, or asks a server without them, is told nothing.
    """
    notes = []
    for name in dict.fromkeys(device.mapping for device in guest.pci if device.mapping):
        try:
            mapping: dict[str, Any] = here.client.get(api_path("cluster", "mapping", "pci", name))
        except ProxmoxError:
            continue
        if _AMD in _vendors(mapping, guest.node):
            notes.append(
                f"{name} is a device of AMD (vendor {_AMD}): some of its graphics cards do not "
                "reset when a guest stops, so that the next start of a guest hangs until the node "
                "is rebooted; where that happens, the kernel module vendor-reset on the node helps"
            )
    return tuple(notes)


def _vendors(mapping: dict[str, Any], node: str) -> set[str]:
    """Vendor ids of the devices that stand for a mapping on a node."""
    found = set()
    for entry in mapping.get("map") or ():
        fields = {m["key"]: m["value"] for m in _MAPPING.finditer(str(entry))}
        if fields.get("node") in (None, node):
            found.add(fields.get("id", "").partition(":")[0].lower())
    return found
