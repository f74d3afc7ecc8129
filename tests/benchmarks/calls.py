"""How many calls to the cluster a command makes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deployments.lab.testing import RunningLab
from flows.runtime import prefect_runtime
from tests.benchmarks.bringing_up import bring_up
from tests.benchmarks.figures import Figure, at_most, plain
from tests.benchmarks.places import environment, lab

GUESTS = 8


def calls(folder: Path) -> Iterator[Figure]:
    """Calls as the lab counts them, for eight guests on four nodes."""
    manifest = environment(folder / "calls", GUESTS)
    with prefect_runtime(), lab(folder / "calls") as cluster:
        yield at_most(
            "calls of plan, nothing there",
            _of_plan(cluster, manifest),
            2 + GUESTS,
            note=f"{GUESTS} guests",
        )
        cluster.forget_requests()
        bring_up(manifest, parallel=8)
        number = len(cluster.requests())
        yield plain("calls of up a guest", number / GUESTS, note=f"{number} for {GUESTS} guests")
        cluster.forget_requests()
        bring_up(manifest, parallel=8)
        number = len(cluster.requests())
        yield plain(
            "calls of a second up a guest", number / GUESTS, note=f"{number} for {GUESTS} guests"
        )
        yield at_most(
            "calls of plan, all there",
            _of_plan(cluster, manifest),
            2 + GUESTS,
            note=f"{GUESTS} guests",
        )


def _of_plan(cluster: RunningLab, manifest: Path) -> int:
    cluster.forget_requests()
    command = [sys.executable, "-m", "flows.plan", str(manifest), "--cluster", "lab"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return len(cluster.requests())
