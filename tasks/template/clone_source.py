"""What a clone is made of: its template, looked at before, and the call that makes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from blocks.manifest.guest import CloneSource, Guest
from blocks.manifest.mark import marked
from blocks.proxmox.inventory import Inventory, read_inventory
from blocks.proxmox.properties import storage_of
from tasks.errors import StageError
from tasks.live import read_live
from tasks.session import Session
from tasks.template.convert import is_template

_DRIVE = re.compile(r"(?:ide|sata|scsi|virtio|efidisk|tpmstate)\d+")


def source_of(guest: Guest) -> CloneSource:
    """What the guest is cloned from. Raises ValueError for one that is no clone."""
    if guest.clone is None:
        raise ValueError(f"{guest.label} is no clone")
    return guest.clone


def template_of(here: Session, guest: Guest) -> Guest:
    """The template that the guest is cloned from, in the generation that is in use."""
    return here.guest(source_of(guest).template)


def check_source(here: Session, guest: Guest) -> None:
    """Make sure that the template can be cloned to where the guest is to be.

    One call; another where the guest is to be on another node. Raises StageError, or AlreadyExists
    where somebody else's guest has the template's number.
    """
    template = template_of(here, guest)
    live = read_live(here.client, template)
    first = "run the flow with the stages image, create, configure and template first"
    if live is None:
        raise StageError(
            f"its template, VM {template.vmid}, is not on node {template.node}", advice=first
        )
    here.require_ours(template, live)
    if not is_template(live):
        raise StageError(f"VM {template.vmid} on {template.node} is no template yet", advice=first)
    if guest.node != template.node:
        _check_elsewhere(guest, template, live.config, read_inventory(here.client))


def _check_elsewhere(
    guest: Guest, template: Guest, config: Mapping[str, Any], inventory: Inventory
) -> None:
    """Proxmox VE clones to another node only from and to storages that both nodes share."""
    local = [
        f"{slot} on {storage}"
        for slot, storage in drive_storages(config)
        if not _shared(inventory, storage, template.node, guest.node)
    ]
    target = source_of(guest).storage
    if not local and (target is None or _shared(inventory, target, template.node, guest.node)):
        return
    why = (
        f"it has {', '.join(local)}, which {guest.node} does not share with {template.node}"
        if local
        else f"storage {target} is not shared by {template.node} and {guest.node}"
    )
    raise StageError(
        f"VM {template.vmid} cannot be cloned from {template.node} to {guest.node}: {why}",
        advice=f"keep the template and {guest.label} on a shared storage, or give {guest.label} "
        f"the node {template.node}",
    )


def _shared(inventory: Inventory, storage: str, *nodes: str) -> bool:
    rows = [inventory.storage(node, storage) for node in nodes]
    return all(row is not None and row.shared for row in rows)


def drive_storages(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Slot and storage of every volume in a configuration's drives, CD drives included."""
    for key in sorted(config):
        if _DRIVE.fullmatch(key):
            storage = storage_of(str(config[key]).partition(",")[0])
            if storage:
                yield key, storage


def clone_params(here: Session, guest: Guest) -> dict[str, Any]:
    """The form of the clone call.

    The mark is part of it, since a clone has its source's description otherwise (07-clones).
    """
    source, template = source_of(guest), template_of(here, guest)
    return {
        "newid": guest.vmid,
        "name": guest.name,
        "description": marked(here.mark(guest), guest.description),
        "full": source.full,
        "pool": guest.pool,
        "target": guest.node if guest.node != template.node else None,
        "storage": source.storage if source.full else None,
    }
