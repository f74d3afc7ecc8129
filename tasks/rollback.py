"""Undo a run: what it made goes, what it changed is set back, nothing else is touched.

Everything is found by asking the cluster for the run's marks, so it works after a ``kill -9`` and
from another machine; only changes in place need the run's journal. Safe to repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark, read_mark
from blocks.manifest.recipe import TEMPLATE
from blocks.model import Model
from blocks.proxmox.client import Client
from blocks.proxmox.errors import AlreadyExists, NotFound, ProxmoxError, TaskFailed
from blocks.proxmox.inventory import Inventory, find_guest, guest_path, read_inventory
from tasks.cloudinit.snippets import FoundSnippet, all_snippets, delete_snippet
from tasks.destroy import Target, delete_seed, drives_with, refuse_known_users, remove
from tasks.drives import in_turn, writes_drive
from tasks.found import (
    FoundGuest,
    FoundSeed,
    Looked,
    all_guests,
    all_seeds,
    look,
    of_environment,
    removal_order,
)
from tasks.holding import hold, let_go
from tasks.journal import Entry, close_journal, read_journal
from tasks.settling import half_made, moved, settle


class Undone(Model):
    """What a rollback did: names for people, one line each, in order."""

    run_id: str
    guests: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    snippets: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to undo."""
        return not (self.guests or self.seeds or self.snippets or self.restored or self.errors)


@dataclass(frozen=True)
class Traces:
    """What an environment's runs have made, as far as it is still there."""

    guests: tuple[FoundGuest, ...]
    seeds: tuple[FoundSeed, ...]

    def of(self, run_id: str) -> tuple[tuple[FoundGuest, ...], tuple[FoundSeed, ...]]:
        """The guests and seeds of one run, as far as a rollback removes them."""
        guests = tuple(
            guest
            for guest in self.guests
            if _mark(guest).run == run_id and not _mark(guest).published
        )
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
    declared: Sequence[Guest] = (),
    keep_ready: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> Undone:
    """Undo everything that the run made, in reverse order; errors are gathered, not raised.

    ``declared``: the guests of the manifest, which the run may still be creating, and whose nodes
    must be seen. ``keep_ready`` leaves the guests alone whose installation or change the run has
    finished, for runs that were to continue on errors. A published template stays in any case.
    Raises ProxmoxError only where the cluster cannot be read at all.
    """
    settle(client, declared)
    errors: list[str] = []
    notes: list[str] = []
    entries = read_journal(env, run_id)
    if keep_ready:
        entries = tuple(entry for entry in entries if entry.after is None)
    # First, since a guest that stays may use a disk of one that goes.
    restored = restore(client, env, entries, errors, notes, say)
    inventory = read_inventory(client)
    looked = look(client, inventory)
    errors += blind_spots(inventory, looked, declared)
    errors += half_made(looked, declared)
    errors += moved(client, inventory, looked, declared)
    made = of_environment(looked.guests, env, run_id)
    kept = [g for g in made if _mark(g).published or (keep_ready and _mark(g).ready)]
    mine = [g for g in reversed(made) if g not in kept]
    doomed = removal_order([held for g in mine if (held := hold(client, g, notes, errors))])
    sharing = {g.vmid for g in declared if any(disk.shared for disk in g.disks)}
    numbers = {g.row.vmid for g in doomed}
    stays = [g for g in looked.guests if g.row.vmid not in numbers]
    removed: list[FoundGuest] = []
    for guest in doomed:
        try:
            refuse_known_users(guest, tuple(stays))
            remove(client, Target.of(guest, shares=guest.row.vmid in sharing), force=True)
        except ProxmoxError as error:
            errors.append(f"{guest}: {error.message}")
            stays.append(guest)
            if isinstance(error, TaskFailed):
                let_go(client, guest)
        else:
            say(f"removed {guest}")
            removed.append(guest)
    # A template that was taken over has what earlier runs gave it.
    taken = tuple(guest for guest in removed if _mark(guest).guest == TEMPLATE)
    media = tuple(
        seed
        for seed in all_seeds(client, inventory, env)
        if seed.name.run == run_id or drives_with(seed.volume.volid, taken)
    )
    seeds, more, failures = remove_seeds(client, env, media, tuple(stays), say)
    notes += more
    errors += failures
    snippets: tuple[str, ...] = ()
    if any(guest.cloud_init and guest.cloud_init.method == "snippets" for guest in declared):
        written = tuple(
            snippet
            for snippet in all_snippets(client, inventory, env)
            if snippet.name.run == run_id or _told_by(snippet, taken)
        )
        snippets, failures = remove_snippets(client, env, written, tuple(stays), say)
        errors += failures
    if not errors:
        close_journal(env, run_id)
    return Undone(
        run_id=run_id,
        guests=tuple(map(str, removed)),
        seeds=seeds,
        snippets=snippets,
        restored=restored,
        kept=tuple(map(str, kept)),
        notes=tuple(notes),
        errors=tuple(errors),
    )


def blind_spots(inventory: Inventory, looked: Looked, declared: Sequence[Guest]) -> list[str]:
    """What could not be looked at although the run may have made something there."""
    offline = {node.name for node in inventory.nodes if not node.online}
    nodes = {guest.node for guest in declared} & offline
    vmids = {guest.vmid for guest in declared}
    nodes |= {row.node for row in looked.hidden if row.vmid in vmids and row.node in offline}
    hidden = [row for row in looked.hidden if row.vmid in vmids and row.node not in offline]
    again = "run the rollback again when it is back"
    return [
        *(
            f"node {node} is offline, what is there could not be seen; {again}"
            for node in sorted(nodes)
        ),
        *(f"VM {row.vmid} on {row.node} may not be seen by this caller" for row in hidden),
    ]


def remove_seeds(
    client: Client,
    env: str,
    found: Sequence[FoundSeed],
    stays: tuple[FoundGuest, ...],
    say: Callable[[str], None],
) -> tuple[tuple[str, ...], list[str], list[str]]:
    """Delete the run's seeds, but for those of guests that stay. Returns volumes, notes, errors.

    A seed that a guest without a mark has in a drive stays, too, and is told of. All generations of
    a template have one label: what is in the drive of none is that of one that goes, unless another
    run has an unfinished one, and may be about to put it there.
    """
    notes: list[str] = []
    errors: list[str] = []
    labels = _labels(stays, env)
    seeds: list[str] = []
    for seed in found:
        volid = seed.volume.volid
        holders = drives_with(volid, stays)
        strangers = [guest for guest in holders if guest.mark is None]
        if strangers:
            notes.append(f"{volid} stays: {strangers[0]} has it in a drive, and carries no mark")
        label = seed.name.guest
        if strangers or label in labels or (label == TEMPLATE and holders):
            continue
        try:
            delete_seed(client, seed)
        except ProxmoxError as error:
            errors.append(f"{volid}: {error.message}")
        else:
            say(f"removed {volid}")
            seeds.append(volid)
    return tuple(seeds), notes, errors


def remove_snippets(
    client: Client,
    env: str,
    found: Sequence[FoundSnippet],
    stays: tuple[FoundGuest, ...],
    say: Callable[[str], None],
) -> tuple[tuple[str, ...], list[str]]:
    """Delete the run's snippets, but for those of guests that stay. Returns volumes and errors.

    One that any guest which stays is told by is never deleted.
    """
    labels = _labels(stays, env)
    gone: list[str] = []
    errors: list[str] = []
    for snippet in found:
        if _told_by(snippet, stays) or snippet.name.guest in labels:
            continue
        try:
            delete_snippet(client, snippet)
        except ProxmoxError as error:
            errors.append(f"{snippet.volid}: {error.message}")
        else:
            say(f"removed {snippet.volid}")
            gone.append(snippet.volid)
    return tuple(gone), errors


def restore(
    client: Client,
    env: str,
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
            done, left = set_back(client, env, entry)
        except NotFound:
            notes.append(f"{name} does not exist any more")
            continue
        except AlreadyExists as error:
            notes.append(f"{name}: {error.message}")
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


def set_back(client: Client, env: str, entry: Entry) -> tuple[list[str], list[str]]:
    """Write the keys as they were; disks that the run added are detached and deleted.

    Returns the keys that were set back, and those that somebody has changed since. Raises
    NotFound where the guest is gone, AlreadyExists where another has its number.
    """
    path = _config_of(client, entry)
    now = client.get(path)
    mark = read_mark(str(now.get("description", "")))
    if mark is None or (mark.env, mark.guest, mark.vmid) != (env, entry.label, entry.vmid):
        raise AlreadyExists("it is another guest by now, and stays as it is")
    left = [k for k, v in (entry.after or {}).items() if now.get(k) != v]
    before = {k: v for k, v in entry.before.items() if k not in left and now.get(k) != v}
    values: dict[str, Any] = {k: v for k, v in before.items() if v is not None}
    boot = entry.before.get("boot")
    if boot is not None and "boot" not in left and writes_drive(values):
        values["boot"] = boot  # an ISO put back is appended to the order (12b-hardware-running)
    added = [k for k, v in before.items() if v is None and k in now]
    digest = {"digest": now["digest"]} if "digest" in now else {}
    for part in in_turn(values):
        client.run("PUT", path, **part, **digest)
        digest = {}
    if added:
        volumes = {str(now[key]).partition(",")[0] for key in added}
        client.run("PUT", path, delete=",".join(added), **digest)
        after = client.get(path)
        unused = [
            key
            for key, value in after.items()
            if key.startswith("unused") and str(value) in volumes
        ]
        if unused:
            client.run("PUT", path, delete=",".join(unused), digest=after.get("digest"))
    return [*values, *added], left


def _config_of(client: Client, entry: Entry) -> str:
    """Path of the guest's configuration, on whichever node it is now. Raises NotFound."""
    row = find_guest(client, entry.vmid)
    return f"{guest_path(row.kind, row.node, row.vmid)}/config"


def _labels(stays: tuple[FoundGuest, ...], env: str) -> frozenset[str]:
    """Guests of the environment whose files stay, whether they use them yet or not.

    Of templates only an unfinished one: all generations have one label.
    """
    marks = [mark for guest in of_environment(stays, env) if (mark := guest.mark)]
    return frozenset(mark.guest for mark in marks if mark.guest != TEMPLATE or not mark.ready)


def _told_by(snippet: FoundSnippet, guests: Sequence[FoundGuest]) -> bool:
    return any(snippet.volid in str(guest.live.config.get("cicustom")) for guest in guests)


def _mark(guest: FoundGuest) -> Mark:
    if guest.mark is None:
        raise ValueError(f"{guest} carries no mark")
    return guest.mark
