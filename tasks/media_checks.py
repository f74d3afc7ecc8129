"""Preflight of install ISOs that the run is to provide: can they be had, and is there room?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from blocks.manifest.guest import Guest
from blocks.proxmox.inventory import Inventory, VolumeRow
from blocks.units import human_size
from tasks.findings import Finding, error
from tasks.iso.source import OriginError, is_fetched, is_url, probe
from tasks.medium import Medium, medium_of

Listings = Mapping[tuple[str, str], Sequence[VolumeRow] | None]
"""The ISOs by node and storage; None where they may not be read."""


def check_media(
    guests: Sequence[Guest], inventory: Inventory, there: Listings
) -> tuple[Finding, ...]:
    """Findings about the guests whose ISO has an origin.

    Reads local ISOs, once until they change; asks the server of each URL for its size, once.
    Whether an ISO on a storage has the right content is asked later, of its node.
    """
    found: list[Finding] = []
    wanted: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    sizes: dict[str, int | OriginError] = {}
    for guest in guests:
        try:
            medium = medium_of(guest)
            if medium is None:
                continue
            rows = there.get((guest.node, medium.storage)) or ()
            row = next((row for row in rows if row.volid == medium.volid), None)
            if row is None:
                size = _size(medium, sizes)
                place = inventory.storage(guest.node, medium.storage)
                if place is not None and place.active:
                    node = "" if place.shared else guest.node
                    wanted[medium.storage, node][medium.volid] = size
                continue
        except OriginError as refused:
            found.append(error(refused.message, refused.advice or "", guest=guest.label))
            continue
        if medium.family is None and medium.size not in {None, row.size}:
            found.append(
                error(
                    f"{row.volid} on {guest.node} has {row.size} bytes, and {medium.origin} has "
                    f"{medium.size}: they are not the same ISO",
                    "give the ISO another name in `iso.image`, or delete the one on the storage",
                    guest=guest.label,
                )
            )
    return (*found, *_room(inventory, wanted))


def _size(medium: Medium, sizes: dict[str, int | OriginError]) -> int:
    """Bytes that the medium will take; 0 where that cannot be known. Raises OriginError."""
    if medium.size is not None:
        return medium.size
    if not is_url(medium.origin) or is_fetched(medium.sha256):
        return 0
    if medium.origin not in sizes:
        sizes[medium.origin] = _asked(lambda: probe(medium.origin) or 0)
    known = sizes[medium.origin]
    if isinstance(known, OriginError):
        raise known
    return known


def _asked(ask: Callable[[], int]) -> int | OriginError:
    try:
        return ask()
    except OriginError as refused:
        return refused


def _room(
    inventory: Inventory, wanted: Mapping[tuple[str, str], Mapping[str, int]]
) -> list[Finding]:
    found = []
    for (storage, node), media in wanted.items():
        row = next(
            row
            for row in inventory.storages
            if row.storage == storage and node in {"", row.node} and row.active
        )
        size = sum(media.values())
        if row.total > 0 and size > row.available:
            where = f"{storage} on {node}" if node else storage
            names = ", ".join(volid.rpartition("/")[2] for volid in media)
            found.append(
                error(
                    f"storage {where} has {human_size(row.available)} left, and the install ISOs "
                    f"that are to go there take {human_size(size)}: {names}",
                    "free some space, or name another storage in `iso.storage`",
                )
            )
    return found
