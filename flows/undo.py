"""Rollback as a hook: the same for a run that failed, crashed or was cancelled.

A hook may run in another process than its flow. It knows the flow run alone: it takes the run's
parameters, loads the manifest again and asks the cluster for the run's marks.
"""

from __future__ import annotations

import logging
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging import get_logger

from blocks.words import count
from flows.environment import REFUSED, SAID, keep, open_session, run_id_of
from flows.progress import notify
from flows.terminal import command
from tasks.rollback import Undone, undo_run
from tasks.stage import Event, EventState


def undo(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Undo what the run made, unless it was told to keep it or never began to make anything."""
    finished = bool(flow_run.parameters.get("continue_on_error"))
    _undo(flow_run, state, keep_finished=finished)


def undo_template(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """The same for a template: where only clones failed, it stays, and so do the finished clones.

    A run that crashed or was cancelled leaves nothing.
    """
    _undo(flow_run, state, keep_finished=state.is_failed())


def _undo(flow_run: FlowRun, state: State[Any], *, keep_finished: bool) -> None:
    parameters = flow_run.parameters
    if not parameters.get("rollback", True) or parameters.get("dry_run") or _never_began(state):
        return
    logger = get_logger("rollback")
    try:
        done = undo_flow_run(flow_run, keep_finished=keep_finished)
    except SAID as error:
        _tell(logger, "failed", f"could not roll back: {error}")
        again = command("rollback", parameters.get("manifest"), parameters.get("cluster"))
        _tell(logger, "failed", f"next: {again}")
        return
    for text in done.errors:
        _tell(logger, "failed", text)
    for text in done.notes:
        _tell(logger, "waiting", text)
    _tell(logger, "done" if not done.errors else "failed", summary(done))


def undo_flow_run(flow_run: FlowRun, *, keep_finished: bool) -> Undone:
    """Undo a flow run. Raises ManifestError or ProxmoxError where it cannot begin."""
    parameters = flow_run.parameters
    run_id = run_id_of(flow_run.id)
    logger = get_logger("rollback")
    here = open_session(run_id, str(parameters["manifest"]), parameters.get("cluster"))
    try:
        done = undo_run(
            here.client,
            here.environment.name,
            run_id,
            declared=here.environment.possible_guests(),
            keep_ready=keep_finished,
            say=lambda text: _tell(logger, "done", text),
        )
    finally:
        here.close()
    if not done.nothing:
        keep(
            here.environment,
            "rollback",
            undone_markdown(done),
            summary(done),
            flow_run_id=flow_run.id,
        )
    return done


def summary(done: Undone) -> str:
    """``run 1a2b3c4d: 2 guests removed, 2 seed ISOs removed, 1 error``."""
    if done.nothing:
        return f"run {done.run_id}: nothing to undo"
    words = [
        (done.guests, "guest", "removed"),
        (done.seeds, "seed ISO", "removed"),
        (done.snippets, "snippet", "removed"),
        (done.restored, "guest", "set back"),
        (done.kept, "finished guest", "kept"),
        (done.errors, "error", ""),
    ]
    said = [f"{count(len(names), noun)} {verb}".strip() for names, noun, verb in words if names]
    return f"run {done.run_id}: " + ", ".join(said)


def undone_markdown(done: Undone) -> str:
    """What a rollback did, as an artifact."""
    lines = [f"### Rollback of {summary(done)}", ""]
    for title, names in (
        ("Removed", (*done.guests, *done.seeds, *done.snippets)),
        ("Set back", done.restored),
        ("Kept", done.kept),
        ("Notes", done.notes),
        ("Errors", done.errors),
    ):
        if names:
            lines += [f"#### {title}", "", *(f"- {name}" for name in names), ""]
    return "\n".join(lines)


def _never_began(state: State[Any]) -> bool:
    """A fault that ends the flow itself comes before the first stage; those of stages do not."""
    return state.name == REFUSED


def _tell(
    logger: logging.Logger | logging.LoggerAdapter[Any], state: EventState, text: str
) -> None:
    logger.log(logging.ERROR if state == "failed" else logging.INFO, text)
    notify(Event(node="", stage="rollback", state=state, detail=text))
