"""Flows for the tests that need a process of their own: ``python -m tests.flows.runtime_program``.

What happens is printed, one event a line, and hooks write to the file that the run's parameters
name: where they run, nothing else is known.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from prefect import flow

from flows import runtime
from tasks.fleet import NodeJob, StageCall, run_fleet
from tasks.lanes import Lane
from tasks.stage import Event, Outcome, RunRef, done, pause, stage

LANE = Lane(purpose="upload", cluster="lab", storage="local")
RUN = RunRef(manifest="/srv/shop.yaml", env="shop", run_id="0123abcd")


def note(flow: Any, flow_run: Any, state: Any) -> None:
    """A hook that uses the run's parameters only.

    A worker passes the three by name, so they must be called so.
    """
    with Path(flow_run.parameters["notes"]).open("a") as notes:
        notes.write(f"{state.type.value} pid={os.getpid()}\n")


HOOKS: dict[str, Any] = {
    "on_failure": [note],
    "on_crashed": [note],
    "on_cancellation": [note],
}


def say(text: str) -> None:
    print(text, flush=True)


def listen(event: Event) -> None:
    say(f"{event.node}/{event.stage} {event.state} {event.detail}")


@stage("noop")
def noop(run: RunRef, node: str) -> Outcome:
    return done()


@stage("upload")
def upload(run: RunRef, node: str, seconds: float = 0) -> Outcome:
    say(f"holding pid={os.getpid()}")
    pause(seconds)
    return done()


@flow(**HOOKS)
def instant(notes: str, count: int = 60) -> int:
    """Many task runs that take no time."""
    calls = (StageCall("noop", noop.call()),)
    jobs = [NodeJob(node=f"n{n}", run=RUN, stages=calls) for n in range(count)]
    return len(run_fleet(jobs, parallel=8).nodes)


@flow(**HOOKS)
def hold(notes: str, seconds: float = 600) -> None:
    """Hold the upload lane."""
    call = StageCall("upload", upload.call(seconds=seconds), upload.cancel, lane=LANE)
    run_fleet([NodeJob(node="holder", run=RUN, stages=(call,))], parallel=1, on_event=listen)


@flow(**HOOKS)
def broken(notes: str) -> None:
    """Fail with an exception."""
    raise ValueError("the manifest is not there")


def main(name: str, notes: str, *more: str) -> int:
    """Run a flow as the command lines do."""
    chosen: Any = {"instant": instant, "hold": hold, "broken": broken}[name]
    extra: dict[str, Any] = {k: float(v) for k, v in (item.split("=", 1) for item in more)}
    runtime.warm()
    with runtime.prefect_runtime(say) as here:
        say(f"api {here.url} temporary={here.temporary}")
        try:
            ended = runtime.run_flow(chosen, notes=notes, **extra)
        except KeyboardInterrupt:
            say("interrupted")
            return 130
    say(f"ended {ended.state.name} {ended.result} {ended.failure!r} {ended.run_id}")
    return 0 if ended.ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
