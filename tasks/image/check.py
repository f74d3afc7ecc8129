"""Preflight of disk images: can they be had, are they what they should be, and is there room?"""

from __future__ import annotations

from pathlib import Path

from blocks.manifest.guest import Guest, ImageSource
from blocks.proxmox.client import Client
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.inventory import Inventory, StorageRow
from blocks.units import human_size
from tasks.errors import StageError
from tasks.fetching import Head, file_name, head_of_url, is_url, shown
from tasks.findings import Finding, error, warning
from tasks.image.formats import HEAD, Kind, disk_size, is_packed, kind_by_name, kind_of
from tasks.image.local import given, is_fetched, packed_content
from tasks.image.memory import known
from tasks.image.origin import WORDS, digest_of, head_of_file, plain_kind
from tasks.image.provide import find_image, virtual_size
from tasks.image.signed import check_keyring
from tasks.image.unpack import beginning
from tasks.progress import Meter
from tasks.template.disks import refuse_too_small, root_disk


def check_image(client: Client, guest: Guest, inventory: Inventory) -> list[Finding]:
    """All findings about the guest's image; nothing for a guest that is made from something else.

    Reads: the storage's list, the publisher's list of checksums, the first bytes of the image.
    """
    source = guest.image
    if source is None:
        return []
    found = _storage(guest, source, inventory)
    row = inventory.storage(guest.node, source.storage)
    usable = row if row is not None and row.active and not found else None
    found += _keyring(source, guest.label)
    try:
        memory = known(client, source)
        with memory.lock:
            if memory.digest is None:
                memory.digest = digest_of(source, Meter())
        if usable is not None and _is_there(client, guest, source):
            return [*found, *_larger(guest, memory.size)]
    except StageError as refused:
        found.append(error(refused.message, refused.advice or "", guest=guest.label))
    return list(dict.fromkeys([*found, *_origin(guest, source, usable)]))


def _storage(guest: Guest, source: ImageSource, inventory: Inventory) -> list[Finding]:
    if inventory.node(guest.node) is None:
        return []
    row = inventory.storage(guest.node, source.storage)
    if row is not None and "import" in row.content:
        if row.active:
            return []
        return [
            error(
                f"storage {source.storage} is not active on {guest.node}",
                "bring it up, or name another one in `image.storage`",
                guest=guest.label,
            )
        ]
    others = sorted(
        other.storage
        for other in inventory.storages_of(guest.node)
        if "import" in other.content and other.active
    )
    remedy = (
        f"name another one in `image.storage`; on {guest.node} there is: {', '.join(others)}"
        if others
        else "add the content type Import to a storage that holds files (Datacenter, Storage, Edit)"
    )
    problem = (
        f"node {guest.node} has no storage {source.storage}"
        if row is None
        else f"storage {source.storage} on {guest.node} does not take disk images: it has no "
        "content type `import`"
    )
    return [error(problem, remedy, guest=guest.label)]


def _keyring(source: ImageSource, label: str) -> list[Finding]:
    if source.keyring is None or source.sums is None or source.checksum is not None:
        return []
    try:
        check_keyring(Path(source.keyring))
    except StageError as refused:
        return [error(refused.message, refused.advice or "", guest=label)]
    return []


def _is_there(client: Client, guest: Guest, source: ImageSource) -> bool:
    """Whether the storage has the image, by its name. What may not be read is not there.

    The size of its disk is kept for the stages.
    """
    memory = known(client, source)
    try:
        row = memory.digest and find_image(client, guest.node, source, memory.digest)
        if not row:
            return False
        if memory.size is None:
            memory.size = virtual_size(client, guest.node, row.volid)
    except ProxmoxError:
        return False
    return True


def _larger(guest: Guest, size: int | None) -> list[Finding]:
    """Whether the disk in the image, ``size`` in bytes, does not fit into the one declared."""
    disk = root_disk(guest)
    if disk is None or size is None:
        return []
    try:
        refuse_too_small(guest, disk, size)
    except StageError as refused:
        return [error(refused.message, refused.advice or "", guest=guest.label)]
    return []


def _origin(guest: Guest, source: ImageSource, storage: StorageRow | None) -> list[Finding]:
    """What is wrong with the image where it comes from, and whether it fits onto the storage."""
    name = file_name(source.origin) or shown(source.origin)
    try:
        head: Head | None
        if is_url(source.origin):
            head = head_of_url(source.origin, HEAD, WORDS)
        else:
            head = head_of_file(Path(source.origin))
            if source.checksum is not None:
                given(Path(source.origin), source.checksum, Meter())
        if head is None:
            return _silent(guest, source)
        kind = kind_of(head.data, head.size, name)
        disk = _disk_in(head, kind, name)
    except StageError as refused:
        return [error(refused.message, refused.advice or "", guest=guest.label)]
    found = _larger(guest, disk)
    if is_packed(kind) and source.fetch == "node":
        found.append(_packed_for_node(guest, source))
    size = head.size or 0
    digest = source.checksum
    packed = packed_content(digest) if digest is not None else None
    needed = packed.size if packed is not None else size
    if storage is not None and storage.total > 0 and needed > storage.available:
        least = "at least " if is_packed(kind) and packed is None else ""
        found.append(
            error(
                f"storage {storage.storage} on {guest.node} has {human_size(storage.available)} "
                f"left, and the image {source.name} takes {least}{human_size(needed)}",
                "free some space, or name another storage in `image.storage`",
                guest=guest.label,
            )
        )
    return found


def _disk_in(head: Head, kind: Kind, name: str) -> int | None:
    """Bytes of the disk in an image, None where its beginning does not tell.

    Raises OriginError where what is packed in it is no disk image.
    """
    if not is_packed(kind):
        return disk_size(head.data, head.size, kind)
    plain = beginning(head.data, kind, name)
    if plain is None:
        return None
    size = len(plain) if len(plain) < HEAD else None
    return disk_size(plain, size, plain_kind(plain, size, f"what is in {name}"))


def _silent(guest: Guest, source: ImageSource) -> list[Finding]:
    """The publisher's server does not answer here; the node may reach it."""
    kind = kind_by_name(file_name(source.origin))
    digest = source.checksum
    if digest is not None and is_fetched(digest):
        return []
    if source.fetch == "here" or is_packed(kind):
        problem = f"{shown(source.origin)} cannot be read here, where it is to be fetched"
        remedy = "look at this machine's network, or give `image.path` of a file that is here"
        return [error(problem, remedy, guest=guest.label)]
    return [
        warning(
            f"{shown(source.origin)} cannot be read here; node {guest.node} is to fetch it",
            guest=guest.label,
        )
    ]


def _packed_for_node(guest: Guest, source: ImageSource) -> Finding:
    return error(
        f"{shown(source.origin)} is packed, and a node unpacks no disk images",
        "leave `image.fetch` out, so that it is unpacked here and uploaded",
        guest=guest.label,
    )
