"""Existing clones that differ from what is declared: told, and on request changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.plans import Change
from blocks.proxmox.properties import storage_of
from blocks.proxmox.properties.cloudinit import HIDDEN
from blocks.units import format_size
from tasks.cloudinit.carry import Carried, carry, sweep
from tasks.cloudinit.changes import cloud_init_changes
from tasks.diff import ANEW, diff
from tasks.drives import in_turn
from tasks.errors import StageError, keeping_state
from tasks.iso.checks import RenderError
from tasks.journal import entry_for, write_entry
from tasks.live import Live, config_path, is_running, unless_changed
from tasks.session import Session
from tasks.stage import Outcome, done, unchanged
from tasks.template.clone_source import source_of
from tasks.template.clone_wanted import Tailoring, as_cloned, in_order
from tasks.update import update_params

AT_BOOT = "cloud-init sees it at the next boot"


def differences(here: Session, guest: Guest, live: Live) -> tuple[Change, ...]:
    """How an existing clone differs from what is declared; empty when it does not. No call.

    What somebody added by hand is no difference, and neither is a password, which a configuration
    does not show. Raises PropertyError for a value that cannot be read.
    """
    return (
        *_kind(guest, live.config),
        *diff(as_cloned(here, guest), live.config),
        *told_differences(here, guest, live),
    )


def told_differences(here: Session, guest: Guest, live: Live) -> Iterator[Change]:
    """What cloud-init is told otherwise than declared. No call. Raises StageError."""
    try:
        found = cloud_init_changes(guest, live.config, env=here.environment.name)
    except RenderError as error:
        raise StageError(
            f"{guest.label}: {error.key} {error.problem}", advice="correct it in the manifest"
        ) from None
    for key, before, after in found:
        kind = "add" if before is None else "remove" if after is None else "change"
        yield Change(kind=kind, target=key, before=before, after=after, note=AT_BOOT)


def _kind(guest: Guest, config: Mapping[str, Any]) -> Iterator[Change]:
    """Linked or full, where the names of the volumes tell."""
    source = source_of(guest)
    for disk in guest.disks:
        volume = str(config.get(disk.slot, "")).partition(",")[0]
        linked = is_linked(volume)
        if linked is None or linked is not source.full:
            continue
        yield Change(
            kind="change",
            target=f"{disk.slot}.clone",
            before="linked" if linked else "full",
            after="full" if linked else "linked",
            in_place=False,
            note=ANEW,
        )


def is_linked(volume: str) -> bool | None:
    """Whether a volume depends on another one, None where its name does not tell.

    Recorded in 07-clones and 13-lvmthin-vm: a file's name has its base's before it, the name of a
    thin volume tells nothing.
    """
    *before, _ = volume.partition(":")[2].split("/")
    if not storage_of(volume) or not before:
        return None
    return any(part.startswith("base-") for part in before)


def report(guest: Guest, changes: tuple[Change, ...]) -> Outcome:
    """An existing clone that stays as it is: its differences as warnings."""
    if not changes:
        return unchanged(f"VM {guest.vmid} is as declared")
    warnings = [f"differs from the manifest: {change}" for change in changes]
    if any(change.in_place for change in changes):
        warnings.append("run it with --reconcile to change what can be changed in place")
    return unchanged(f"VM {guest.vmid} stays as it is", warnings=warnings)


def reconcile(here: Session, guest: Guest) -> Outcome:
    """Change what differs and can be changed in place; tell the rest, and what waits for a restart.

    The values before go to the run's journal, but for a password. Raises StageError, ProxmoxError.
    """
    live = here.require(guest)
    changes = differences(here, guest, live)
    possible = [str(change) for change in changes if change.in_place]
    stuck = [f"cannot be changed in place: {change}" for change in changes if not change.in_place]
    carried = carry(here, guest, live.config)
    wanted = _wanted(here, guest, live, carried)
    if not wanted:
        detail = f"VM {guest.vmid} stays as it is" if stuck else f"VM {guest.vmid} is as declared"
        return unchanged(detail, warnings=[*stuck, *carried.warnings, *sweep(here, guest, carried)])
    write(here, guest, live, wanted)
    waits = _after(here, guest, carried)
    # Documents that were in use stay for a rollback of this run; the next run sweeps them.
    detail = "; ".join(possible or ["cloud-init is told another password"])
    return done(detail, warnings=[*stuck, *carried.warnings, *waits])


def _wanted(here: Session, guest: Guest, live: Live, carried: Carried) -> Tailoring:
    update = update_params(as_cloned(here, guest), live.config)
    put = in_order(guest, {**update.put, **carried.values})
    return Tailoring(put, (*update.delete, *carried.delete), update.resizes)


def write(here: Session, guest: Guest, live: Live, wanted: Tailoring) -> None:
    """Write down what is about to change, change it, and write down how it is then.

    Raises StageError, Conflict where somebody wrote in between, or another ProxmoxError.
    """
    # What is shown as asterisks must not be written back as such.
    touched = [key for key in (*wanted.put, *wanted.delete) if key != HIDDEN]
    grown = tuple(slot for slot, _ in wanted.resizes)
    entry = entry_for(guest, {key: live.config.get(key) for key in touched}, grown=grown)
    with keeping_state():
        write_entry(here.environment.name, here.run.run_id, entry)
    send(here, guest, live, wanted)
    now = here.require(guest).config
    after = {key: now.get(key) for key in touched}
    with keeping_state():
        ended = entry.model_copy(update={"after": after})
        write_entry(here.environment.name, here.run.run_id, ended)


def send(here: Session, guest: Guest, live: Live, wanted: Tailoring) -> None:
    """The calls: one write of the configuration (two with a boot order), one for each disk.

    Raises Conflict where somebody wrote since ``live``, or another ProxmoxError.
    """
    changed: dict[str, Any] = dict(wanted.put)
    if wanted.delete:
        changed["delete"] = ",".join(wanted.delete)
    if changed:
        for part in in_turn(changed | unless_changed(live.config)):
            here.client.run("PUT", config_path(guest), **part)
    for slot, size in wanted.resizes:
        path = f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/resize"
        here.client.run("PUT", path, disk=slot, size=format_size(size))


def _after(here: Session, guest: Guest, carried: Carried) -> list[str]:
    """What a running guest does not have yet; its cloud-init drive is made anew. Up to three calls.

    A stopped one has all of it, and its drive is made anew when it starts.
    """
    if not is_running(here.client, guest):
        return []
    path = f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}"
    told = []
    if carried.changes and guest.cloud_init is not None:
        if guest.cloud_init.method != "seed":
            here.client.run("PUT", f"{path}/cloudinit")
        told.append("cloud-init is told anew, and sees it at the next boot")
    waits = [
        str(row["key"])
        for row in here.client.get(f"{path}/pending")
        if "pending" in row or row.get("delete")
    ]
    if waits:
        told.append(f"waits until it is stopped and started: {', '.join(waits)}")
    return told
