"""Stages clone, adjust and start: a clone of the template, as declared, running."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final

from blocks.manifest.guest import Guest
from blocks.manifest.mark import marked
from blocks.proxmox.client import api_path
from blocks.proxmox.errors import AlreadyExists, ProxmoxError, TaskFailed
from blocks.proxmox.inventory import read_inventory
from blocks.proxmox.waiting import TaskResult, upid_node
from tasks.cloudinit.carry import carry, sweep
from tasks.errors import StageError
from tasks.live import Live, config_path, is_running, unless_changed
from tasks.progress import Meter
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, StageCancelled, done, stage, unchanged
from tasks.template.clone_cleanup import clean_up
from tasks.template.clone_source import check_source, clone_params, source_of, template_of
from tasks.template.clone_wait import CLONE_SECONDS, settled
from tasks.template.clone_wanted import tailoring, unreachable
from tasks.template.reconcile import differences, reconcile, report, send

__all__ = ["adjust", "clean_up", "clone", "start"]

_DRIVE: Final = re.compile(r"create full clone of drive (?P<slot>\w+) ")
_PERCENT: Final = re.compile(r"\((?P<percent>\d{1,3})(?:\.\d+)?%\)")


@stage("clone", retries=3)
def clone(run: RunRef, node: str) -> Outcome:
    """Clone the template, with the clone's own mark, unless the clone is there and ours."""
    here = session(run)
    guest = here.guest(node)
    live = _settled(here, guest)
    if live is not None:
        return unchanged(f"VM {guest.vmid} exists")
    check_source(here, guest)
    return _make(here, guest)


def _settled(here: Session, guest: Guest) -> Live | None:
    """The guest, if it exists; waited for while it is being cloned. Raises AlreadyExists."""
    live = settled(here, guest)
    here.remember(guest, live)
    if live is not None:
        here.require_ours(guest, live)
    return live


def _make(here: Session, guest: Guest) -> Outcome:
    """Clone and wait. A failed clone leaves nothing on the cluster (07-clones)."""
    source, template = source_of(guest), template_of(here, guest)
    path = f"/nodes/{template.node}/qemu/{template.vmid}/clone"
    try:
        upid = here.client.post(path, **clone_params(here, guest))
    except AlreadyExists:
        return _taken(here, guest)
    except ProxmoxError as error:
        if error.advice is None and not source.full:
            error.advice = (
                f"if the storage of VM {template.vmid} knows no linked clones, declare "
                f"{guest.label} as a full one"
            )
        raise
    # A linked clone is made in no time: its log would only cost calls.
    result = _watched(here, upid) if source.full else here.client.wait(upid, timeout=CLONE_SECONDS)
    here.remember(guest, None)
    how = "full" if source.full else "linked"
    detail = f"VM {guest.vmid} on {guest.node}, {how} clone of {template.vmid}"
    return done(detail, warnings=result.warnings)


def _watched(here: Session, upid: str) -> TaskResult:
    """Wait and say how far it is. Where the run stops, so does the clone: a task of our own."""
    meter = Meter()
    slot, percent = "disks", 0

    def read(line: str) -> None:
        nonlocal slot, percent
        if found := _DRIVE.match(line):
            slot, percent = found["slot"], 0
        if found := _PERCENT.search(line):
            percent = int(found["percent"])
        meter.percent(f"copying {slot}", percent)

    try:
        return here.client.wait(upid, timeout=CLONE_SECONDS, on_log=read)
    except StageCancelled:
        with contextlib.suppress(ProxmoxError):
            here.client.delete(api_path("nodes", upid_node(upid), "tasks", upid))
        raise


def _taken(here: Session, guest: Guest) -> Outcome:
    """The number is taken, and not by a guest on the declared node when we last looked there.

    Until a clone for another node is whole it is on the node of its template.
    """
    row = read_inventory(here.client).guest(guest.vmid)
    if row is None:
        raise AlreadyExists(
            f"number {guest.vmid} is taken by a guest that this user may not see",
            advice=f"give {guest.label} another vm_id",
        )
    there = guest.model_copy(update={"node": row.node, "kind": row.kind})
    live = settled(here, there)
    if live is not None:
        here.require_ours(there, live)
    if row.node == guest.node or live is None:
        live = _settled(here, guest)
        if live is not None:
            return unchanged(f"VM {guest.vmid} exists")
        raise StageError(f"VM {guest.vmid} was just removed", advice="run the same again")
    raise StageError(
        f"VM {guest.vmid} is on node {row.node}, declared is {guest.node}",
        advice=f"migrate it, or give {guest.label} the node {row.node}",
    )


@stage("adjust", retries=3)
def adjust(run: RunRef, node: str) -> Outcome:
    """Make a new clone what is declared for it; tell how a finished one differs.

    A finished one is only changed where the run has the option ``reconcile``.
    """
    here = session(run)
    guest = here.guest(node)
    live = _finished(here, guest)
    if live is None:
        return _tailor(here, guest)
    if here.run.options.get("reconcile"):
        return reconcile(here, guest)
    return report(guest, differences(here, guest, live))


def _finished(here: Session, guest: Guest) -> Live | None:
    """The guest as this run has read it, if it was finished before; else None. At most one call."""
    live = here.live(guest)
    if live is None or not live.ready or not here.owns(guest, live.mark):
        return None
    return live


def _tailor(here: Session, guest: Guest) -> Outcome:
    live = here.require(guest)
    stuck = unreachable(here, guest, live.config)
    if stuck:
        raise StageError(
            f"the template does not allow what is declared: {'; '.join(map(str, stuck))}",
            advice=f"declare {guest.label} as its template is, or build the template anew",
        )
    carried = carry(here, guest, live.config)
    wanted = tailoring(here, guest, live.config, carried)
    if not wanted:
        return unchanged("as declared", warnings=carried.warnings)
    send(here, guest, live, wanted)
    left = sweep(here, guest, carried)
    keys = [*wanted.put, *(slot for slot, _ in wanted.resizes), *wanted.delete]
    return done(", ".join(dict.fromkeys(keys)), warnings=[*carried.warnings, *left])


@stage("start", retries=3)
def start(run: RunRef, node: str) -> Outcome:
    """Start a new clone, unless it is declared not to be, and mark it as finished.

    Whose it is is read anew. One that was finished before is only started where the run has the
    option ``reconcile``.
    """
    here = session(run)
    guest = here.guest(node)
    if _finished(here, guest) is not None:
        return _again(here, guest)
    live = here.require(guest)
    outcome = done("not to be started")
    if guest.autostart:
        outcome = _started(here, guest)
        # The start changes the configuration, and so may somebody else meanwhile.
        live = here.require(guest)
    _finish(here, guest, live)
    return outcome


def _again(here: Session, guest: Guest) -> Outcome:
    """Start one that was finished before, and that somebody stopped. Two calls at most."""
    if not here.run.options.get("reconcile") or not guest.autostart:
        return unchanged("was finished before")
    here.require(guest)
    return unchanged("runs") if is_running(here.client, guest) else _started(here, guest)


def _started(here: Session, guest: Guest) -> Outcome:
    if is_running(here.client, guest):
        return done("runs")
    try:
        result = here.client.run("POST", f"/nodes/{guest.node}/qemu/{guest.vmid}/status/start")
    except TaskFailed:
        # Another call may have started it just before: one of ours whose answer was lost.
        if not is_running(here.client, guest):
            raise
        return done("runs")
    return done("started", warnings=result.warnings)


def _finish(here: Session, guest: Guest, live: Live) -> None:
    """Mark it as finished. Raises Conflict where somebody wrote since it was read."""
    if live.mark is None or live.ready:
        return
    text: dict[str, Any] = {
        "description": marked(live.mark.model_copy(update={"ready": True}), live.description)
    }
    here.client.run("PUT", config_path(guest), **text, **unless_changed(live.config))
    here.remember(guest, None)
