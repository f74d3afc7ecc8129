"""What is declared against what is there: one bulk read, and the config of each guest."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Firmware, Guest
from blocks.manifest.plans import Action, Plan
from blocks.proxmox.client import Client
from blocks.proxmox.errors import NotFound, PermissionDenied
from blocks.proxmox.inventory import GuestRow, Inventory, guest_config, read_inventory
from tasks.found import READERS
from tasks.live import Live
from tasks.plan import make_plan

TO_BUILD = frozenset({Action.CREATE, Action.RESUME})


@dataclass(frozen=True)
class Survey:
    """An environment beside the cluster that is to hold it.

    ``lives`` and ``rows`` have the guests that exist, by label. ``environment`` holds only the
    guests that were asked for.
    """

    environment: Environment
    inventory: Inventory
    plan: Plan
    lives: dict[str, Live]
    rows: dict[str, GuestRow]

    def building(self) -> tuple[Guest, ...]:
        """The guests that are to be created."""
        return tuple(
            guest
            for guest in self.environment.guests
            if self.plan.guest(guest.label).action is Action.CREATE
        )

    def changing(self) -> tuple[Guest, ...]:
        """The guests that are to be changed, each with only those parts that change."""
        return tuple(
            _changed_parts(guest, {change.target for change in plan.changes})
            for guest in self.environment.guests
            if (plan := self.plan.guest(guest.label)).action is Action.UPDATE
        )

    def to_start(self, label: str) -> bool:
        """Whether the guest is there and finished, but does not run although it should."""
        row = self.rows.get(label)
        finished = self.plan.guest(label).action in {Action.UNCHANGED, Action.UPDATE}
        wanted = self.environment.guest(label).autostart
        return finished and wanted and row is not None and row.status != "running"

    @property
    def nothing_to_do(self) -> bool:
        """Everything is as declared, and runs."""
        return self.plan.changes_nothing and not any(
            self.to_start(guest.label) for guest in self.environment.guests
        )


def _changed_parts(guest: Guest, targets: set[str]) -> Guest:
    """The guest with the disks that are added, the cards that change, and cores that change."""
    slots = {target.partition(".")[0] for target in targets}
    few = {} if slots & {"cores", "sockets"} else {"cores": 1, "sockets": 1}
    return guest.model_copy(
        update={
            "source": None,
            "disks": tuple(disk for disk in guest.disks if disk.slot in targets),
            "nics": tuple(nic for nic in guest.nics if nic.slot in slots),
            "firmware": Firmware(),
            "memory": guest.memory if "memory" in slots else 0,
            **few,
        }
    )


def chosen(environment: Environment, only: Sequence[str] | None) -> Environment:
    """The environment with only the guests asked for, in its own order. Raises UnknownGuest."""
    if not only:
        return environment
    labels = {environment.guest(name).label for name in only}
    guests = tuple(guest for guest in environment.guests if guest.label in labels)
    return environment.model_copy(update={"guests": guests})


def read_declared(
    client: Client, environment: Environment, inventory: Inventory
) -> tuple[dict[str, GuestRow], dict[str, Live]]:
    """The declared guests that exist, by label: their rows, and what of them can be read.

    One call for each, several at once. Raises ProxmoxError.
    """
    by_id = {row.vmid: row for row in inventory.guests}
    rows = {g.label: by_id[g.vmid] for g in environment.guests if g.vmid in by_id}
    online = inventory.online()

    def read(row: GuestRow) -> Live | None:
        try:
            return Live(guest_config(client, row)) if row.node in online else None
        except (NotFound, PermissionDenied):
            return None

    with ThreadPoolExecutor(READERS) as pool:
        lives = dict(zip(rows, pool.map(read, rows.values()), strict=True))
    return rows, {label: live for label, live in lives.items() if live is not None}


def survey(
    client: Client,
    environment: Environment,
    *,
    cluster: str | None = None,
    inventory: Inventory | None = None,
) -> Survey:
    """Read the cluster and plan. One call, and one for each declared guest that exists.

    ``inventory``: where it was read just now. Raises ProxmoxError where the cluster cannot be read.
    """
    inventory = inventory or read_inventory(client)
    rows, found = read_declared(client, environment, inventory)
    configs = {environment.guest(label).vmid: live.config for label, live in found.items()}
    plan = make_plan(environment, inventory, configs, cluster=cluster)
    return Survey(environment, inventory, plan, found, rows)
