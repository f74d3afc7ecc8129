"""What a command costs before and after its work: with a Prefect server and without."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks.figures import Figure, plain
from tests.benchmarks.places import environment, lab
from tests.flows.processes import prefect_server

REPEATS = 3
GUESTS = 3


@dataclass(frozen=True)
class Timed:
    """Seconds after the start: first line of the plan, last line of a stage, end of process.

    ``processor``: seconds that it computed, a temporary server included; other work on the machine
    hardly changes them.
    """

    plan: float
    events: float
    end: float
    processor: float


def startup(folder: Path) -> Iterator[Figure]:
    """Commands as processes on a lab without durations."""
    for served in (True, False):
        kind = "with a server" if served else "without a server"
        home = folder / f"home-{served}"
        with prefect_server(folder / "server") if served else nullcontext() as api:
            place = folder / f"startup-{served}"
            manifest = environment(place, GUESTS)
            with lab(place):
                surroundings = _surroundings(home, api)
                plans = [_run("plan", manifest, surroundings) for _ in range(REPEATS)]
                first = _run("up", manifest, surroundings, "--yes")
                again = _run("up", manifest, surroundings, "--yes")
                checks = _run("verify", manifest, surroundings)
            place = folder / f"startup-again-{served}"
            manifest = environment(place, GUESTS)
            with lab(place):
                # The first run without a server also makes its database.
                second = _run("up", manifest, _surroundings(home, api), "--yes")
        yield plain(
            f"plan, first line, {kind}",
            median(t.plan for t in plans),
            "s",
            f"processor time of the command {median(t.processor for t in plans):.1f} s",
        )
        yield plain(
            f"up of {GUESTS} guests, {kind}",
            second.end,
            "s",
            f"plan at {second.plan:.1f} s, last stage at {second.events:.1f} s; the very first "
            f"run {first.end:.1f} s; processor time {second.processor:.1f} s",
        )
        yield plain(f"up with nothing to do, {kind}", again.end, "s", _computed(again))
        yield plain(f"verify, {kind}", checks.end, "s", _computed(checks))


def _computed(timed: Timed) -> str:
    return f"processor time {timed.processor:.1f} s"


def _surroundings(home: Path, api: str | None) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    more = {"PREFECT_API_URL": api} if api else {}
    return {**clean, "PREFECT_HOME": str(home), **more}


def _run(command: str, manifest: Path, surroundings: dict[str, str], *words: str) -> Timed:
    began, computed = time.perf_counter(), _processor()
    plan = events = 0.0
    with subprocess.Popen(
        [sys.executable, "-u", "-m", f"flows.{command}", str(manifest), "--cluster", "lab", *words],
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        lines = []
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            now = time.perf_counter() - began
            plan = plan or (now if line.strip() else 0.0)
            if line[:5].strip().replace(":", "").isdigit():
                events = now
    end = time.perf_counter() - began
    if running.returncode != 0:
        raise RuntimeError(f"{command} ended with {running.returncode}:\n" + "".join(lines))
    return Timed(plan, events, end, _processor() - computed)


def _processor() -> float:
    """Processor seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
