"""What a stage costs beside the calls to the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flows.runtime import prefect_runtime
from tests.benchmarks.bringing_up import bring_up, cluster_time
from tests.benchmarks.figures import Figure, plain
from tests.benchmarks.places import environment, lab

SIZES = (1, 8, 32)


def overhead(folder: Path) -> Iterator[Figure]:
    """The flow ``up`` on a lab without durations, for several sizes.

    One guest at a time, so that the time in calls can be taken off exactly; then eight at once.
    """
    with prefect_runtime():
        for guests in SIZES:
            manifest = environment(folder / f"serial{guests}", guests)
            with lab(folder / f"serial{guests}"):
                # A first flow run in a process also pays for Prefect's start: see `startup`.
                bring_up(manifest, parallel=1, dry_run=True)
                with cluster_time() as (calls, looks):
                    serial = bring_up(manifest, parallel=1)
            own = serial.seconds - calls.seconds - looks.seconds
            stages = sum(event.state in {"done", "unchanged"} for _, event in serial.events)
            yield plain(
                f"overhead a guest, {guests} in all, one at a time",
                own / guests,
                "s",
                f"flow {serial.seconds:.2f} s - calls {calls.seconds:.2f} s - looking for SSH "
                f"{looks.seconds:.2f} s; {own / stages * 1000:.0f} ms a stage; processor time a "
                f"guest, calls included: {serial.processor / guests:.2f} s",
            )
            manifest = environment(folder / f"parallel{guests}", guests)
            with lab(folder / f"parallel{guests}"):
                parallel = bring_up(manifest, parallel=8)
            yield plain(
                f"flow a guest, {guests} in all, eight at a time",
                parallel.seconds / guests,
                "s",
                f"flow {parallel.seconds:.2f} s, calls included",
            )
