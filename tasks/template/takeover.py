"""Two runs about one guest that is not finished: which of them has it.

The guest's mark names the run. Another run takes an unfinished template up by writing itself into
the mark, with the configuration's digest, so that of several who try at once one wins; a rollback
writes into it in the same way before it removes anything. A run that is at work is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark, marked
from blocks.proxmox.errors import AlreadyExists
from tasks.atwork import has_ended, known_worker
from tasks.clock import ahead_of
from tasks.errors import StageError
from tasks.live import Live, config_path, unless_changed
from tasks.session import Session
from tasks.template.following import sees_all_tasks, wait_for_earlier
from tasks.template.generations import created

QUIET: Final = 600.0
"""Seconds without a task on its guest after which a run of another machine counts as dead.

The longest pauses of a run at work are those before it tries again, and the wait for an upload of
another guest.
"""


def take_over(here: Session, guest: Guest, live: Live) -> Live:
    """The template as this run's own, if it is not finished; as it is now.

    No call where this run has it. Raises StageError where another run is at work on it, or where it
    is being removed, AlreadyExists where another has taken it from this one, Conflict where
    somebody wrote in between.
    """
    mark = live.mark
    if mark is None or mark.ready:
        return live
    if mark.run == here.run.run_id and not mark.undone:
        here.held.add(guest.vmid)
        return live
    if guest.vmid in here.held:
        raise AlreadyExists(
            f"VM {guest.vmid} ({guest.name}) was taken over by run {mark.run}",
            advice="let that run end; it finishes the template",
        )
    refuse_busy(here, guest, live)
    if wait_for_earlier(here.client, guest, None, f"waiting for a task that run {mark.run} left"):
        return take_over(here, guest, here.require(guest))
    text = marked(here.mark(guest), live.description)
    here.client.put(config_path(guest), description=text, **unless_changed(live.config))
    here.held.add(guest.vmid)
    return here.require(guest)


def refuse_busy(here: Session, guest: Guest, live: Live) -> None:
    """Refuse an unfinished guest that another run is at work on. Four calls at most.

    Certain where the run is one of this machine, or where Prefect knows that it has ended; else it
    is judged by the tasks on the guest, and refused where this caller may not see those. Raises
    StageError.
    """
    mark = live.mark
    if mark is None or mark.ready:
        return
    if mark.undone:
        raise StageError(
            f"{_named(guest)} is being removed by the rollback of run {mark.run}",
            advice="wait for its end, then run the same again; if it broke off, finish it by "
            f"`{_rollback(here, mark)}`",
        )
    if mark.run == here.run.run_id:
        return
    worker = known_worker(here.environment.name, mark.run)
    if worker is not None:
        if worker.alive:
            raise StageError(
                f"{_named(guest)} is being made by run {mark.run}, at work on this machine since "
                f"{_clock(worker.since)}",
                advice="let that run end, or stop it; then run the same again",
            )
        return
    if has_ended(here.environment.name, mark.run):
        return
    seen = _last_seen(here, guest, live, mark)
    if time.time() - seen < QUIET:
        raise StageError(
            f"{_named(guest)} is being made by run {mark.run}, begun at "
            f"{_clock(created(live.config) or seen)} and last seen at work at {_clock(seen)}",
            advice=f"let that run end, then run the same again; if it is dead, it is taken up from "
            f"{_clock(seen + QUIET)} on, or removed at once by `{_rollback(here, mark)}`",
        )


def refuse_busy_guests(here: Session, guests: Iterable[Guest], lives: dict[str, Live]) -> None:
    """Refuse where another run is at work on one of these, as far as they exist and are ours.

    At most four calls for each that is not finished. Raises StageError.
    """
    for guest in guests:
        live = lives.get(guest.label)
        if live is not None and here.owns(guest, live.mark):
            refuse_busy(here, guest, live)


def _last_seen(here: Session, guest: Guest, live: Live, mark: Mark) -> float:
    """When something was last done to the guest, in seconds since 1970; now, if it is just now.

    Told by this machine's clock, however the node's goes. Raises StageError where the tasks of
    others cannot be seen: the caller's own tell nothing of what the run of another does.
    """
    if not sees_all_tasks(here.client, guest.node):
        raise StageError(
            f"{_named(guest)} is being made by run {mark.run}, and whether that is at work cannot "
            f"be seen: it takes Sys.Audit on /nodes/{guest.node}",
            advice="let that run end, or take a token that has it; if it is dead, remove what it "
            f"made by `{_rollback(here, mark)}`",
        )
    rows: list[dict[str, Any]] = here.client.get(
        f"/nodes/{guest.node}/tasks", vmid=guest.vmid, source="all"
    )
    ends = [float(row["endtime"]) for row in rows if row.get("endtime")]
    if len(ends) < len(rows):
        return time.time()
    return max(ends, default=float(created(live.config))) + ahead_of(here.client, guest.node)


def _named(guest: Guest) -> str:
    return f"VM {guest.vmid} ({guest.name}) on {guest.node}"


def _rollback(here: Session, mark: Mark) -> str:
    return f"python -m flows.rollback {here.run.manifest} --run {mark.run}"


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
