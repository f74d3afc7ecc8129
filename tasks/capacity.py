"""Preflight, first part: what the bulk read of the cluster tells, without another call."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Sequence

from blocks.manifest.guest import Guest
from blocks.proxmox.inventory import Inventory, StorageRow
from blocks.units import MIB, human_size
from tasks.findings import Finding, error, warning

# A seed ISO is below 1 MiB; a storage without this much left is full.
SEED_ROOM = 16 * MIB


def check_inventory(guests: Sequence[Guest], inventory: Inventory) -> list[Finding]:
    """Nodes online, storages there with the right content and room, names and ids free.

    ``guests``: those that are to be created. No call is made.
    """
    return [
        *node_findings(guests, inventory),
        *_storages(guests, inventory),
        *room_findings(guests, inventory),
        *_names(guests, inventory),
        *resource_findings(guests, inventory),
    ]


def check_changes(guests: Sequence[Guest], inventory: Inventory) -> list[Finding]:
    """Storages, room and capacity for the parts of existing guests that change. No call is made."""
    return [
        *_storages(guests, inventory),
        *room_findings(guests, inventory),
        *resource_findings(guests, inventory),
    ]


def disk_storages(guest: Guest) -> set[str]:
    """The storages that must take disks of the guest: its own ones, EFI and TPM included."""
    return {disk.storage for disk in guest.disks} | {
        storage
        for storage in (guest.firmware.efi_storage, guest.firmware.tpm_storage)
        if storage is not None
    }


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the nearest known word, with the list of what is there."""
    names = sorted(set(known))
    close = difflib.get_close_matches(word, names, n=1)
    if not names:
        return "there is none so far"
    listed = ", ".join(names)
    return f"did you mean {close[0]}? There is: {listed}" if close else f"there is: {listed}"


def node_findings(guests: Sequence[Guest], inventory: Inventory) -> list[Finding]:
    """Nodes that the cluster does not have, or that are offline."""
    found = []
    for guest in guests:
        row = inventory.node(guest.node)
        if row is None:
            names = [node.name for node in inventory.nodes]
            found.append(
                error(
                    f"the cluster has no node {guest.node}",
                    did_you_mean(guest.node, names),
                    guest=guest.label,
                )
            )
        elif not row.online:
            found.append(
                error(
                    f"node {guest.node} is offline",
                    "bring it back, or give the guest another node",
                    guest=guest.label,
                )
            )
    return found


def _storages(guests: Sequence[Guest], inventory: Inventory) -> list[Finding]:
    found = []
    for guest in guests:
        row = inventory.node(guest.node)
        if row is None or not row.online:
            continue
        wanted = [(storage, "images", "disks") for storage in sorted(disk_storages(guest))]
        if guest.install is not None:
            wanted.append((guest.install.iso.partition(":")[0], "iso", "the install ISO"))
            wanted.append((guest.install.seed_storage, "iso", "the seed ISO"))
        for storage, content, purpose in dict.fromkeys(wanted):
            finding = storage_finding(guest, inventory, storage, content, purpose)
            if finding is not None:
                found.append(finding)
    return found


def storage_finding(
    guest: Guest, inventory: Inventory, storage: str, content: str, purpose: str
) -> Finding | None:
    """What keeps the guest's node from putting that content onto a storage, if anything does."""
    row = inventory.storage(guest.node, storage)
    if row is None:
        there = [s.storage for s in inventory.storages if s.node == guest.node]
        return error(
            f"node {guest.node} has no storage {storage} for {purpose}",
            did_you_mean(storage, there),
            guest=guest.label,
        )
    if not row.active:
        return error(
            f"storage {storage} on {guest.node} is not available",
            "look at it in the Proxmox VE page, under Datacenter, Storage",
            guest=guest.label,
        )
    if content not in row.content:
        fitting = [
            s.storage for s in inventory.storages if s.node == guest.node and content in s.content
        ]
        return error(
            f"storage {storage} on {guest.node} does not take content {content!r}, needed "
            f"for {purpose}; it takes {', '.join(sorted(row.content)) or 'nothing'}",
            f"enable it under Datacenter, Storage, or use {' or '.join(fitting) or 'another'}",
            guest=guest.label,
        )
    return None


def room_findings(guests: Sequence[Guest], inventory: Inventory) -> list[Finding]:
    """Storages that the new disks of all these guests, or a seed ISO, do not fit on."""
    asked: dict[tuple[str, str], int] = defaultdict(int)
    rows: dict[tuple[str, str], StorageRow] = {}
    found: list[Finding] = []

    def place(storage: str, node: str) -> tuple[str, str] | None:
        row = inventory.storage(node, storage)
        if row is None or not row.active:
            return None
        key = (storage, "" if row.shared else node)
        rows.setdefault(key, row)
        return key

    for guest in guests:
        for disk in guest.disks:
            key = place(disk.storage, guest.node)
            if key is not None and disk.shared_with is None:
                asked[key] += disk.size
                if disk.size > rows[key].total > 0:
                    found.append(
                        error(
                            f"disk {disk.slot} of {human_size(disk.size)} is larger than storage "
                            f"{disk.storage} ({human_size(rows[key].total)})",
                            "make it smaller, or use another storage",
                            guest=guest.label,
                        )
                    )
        if guest.install is not None:
            key = place(guest.install.seed_storage, guest.node)
            if key is not None and rows[key].total > 0 and rows[key].available < SEED_ROOM:
                found.append(
                    error(
                        f"storage {key[0]} on {guest.node} is full: "
                        f"{human_size(rows[key].available)} left",
                        f"the seed ISO needs {human_size(SEED_ROOM)} to be safe",
                        guest=guest.label,
                    )
                )
    for key, size in asked.items():
        row = rows[key]
        if row.total > 0 and size > row.available:
            text = (
                f"the new disks on {row.storage}{'' if row.shared else ' of ' + row.node} add up "
                f"to {human_size(size)}, and {human_size(row.available)} are free"
            )
            if row.plugin == "lvm":
                found.append(error(text, "free some space, or use another storage"))
            else:
                found.append(warning(text, "fine as long as the guests do not fill them"))
    return found


def _names(guests: Sequence[Guest], inventory: Inventory) -> list[Finding]:
    found = []
    declared = {guest.vmid for guest in guests}
    by_name = {row.name: row for row in inventory.guests if row.vmid not in declared}
    by_id = {row.vmid: row for row in inventory.guests}
    for guest in guests:
        taken = by_id.get(guest.vmid)
        if taken is not None:
            found.append(
                error(
                    f"vm_id {guest.vmid} is taken by {taken.name} on {taken.node}, which is not "
                    "this environment's",
                    "choose another; the next free one is "
                    f"{next_free(guest.vmid, by_id.keys() | declared)}",
                    guest=guest.label,
                )
            )
        namesake = by_name.get(guest.name)
        if namesake is not None:
            found.append(
                error(
                    f"the name {guest.name} is taken by VM {namesake.vmid} on {namesake.node}",
                    "rename one of them; where that is the same guest under its former vm_id, set "
                    f"vm_id back to {namesake.vmid}",
                    guest=guest.label,
                )
            )
    return found


def next_free(vmid: int, taken: Iterable[int]) -> int:
    """The first id from ``vmid`` on that is not taken."""
    used = set(taken)
    while vmid in used:
        vmid += 1
    return vmid


def resource_findings(guests: Sequence[Guest], inventory: Inventory) -> list[Finding]:
    """Processors and memory that a node does not have for these guests."""
    found = []
    memory: dict[str, int] = defaultdict(int)
    for guest in guests:
        row = inventory.node(guest.node)
        if row is None or not row.online:
            continue
        memory[guest.node] += guest.memory * MIB
        cpus = guest.cores * guest.sockets
        if row.maxcpu and cpus > row.maxcpu:
            found.append(
                warning(
                    f"{cpus} virtual CPUs are asked for, and node {guest.node} has "
                    f"{row.maxcpu:.0f}",
                    "Proxmox VE will refuse to start it",
                    guest=guest.label,
                )
            )
    for name, size in memory.items():
        row = inventory.node(name)
        if row is not None and row.maxmem and size > row.maxmem - row.mem:
            found.append(
                warning(
                    f"the new guests on {name} want {human_size(size)} of memory, and "
                    f"{human_size(max(0, row.maxmem - row.mem))} of it is free",
                    "they may not start, or the node may swap",
                )
            )
    return found
