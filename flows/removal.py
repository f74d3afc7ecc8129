"""What `down` would remove: found by marks, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from blocks.manifest.environment import Environment
from blocks.proxmox.client import Client
from blocks.proxmox.inventory import GuestRow, read_inventory
from tasks.findings import Finding, error, warning
from tasks.found import (
    FoundGuest,
    FoundSeed,
    all_seeds,
    look,
    of_environment,
    removal_order,
    uses,
)


@dataclass(frozen=True)
class Removal:
    """Guests in the order in which they go, their seeds, and what forbids or limits it.

    ``undeclared`` are the labels of guests that carry the environment's mark but are no longer in
    its manifest, ``sharing`` the numbers of those that own disks declared as shared.
    """

    guests: tuple[FoundGuest, ...]
    seeds: tuple[FoundSeed, ...]
    undeclared: frozenset[str]
    sharing: frozenset[int]
    findings: tuple[Finding, ...]


def label_of(found: FoundGuest) -> str:
    """The operator's name for a marked guest."""
    return found.mark.guest if found.mark else str(found.row.vmid)


def job_names(guests: Sequence[FoundGuest]) -> dict[int, str]:
    """A name for each guest's part of a run: its label, with its number where several share one.

    Generations of a template do.
    """
    labels = [label_of(found) for found in guests]
    return {
        found.row.vmid: label if labels.count(label) == 1 else f"{label}-{found.row.vmid}"
        for found, label in zip(guests, labels, strict=True)
    }


def plan_removal(
    client: Client,
    everyone: Environment,
    environment: Environment,
    *,
    whole: bool,
    go_on: bool = False,
) -> Removal:
    """What there is to remove. One call, and one for each guest of the cluster.

    ``whole``: the whole environment goes, with the guests that its manifest no longer declares.
    ``go_on``: a guest that cannot be reached forbids nothing to the others.
    """
    inventory = read_inventory(client)
    looked = look(client, inventory)
    guests = looked.guests
    ours = of_environment(guests, everyone.name)
    declared = [guest.label for guest in everyone.guests]
    wanted = {guest.label for guest in environment.guests}
    undeclared = {label_of(found) for found in ours} - set(declared)
    doomed = [f for f in ours if label_of(f) in wanted or (whole and label_of(f) in undeclared)]
    # Clones before what they were made of, also where no volume tells that they depend on it.
    doomed.sort(key=lambda f: (not f.row.template, _place(label_of(f), declared)), reverse=True)
    labels = {label_of(found) for found in doomed} | wanted
    stays = [found for found in guests if found not in doomed]
    seeds = all_seeds(client, inventory, everyone.name)
    sharing = {g.vmid for g in everyone.guests if any(disk.shared for disk in g.disks)}
    return Removal(
        guests=removal_order(doomed),
        seeds=tuple(s for s in seeds if whole or s.name.guest in labels),
        undeclared=frozenset(undeclared if whole else ()),
        sharing=frozenset(sharing),
        findings=(
            *_users(doomed, stays),
            *_unseen(environment, doomed, sharing, looked.hidden, go_on=go_on),
            *_strangers(environment, guests),
        ),
    )


def _place(label: str, declared: Sequence[str]) -> int:
    return declared.index(label) if label in declared else len(declared)


def _users(doomed: Sequence[FoundGuest], stays: Sequence[FoundGuest]) -> Iterator[Finding]:
    for owner in doomed:
        users = [str(user) for user in stays if uses(user, owner)]
        if users:
            yield error(
                f"{owner} owns a disk that is attached to {', '.join(users)}",
                "take those down too, or detach the disk from them first",
                guest=label_of(owner),
            )


def _unseen(
    environment: Environment,
    doomed: Sequence[FoundGuest],
    sharing: Set[int],
    hidden: Sequence[GuestRow],
    *,
    go_on: bool,
) -> Iterator[Finding]:
    """Guests that cannot be read: ours among them stay, and a shared disk may be theirs to use."""
    if not hidden:
        return
    by_id = {row.vmid: row for row in hidden}
    say = warning if go_on else error
    for guest in environment.guests:
        row = by_id.get(guest.vmid)
        if row is not None:
            yield say(
                f"VM {row.vmid} on {row.node} cannot be read: its node is offline, or this caller "
                "may not see it",
                "bring the node back, or take the others down with --continue-on-error",
                guest=guest.label,
            )
    unknown = ", ".join(f"VM {row.vmid} on {row.node}" for row in hidden)
    for owner in doomed:
        if owner.row.vmid in sharing:
            yield error(
                f"{owner} owns shared disks, and whether {unknown} uses them cannot be seen",
                "bring the node back first",
                guest=label_of(owner),
            )


def _strangers(environment: Environment, guests: Sequence[FoundGuest]) -> Iterator[Finding]:
    """A declared id that somebody else's guest has is said, and left alone."""
    by_id = {found.row.vmid: found for found in guests}
    for guest in environment.guests:
        found = by_id.get(guest.vmid)
        mark = found.mark if found else None
        if found is not None and (mark is None or mark.env != environment.name):
            remedy = "remove it in Proxmox VE where it is to go" if mark is None else ""
            why = ": its notes hold no mark of Proxflow" if mark is None else ""
            yield warning(
                f"{found} is not this environment's and stays as it is{why}",
                remedy,
                guest=guest.label,
            )
