"""Preflight of templates: machine types, processors, PCI devices and Secure Boot."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blocks.manifest.guest import Guest, PciDevice
from blocks.manifest.template.catalogue import load_catalogue
from blocks.model import Model
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.connection import Connection
from blocks.proxmox.errors import ProxmoxError
from tasks.capacity import did_you_mean
from tasks.findings import Finding, error, warning
from tasks.template.preflight_scope import Scope

# Every server has these; asking for them alone would be a call too many.
_USUAL_CPUS = frozenset({"host", "max", "kvm64", "qemu64", "x86-64-v2", "x86-64-v2-AES"})
_UNVERSIONED = frozenset({"i440fx", "pc", "q35"})


class PciMapping(Model):
    """A resource mapping of PCI devices as one node sees it.

    ``devices``: node to the number of devices it has there. ``faults``: what the server's check
    found on the node that was asked.
    """

    id: str
    devices: Mapping[str, int]
    mdev: bool = False
    faults: tuple[str, ...] = ()


class Machines(Model):
    """What one node can emulate and hand out; None where the server did not tell."""

    machines: frozenset[str] | None = None
    cpus: frozenset[str] | None = None
    mappings: Mapping[str, PciMapping] | None = None


def machine_guests(scope: Scope) -> tuple[Guest, ...]:
    """The guests whose machine a stage sets up: a clone gets devices of its own."""
    template = (scope.template,) if scope.creating or scope.configuring else ()
    return template + scope.clones


def read_machines(client: Client, node: str, guests: Sequence[Guest]) -> Machines:
    """Only what these guests of the node need to know; up to three calls.

    A server that does not tell (older ones answer 501) leaves its part None.
    """
    capabilities = api_path("nodes", node, "capabilities", "qemu")
    machines = cpus = mappings = None
    if any(guest.firmware.machine not in _UNVERSIONED for guest in guests):
        rows = _told(lambda: client.get(f"{capabilities}/machines"))
        machines = None if rows is None else frozenset(str(row["id"]) for row in rows)
    if any(_cpu(guest) not in _USUAL_CPUS for guest in guests):
        rows = _told(lambda: client.get(f"{capabilities}/cpu"))
        cpus = None if rows is None else frozenset(str(row["name"]) for row in rows)
    if any(device.mapping for guest in guests for device in guest.pci):
        rows = _told(lambda: client.get("/cluster/mapping/pci", **{"check-node": node}))
        found = None if rows is None else [_mapping(row) for row in rows]
        mappings = None if found is None else {each.id: each for each in found}
    return Machines(machines=machines, cpus=cpus, mappings=mappings)


def machine_findings(
    scope: Scope, there: Mapping[str, Machines], connection: Connection
) -> list[Finding]:
    """Machine types, processors, devices and boot loaders that will not do. No call."""
    found: list[Finding] = []
    guests = machine_guests(scope)
    for guest in guests:
        node = there.get(guest.node, Machines())
        found += _machine(guest, node)
        found += _processor(guest, node)
        for number, device in enumerate(guest.pci):
            found += _device(guest, number, device, node, connection)
    return [*found, *_too_many(guests, there), *_secure_boot(scope)]


def _told(read: Callable[[], Any]) -> list[dict[str, Any]] | None:
    try:
        rows: list[dict[str, Any]] = read()
    except ProxmoxError:
        return None
    return rows


def _mapping(row: Mapping[str, Any]) -> PciMapping:
    entries = [_properties(str(entry)) for entry in row.get("map") or ()]
    return PciMapping(
        id=str(row["id"]),
        devices=Counter(entry["node"] for entry in entries if "node" in entry),
        mdev=bool(int(row.get("mdev") or 0)),
        faults=tuple(
            str(check.get("message", "")).strip()
            for check in row.get("checks") or ()
            if check.get("severity") == "error"
        ),
    )


def _properties(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _cpu(guest: Guest) -> str:
    return guest.cpu.partition(",")[0].removeprefix("cputype=")


def _machine(guest: Guest, node: Machines) -> list[Finding]:
    wanted = guest.firmware.machine
    if wanted in _UNVERSIONED or node.machines is None or wanted in node.machines:
        return []
    kind = "q35" if "q35" in wanted else "i440fx"
    same = [each for each in node.machines if kind in each]
    return [
        error(
            f"node {guest.node} does not know machine {wanted}",
            f"{did_you_mean(wanted, same)}; or write {kind} for the newest",
            guest=guest.label,
        )
    ]


def _processor(guest: Guest, node: Machines) -> list[Finding]:
    wanted = _cpu(guest)
    if wanted in _USUAL_CPUS or node.cpus is None or wanted in node.cpus:
        return []
    text = f"node {guest.node} does not know processor {wanted}"
    advice = did_you_mean(wanted, node.cpus)
    if wanted.startswith("custom-"):
        # Custom ones are shown to callers with a privilege of their own only.
        return [warning(text, advice, guest=guest.label)]
    return [error(text, advice, guest=guest.label)]


def _device(
    guest: Guest, number: int, device: PciDevice, node: Machines, connection: Connection
) -> list[Finding]:
    slot = f"hostpci{number}"
    found: list[Finding] = []
    if device.pcie and "q35" not in guest.firmware.machine:
        found.append(
            error(
                f"{slot} is a PCI Express device, and machine {guest.firmware.machine} has none",
                "write machine: q35, or pcie: false",
                guest=guest.label,
            )
        )
    if device.mapping is None:
        return found + _raw(guest, slot, device, connection)
    if node.mappings is None:
        return found
    mapping = node.mappings.get(device.mapping)
    if mapping is None:
        return [
            *found,
            error(
                f"{slot}: there is no PCI mapping {device.mapping} that this user may use",
                f"{did_you_mean(device.mapping, node.mappings)}; make it under Datacenter, "
                "Resource Mappings, or give Mapping.Use on it",
                guest=guest.label,
            ),
        ]
    if not mapping.devices.get(guest.node):
        covered = ", ".join(sorted(mapping.devices)) or "no node"
        found.append(
            error(
                f"{slot}: PCI mapping {mapping.id} has no device on {guest.node}; "
                f"it covers {covered}",
                "add this node's device to the mapping, or choose one of those nodes",
                guest=guest.label,
            )
        )
    found += [
        error(
            f"{slot}: PCI mapping {mapping.id} does not fit node {guest.node} any more: {fault}",
            "correct it under Datacenter, Resource Mappings",
            guest=guest.label,
        )
        for fault in mapping.faults
    ]
    if device.mdev and not mapping.mdev:
        found.append(
            error(
                f"{slot}: PCI mapping {mapping.id} is not for mediated devices ({device.mdev})",
                "leave `mdev` out, or tick mediated devices in the mapping",
                guest=guest.label,
            )
        )
    return found


def _raw(guest: Guest, slot: str, device: PciDevice, connection: Connection) -> list[Finding]:
    """Recorded: 'only root can set config for non-mapped devices' (06-cloud-image-template)."""
    if connection.token_id is None and connection.user == "root@pam":
        return []
    who = connection.token_id or connection.user or "this user"
    reason = "a token of root is not root" if who.startswith("root@pam!") else "only root may"
    return [
        error(
            f"{slot}: {who} may not give {device.device} to a guest by its address: {reason}",
            "make a mapping for it under Datacenter, Resource Mappings, and write mapping: NAME; "
            "or connect as root@pam with its password",
            guest=guest.label,
        )
    ]


def _too_many(guests: Sequence[Guest], there: Mapping[str, Machines]) -> list[Finding]:
    """More running guests than devices; a template does not run."""
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for guest in guests:
        if guest.clone is None:
            continue
        for device in guest.pci:
            if device.mdev is None:
                users[guest.node, device.mapping or device.device or ""].append(guest.label)
    found = []
    for (node, name), labels in users.items():
        mapping = (there.get(node, Machines()).mappings or {}).get(name)
        devices = mapping.devices.get(node, 0) if mapping is not None else 1
        if 0 < devices < len(labels):
            found.append(
                warning(
                    f"{len(labels)} clones on {node} are to have {name} ({', '.join(labels)}), "
                    f"which is {devices} device{'s' if devices > 1 else ''} there",
                    "only so many of them can run at a time",
                )
            )
    return found


def _secure_boot(scope: Scope) -> list[Finding]:
    guest = scope.template
    if not (scope.configuring and guest.firmware.secure_boot and guest.image is not None):
        return []
    # Of the images of the catalogue the manifest's notices say it.
    if load_catalogue(scope.folder, os.environ, [], []).find(guest.image.name) is not None:
        return []
    return [
        warning(
            f"Secure Boot is on, and whether the boot loader of image {guest.image.name} is signed "
            "is not known",
            "an unsigned one does not start: leave Secure Boot off if the clones do not boot",
            guest=guest.label,
        )
    ]
