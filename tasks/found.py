"""Marked guests and seeds, found by asking the cluster: no local memory is needed.

A kill, another machine or an edited manifest do not matter: what carries the mark of an
environment and run is theirs, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from blocks.manifest.mark import Mark
from blocks.proxmox.client import Client
from blocks.proxmox.errors import NotFound, PermissionDenied
from blocks.proxmox.inventory import GuestRow, Inventory, VolumeRow, guest_config, storage_content
from tasks.iso.build import SeedName, parse_seed_name
from tasks.live import Live

# Reads in flight at once; a node's API has a handful of workers.
READERS = 8


@dataclass(frozen=True)
class FoundGuest:
    """A guest on the cluster with its configuration, and whose it is."""

    row: GuestRow
    live: Live

    @property
    def path(self) -> str:
        """Its place in the API."""
        return f"/nodes/{self.row.node}/{self.row.kind}/{self.row.vmid}"

    @property
    def mark(self) -> Mark | None:
        """Its mark; None for a stranger's guest, and for a copy that carries another's mark."""
        mark = self.live.mark
        return mark if mark is not None and mark.vmid == self.row.vmid else None

    def volumes(self) -> tuple[str, ...]:
        """Volume ids of the disks that are its own, sorted."""
        return tuple(sorted(own_volumes(self)))

    def __str__(self) -> str:
        """How messages name it. The cluster's list has no name of a guest that was just made."""
        config = self.live.config
        name = self.row.name or config.get("name") or config.get("hostname") or "unnamed"
        return f"VM {self.row.vmid} ({name}) on {self.row.node}"


@dataclass(frozen=True)
class FoundSeed:
    """A seed ISO on a storage, and whose it is."""

    node: str
    storage: str
    volume: VolumeRow
    name: SeedName


@dataclass(frozen=True)
class Looked:
    """All guests of the cluster: those that could be read, and those that could not.

    ``hidden`` are on nodes that are offline, or not for this caller to see; whose they are, and
    which disks they use, nobody can tell.
    """

    guests: tuple[FoundGuest, ...]
    hidden: tuple[GuestRow, ...]


def look(client: Client, inventory: Inventory) -> Looked:
    """Every guest of the cluster with its configuration; one call a guest, several at once.

    A guest that vanishes meanwhile is in neither part.
    """
    online = inventory.online()

    def read(row: GuestRow) -> FoundGuest | GuestRow | None:
        if row.node not in online:
            return row
        try:
            return FoundGuest(row, Live(guest_config(client, row)))
        except PermissionDenied:
            return row
        except NotFound:
            return None

    with ThreadPoolExecutor(READERS) as pool:
        found = tuple(pool.map(read, inventory.guests))
    return Looked(
        guests=tuple(each for each in found if isinstance(each, FoundGuest)),
        hidden=tuple(each for each in found if isinstance(each, GuestRow)),
    )


def all_guests(client: Client, inventory: Inventory) -> tuple[FoundGuest, ...]:
    """The guests of the cluster that can be read."""
    return look(client, inventory).guests


def of_environment(
    guests: Iterable[FoundGuest], env: str, run_id: str | None = None
) -> tuple[FoundGuest, ...]:
    """Those that carry the environment's mark, of one run or of any."""
    return tuple(
        found
        for found in guests
        if found.mark is not None
        and found.mark.env == env
        and (run_id is None or found.mark.run == run_id)
    )


def all_seeds(
    client: Client, inventory: Inventory, env: str, run_id: str | None = None
) -> tuple[FoundSeed, ...]:
    """The environment's seed ISOs on every storage that takes ISOs; one call a storage."""
    places: dict[tuple[str, str], str] = {}
    online = inventory.online()
    for row in inventory.storages:
        if "iso" in row.content and row.active and row.node in online:
            places.setdefault((row.storage, "" if row.shared else row.node), row.node)
    with ThreadPoolExecutor(READERS) as pool:
        listings = pool.map(
            lambda place: storage_content(client, place[1], place[0][0], "iso"), places.items()
        )
        return tuple(
            FoundSeed(node, storage, volume, name)
            for ((storage, _), node), volumes in zip(places.items(), listings, strict=True)
            for volume in volumes
            if (name := parse_seed_name(volume.volid.rpartition("/")[2]))
            and name.env == env
            and (run_id is None or name.run == run_id)
        )


def own_volumes(found: FoundGuest) -> frozenset[str]:
    """Volume ids in the guest's configuration that belong to it by their name."""
    mine = f"-{found.row.vmid}-"
    return frozenset(
        volume
        for line in found.live.config.values()
        if isinstance(line, str) and ":" in (volume := line.partition(",")[0]) and mine in volume
    )


def uses(user: FoundGuest, owner: FoundGuest) -> bool:
    """Whether ``user`` has a volume of ``owner`` in its configuration, or a linked clone of one.

    The volume of a linked clone names its base where the storage keeps files (07-clones); LVM-thin
    does not tell, and needs no base once the clone is made.
    """
    if user.row.vmid == owner.row.vmid:
        return False
    volumes = own_volumes(owner)
    return any(
        volume in volumes or any(volume.startswith(f"{base}/") for base in volumes)
        for line in user.live.config.values()
        if isinstance(line, str) and ":" in (volume := line.partition(",")[0])
    )


def removal_order(doomed: Sequence[FoundGuest]) -> tuple[FoundGuest, ...]:
    """The guests in an order in which none goes before those that use its disks.

    Otherwise the given order is kept. Guests that use each other's disks in a circle keep it too;
    Proxmox VE deletes only a guest's own volumes.
    """
    left, order = list(doomed), []
    while left:
        free = [g for g in left if not any(uses(other, g) for other in left)] or left[:1]
        order.append(free[0])
        left.remove(free[0])
    return tuple(order)
