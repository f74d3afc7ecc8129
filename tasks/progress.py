"""How far a long job of a stage is, said often enough and not more."""

from __future__ import annotations

import time
from typing import Final

from blocks.units import human_size
from tasks.stage import StageCancelled, stopping, working

# What takes less is over before anybody could read it (seconds).
QUIET: Final = 2.0
# Between two words: this long at least, and a tenth of the job, or this long at most (seconds).
SOONEST: Final = 2.0
LATEST: Final = 15.0


class Meter:
    """Says the progress of one job after the other; a new name begins a new job."""

    def __init__(self) -> None:
        """Nothing is said yet."""
        self._job = ""
        self._began = self._said = 0.0
        self._tenth = 0

    def __call__(self, job: str, done: int, total: int) -> None:
        """``done`` of ``total`` bytes; a total of 0 is not known.

        Raises StageCancelled when the run stops: a long job is given up, and taken up by the next.
        """
        if stopping():
            raise StageCancelled("the run is stopping")
        now = time.monotonic()
        if job != self._job:
            self._job, self._began, self._said, self._tenth = job, now, now, 0
        if now - self._began < QUIET or now - self._said < SOONEST:
            return
        tenth = done * 10 // total if total else 0
        if tenth > self._tenth or now - self._said >= LATEST:
            self._said, self._tenth = now, tenth
            working(f"{job}: {amount(done, total)}" if done or total else job)

    def percent(self, job: str, percent: int) -> None:
        """The same where only a percentage is known."""
        self(job, percent, 100)


def amount(done: int, total: int) -> str:
    """``45 % of 2.6 GiB``, or ``1.2 GiB`` where the total is not known."""
    if total == 100:
        return f"{done} %"
    return f"{done * 100 // total} % of {human_size(total)}" if total else human_size(done)
