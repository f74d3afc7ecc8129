"""Changes of running guests that only a stop and start takes over."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from blocks.manifest.plans import Change, Scalar
from blocks.proxmox.client import Client
from blocks.proxmox.errors import NotFound, PermissionDenied
from blocks.proxmox.inventory import GuestRow, guest_path
from tasks.found import READERS

# An order of drives is of use to a start alone, which takes it over; each installation leaves one.
_OF_A_START = frozenset({"boot"})


def pending_changes(client: Client, rows: Mapping[str, GuestRow]) -> dict[str, tuple[Change, ...]]:
    """What waits for a restart, by label, of those guests where anything but the boot order does.

    A guest's configuration shows the values to come, and no bulk read of the cluster tells them
    from those in use (12b-hardware-running): one call for each guest that runs, several at once.
    Raises ProxmoxError.
    """

    def read(row: GuestRow) -> tuple[Change, ...]:
        try:
            options = client.get(f"{guest_path(row.kind, row.node, row.vmid)}/pending")
        except (NotFound, PermissionDenied):
            return ()
        return tuple(
            _change(each)
            for each in options
            if ("pending" in each or "delete" in each) and each["key"] not in _OF_A_START
        )

    running = {label: row for label, row in rows.items() if row.status == "running"}
    with ThreadPoolExecutor(READERS) as pool:
        found = dict(zip(running, pool.map(read, running.values()), strict=True))
    return {label: changes for label, changes in found.items() if changes}


def _change(option: Mapping[str, Any]) -> Change:
    before, after = _value(option.get("value")), _value(option.get("pending"))
    kind: Literal["add", "change", "remove"]
    kind = "remove" if after is None else "add" if before is None else "change"
    return Change(kind=kind, target=str(option["key"]), before=before, after=after)


def _value(given: Scalar) -> Scalar:
    """Numbers are texts in some rows and numbers in others."""
    return int(given) if isinstance(given, str) and given.isdecimal() else given
