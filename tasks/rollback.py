"""Undo a run: what it made goes, what it changed is set back, nothing else is touched.

Everything is found by asking the cluster for the run's marks, so it works after a ``kill -9`` and
from another machine; only changes in place need the run's journal. Safe to repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from blocks.manifest.mark import Mark
from blocks.model import Model
from blocks.proxmox.client import Client
from blocks.proxmox.errors import NotFound, ProxmoxError
from blocks.proxmox.inventory import read_inventory
from tasks.destroy import delete_seed, destroy_found
from tasks.drives import in_turn
from tasks.found import FoundGuest, FoundSeed, all_guests, all_seeds, of_environment, removal_order
from tasks.journal import Entry, close_journal, read_journal

# Calls that a dead client left running on the cluster are waited for, this long each (seconds).
# A seed ISO is copied in no time; a long copy is somebody else's.
SETTLE_SECONDS = 600.0
SETTLE_COPY_SECONDS = 30.0


class Undone(Model):
    """What a rollback did: names for people, one line each, in order."""

    run_id: str
    guests: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to undo."""
        return not (self.guests or self.seeds or self.restored or self.errors)


@dataclass(frozen=True)
class Traces:
    """What an environment's runs have made, as far as it is still there."""

    guests: tuple[FoundGuest, ...]
    seeds: tuple[FoundSeed, ...]

    def of(self, run_id: str) -> tuple[tuple[FoundGuest, ...], tuple[FoundSeed, ...]]:
        """The guests and seeds of one run."""
        guests = tuple(guest for guest in self.guests if _mark(guest).run == run_id)
        return guests, tuple(seed for seed in self.seeds if seed.name.run == run_id)


def traces(client: Client, env: str) -> Traces:
    """Every guest and seed that carries the environment's mark. Raises ProxmoxError."""
    inventory = read_inventory(client)
    guests = of_environment(all_guests(client, inventory), env)
    return Traces(guests, all_seeds(client, inventory, env))


def undo_run(
    client: Client,
    env: str,
    run_id: str,
    *,
    vmids: frozenset[int] = frozenset(),
    keep_ready: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> Undone:
    """Undo everything that the run made, in reverse order; errors are gathered, not raised.

    ``vmids``: the guests that the run may still be creating, which are waited for.
    ``keep_ready`` leaves the guests alone whose installation or change the run has finished, for
    runs that were to continue on errors. Raises ProxmoxError only where the cluster cannot be
    read at all.
    """
    settle(client, vmids)
    errors: list[str] = []
    notes: list[str] = []
    entries = read_journal(env, run_id)
    if keep_ready:
        entries = tuple(entry for entry in entries if entry.after is None)
    # First, since a guest that stays may use a disk of one that goes.
    restored = restore(client, entries, errors, notes, say)
    inventory = read_inventory(client)
    guests = all_guests(client, inventory)
    made = of_environment(guests, env, run_id)
    kept = [g for g in made if keep_ready and _mark(g).ready]
    doomed = removal_order([g for g in reversed(made) if g not in kept])
    stays = [g for g in guests if g not in doomed]
    gone: list[str] = []
    failed: list[FoundGuest] = []
    for guest in doomed:
        try:
            destroy_found(client, guest, [*stays, *failed], force=True)
        except ProxmoxError as error:
            errors.append(f"{guest}: {error.message}")
            failed.append(guest)
        else:
            say(f"removed {guest}")
            gone.append(str(guest))
    spared = {_mark(g).guest for g in (*kept, *failed)}
    seeds: list[str] = []
    for seed in all_seeds(client, inventory, env, run_id):
        if seed.name.guest in spared:
            continue
        try:
            delete_seed(client, seed)
        except ProxmoxError as error:
            errors.append(f"{seed.volume.volid}: {error.message}")
        else:
            say(f"removed {seed.volume.volid}")
            seeds.append(seed.volume.volid)
    if not errors:
        close_journal(env, run_id)
    return Undone(
        run_id=run_id,
        guests=tuple(gone),
        seeds=tuple(seeds),
        restored=restored,
        kept=tuple(map(str, kept)),
        notes=tuple(notes),
        errors=tuple(errors),
    )


def settle(client: Client, vmids: frozenset[int]) -> None:
    """Wait for the tasks that still work on these guests, or put files on storages.

    A killed client leaves its last call running on the cluster: a guest that is being created
    would appear after the search for marks. How such a task ends does not matter.
    """
    ids = {str(vmid) for vmid in vmids}
    for row in client.get("/cluster/tasks"):
        if row.get("endtime"):
            continue
        copying = row.get("type") == "imgcopy"
        if copying or row.get("id") in ids:
            bound = SETTLE_COPY_SECONDS if copying else SETTLE_SECONDS
            with suppress(ProxmoxError):
                client.wait(row["upid"], timeout=bound)


def restore(
    client: Client,
    entries: Sequence[Entry],
    errors: list[str],
    notes: list[str],
    say: Callable[[str], None],
) -> tuple[str, ...]:
    """Set back what the run changed in place, the last change first."""
    restored: list[str] = []
    for entry in reversed(entries):
        name = f"VM {entry.vmid} ({entry.label})"
        try:
            done, left = set_back(client, entry)
        except NotFound:
            continue
        except ProxmoxError as error:
            errors.append(f"{name}: {error.message}")
            continue
        if done:
            say(f"set back {name}: {', '.join(done)}")
            restored.append(name)
        if left:
            notes.append(f"{name}: {', '.join(left)} was changed since and stays so")
        if entry.grown:
            notes.append(f"{name}: {', '.join(entry.grown)} was grown and stays so")
    return tuple(restored)


def set_back(client: Client, entry: Entry) -> tuple[list[str], list[str]]:
    """Write the keys as they were; disks that the run added are detached and deleted.

    Returns the keys that were set back, and those that somebody has changed since.
    """
    path = f"/nodes/{entry.node}/{entry.kind}/{entry.vmid}/config"
    now = client.get(path)
    left = [k for k, v in (entry.after or {}).items() if now.get(k) != v]
    before = {k: v for k, v in entry.before.items() if k not in left and now.get(k) != v}
    values: dict[str, Any] = {k: v for k, v in before.items() if v is not None}
    added = [k for k, v in before.items() if v is None and k in now]
    for part in in_turn(values):
        client.run("PUT", path, **part)
    if added:
        volumes = {str(now[key]).partition(",")[0] for key in added}
        client.run("PUT", path, delete=",".join(added))
        after = client.get(path)
        unused = [
            key
            for key, value in after.items()
            if key.startswith("unused") and str(value) in volumes
        ]
        if unused:
            client.run("PUT", path, delete=",".join(unused))
    return [*values, *added], left


def _mark(guest: FoundGuest) -> Mark:
    if guest.mark is None:
        raise ValueError(f"{guest} carries no mark")
    return guest.mark
