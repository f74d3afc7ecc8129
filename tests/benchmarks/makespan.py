"""How near a fleet comes to the shortest time that its work can take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from flows.runtime import prefect_runtime
from tests.benchmarks.bringing_up import bring_up
from tests.benchmarks.figures import Figure, at_most
from tests.benchmarks.places import environment, lab

GUESTS = 8
UPLOAD, CREATE, UNTIL_SSH = 3.0, 2.0, 20.0
# Start to SSH: firmware, installation, firmware again.
BOOT = 2.0
DURATIONS = {
    "imgcopy": UPLOAD,
    "qmcreate": CREATE,
    "boot": BOOT,
    "install": UNTIL_SSH - 2 * BOOT,
    "qmstart": 0.0,
    "qmconfig": 0.0,
    "imgdel": 0.0,
}


def critical_path(storages: int) -> float:
    """Seconds: uploads to one storage go one after the other, everything else at once."""
    lanes = Counter(n % storages for n in range(GUESTS))
    return max(lanes.values()) * UPLOAD + CREATE + UNTIL_SSH


def makespan(folder: Path) -> Iterator[Figure]:
    """The flow ``up`` of eight guests at once, at real durations, on one storage and on four."""
    with prefect_runtime():
        for storages in (1, 4):
            place = folder / f"makespan{storages}"
            manifest = environment(place, GUESTS, nodes=storages)
            with lab(place, nodes=storages) as cluster:
                # A first flow run in a process also pays for Prefect's start: see `startup`.
                bring_up(manifest, parallel=1, dry_run=True)
                cluster.set_time(1.0, **DURATIONS)
                brought = bring_up(manifest, parallel=GUESTS)
            path = critical_path(storages)
            waits = [e.seconds for _, e in brought.events if (e.stage, e.state) == ("wait", "done")]
            yield at_most(
                f"makespan of {GUESTS} guests on {storages} storage{'s'[: storages - 1]}",
                brought.seconds / path,
                1.10,
                note=f"{brought.seconds:.1f} s for a critical path of {path:.0f} s; start to SSH "
                f"{UNTIL_SSH:.0f} s seen as {min(waits):.1f} to {max(waits):.1f} s",
            )
