"""What guests name besides their configuration: while they run, and in snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from blocks.proxmox.client import Client
from blocks.proxmox.errors import NotFound
from blocks.proxmox.inventory import vmid_is_free
from tasks.errors import StageError
from tasks.found import READERS, FoundGuest


@dataclass(frozen=True)
class Elsewhere:
    """A configuration of a guest that is not its present one. ``when``: which, in words."""

    guest: FoundGuest
    when: str
    config: Mapping[str, Any]

    def __str__(self) -> str:
        """How messages name it."""
        return f"{self.guest}, {self.when},"


def read_elsewhere(client: Client, guests: Sequence[FoundGuest]) -> tuple[Elsewhere, ...]:
    """What machines have in use until they stop, and what their snapshots keep.

    An eject of a running machine may wait for its stop; its configuration shows the drive empty by
    then. ``parent`` in a configuration tells of no snapshot where the one it stood on was deleted
    and others are left, so each machine is asked: one call for each, but for templates, one more
    for each that is not stopped, and one for each snapshot. Several at once. A machine that goes
    meanwhile names nothing. Raises ProxmoxError, StageError where one is moved meanwhile.
    """

    def read(guest: FoundGuest) -> tuple[Elsewhere, ...]:
        try:
            return (*_in_use(client, guest), *_snapshots(client, guest))
        except NotFound:
            if vmid_is_free(client, guest.row.vmid):
                return ()
        raise StageError(
            f"{guest} was moved or changed while it was looked at",
            advice="nothing was changed; run the same again",
        )

    machines = [guest for guest in guests if guest.row.kind == "qemu"]
    with ThreadPoolExecutor(READERS) as pool:
        return tuple(each for found in pool.map(read, machines) for each in found)


def _in_use(client: Client, guest: FoundGuest) -> Iterator[Elsewhere]:
    # A guest that was just made has no status in the cluster's list yet.
    if guest.row.status != "stopped":
        yield Elsewhere(guest, "until it stops", client.get(f"{guest.path}/config", current=1))


def _snapshots(client: Client, guest: FoundGuest) -> Iterator[Elsewhere]:
    if guest.row.template:
        return
    for row in client.get(f"{guest.path}/snapshot"):
        name = str(row["name"])
        if name != "current":
            config = client.get(f"{guest.path}/config", snapshot=name)
            yield Elsewhere(guest, f"in its snapshot {name}", config)
