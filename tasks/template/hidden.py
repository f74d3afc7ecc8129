"""Whether guests may be hidden from the caller: every list is cut by the caller's rights."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from blocks.proxmox.client import Client
from blocks.proxmox.inventory import permissions, vmid_is_free

_GUESTS: Final = "/vms"
_POOLS: Final = "/pool"
_OF_ONE_GUEST: Final = re.compile(r"/vms/([1-9]\d{2,8})")


def perhaps_hidden(
    client: Client, listed: Collection[int], seen: Collection[int]
) -> tuple[str, ...]:
    """Why there may be guests besides those ``seen``, in words; nothing where there are none.

    One that was ``listed`` and not seen was deleted meanwhile, or moved.

    The caller sees a guest by VM.Audit on ``/vms``, unless something of its own takes that away:
    another role on the guest's path, or NoAccess on its pool. Only the access control list tells
    of those; the caller's permissions do not, since they leave out paths on which he has none. A
    number that the list names and nobody has is told from one that is hidden by ``nextid``, which
    knows all guests.

    Two calls, one for each number of either list that was not seen, and two for each pool that the
    access control list closes to this caller or a group. Raises ProxmoxError.
    """
    held = permissions(client).by_path
    lacking = []
    if not held.get(_GUESTS, {}).get("VM.Audit"):
        lacking.append(f"VM.Audit on {_GUESTS}")
    if "Sys.Audit" not in held.get("/access", {}):
        lacking.append("Sys.Audit on /access")
    if lacking:
        return (f"perhaps a guest that this caller may not see: it lacks {', '.join(lacking)}",)
    entries = client.get("/access/acl")
    paths = {str(entry["path"]) for entry in entries}
    own = {int(found[1]) for path in paths if (found := _OF_ONE_GUEST.fullmatch(path))}
    missing = sorted((own | set(listed)).difference(seen))
    guests = tuple(
        f"perhaps VM {vmid}, which this caller may not see, or which is being moved"
        for vmid in missing
        if not vmid_is_free(client, vmid)
    )
    return (*guests, *_pools(client, entries))


def _pools(client: Client, entries: list[dict[str, Any]]) -> Iterator[str]:
    """Pools that are closed: NoAccess on one counts more than any right on its guests."""
    closed = {str(entry["path"]) for entry in entries if _may_close_pools(client, entry)}
    for path in sorted(_POOLS if path == "/" else path for path in closed):
        if not permissions(client, path).by_path[path]:
            yield f"perhaps a guest of {path}, where this caller has the role NoAccess"


def _may_close_pools(client: Client, entry: Mapping[str, Any]) -> bool:
    path = f"{entry['path']}/"
    if entry["roleid"] != "NoAccess" or not (path == "//" or path.startswith(f"{_POOLS}/")):
        return False
    user = client.connection.identity.partition("!")[0]
    # Which groups the caller is in is not for everybody to see.
    return entry["type"] == "group" or str(entry["ugid"]).partition("!")[0] == user
