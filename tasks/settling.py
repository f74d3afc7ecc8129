"""Calls that a dead client left running on the cluster, before its traces are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from blocks.manifest.guest import Guest
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.inventory import Inventory, read_inventory, vmid_is_free
from tasks.found import Looked

SECONDS: Final = 600.0
"""How long each task is waited for."""
COPY_SECONDS: Final = 30.0
"""The same for a copy: a seed ISO is copied in no time; a long copy is somebody else's."""

_ACTIVE: Final = 500
_BEING_MADE: Final = frozenset({"create", "clone"})


def settle(client: Client, guests: Sequence[Guest]) -> None:
    """Wait for the tasks that still work on these guests, or put files on storages of their nodes.

    A killed client leaves its last call running on the cluster: a guest that is being created
    would appear after the search for marks. How such a task ends does not matter. Each node is
    asked: the list of the cluster tells a token that lacks Sys.Audit on ``/`` of no task, not even
    of its own. Those of others take Sys.Audit on the node.
    """
    ids = {str(guest.vmid) for guest in guests}
    online = read_inventory(client).online()
    for node in sorted({guest.node for guest in guests} & online):
        with suppress(ProxmoxError):
            for row in client.get(api_path("nodes", node, "tasks"), source="active", limit=_ACTIVE):
                copying = row.get("type") == "imgcopy"
                if copying or row.get("id") in ids:
                    bound = COPY_SECONDS if copying else SECONDS
                    with suppress(ProxmoxError):
                        client.wait(row["upid"], timeout=bound)


def moved(
    client: Client, inventory: Inventory, looked: Looked, declared: Sequence[Guest]
) -> list[str]:
    """Guests that were listed on a node and not found there, and still are somewhere.

    No call where there is none, else one for each. Raises ProxmoxError.
    """
    numbers = {guest.vmid for guest in declared}
    seen = {guest.row.vmid for guest in looked.guests} | {row.vmid for row in looked.hidden}
    return [
        f"VM {row.vmid} was moved away from {row.node} meanwhile; run the rollback again"
        for row in inventory.guests
        if row.vmid in numbers - seen and not vmid_is_free(client, row.vmid)
    ]


def half_made(looked: Looked, declared: Sequence[Guest]) -> list[str]:
    """Guests that are still being created or cloned, by a task that was not waited for to its end.

    They get their mark with the end of that, so whose they are cannot be told.
    """
    numbers = {guest.vmid for guest in declared}
    return [
        f"{found} is still being made, perhaps by this run; run the rollback again when it is "
        "finished, or delete it yourself if no task works on it"
        for found in looked.guests
        if found.row.vmid in numbers
        and found.mark is None
        and found.live.config.get("lock") in _BEING_MADE
    ]
