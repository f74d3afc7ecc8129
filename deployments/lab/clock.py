"""Simulated durations: seconds of a real cluster times the lab's time scale."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

DURATIONS: dict[str, float] = {
    "imgcopy": 3,
    "imgdel": 1,
    "download": 2,
    "qmcreate": 2,
    "qmconfig": 1,
    "qmstart": 2,
    "qmstop": 1,
    "qmreset": 0,
    "qmpause": 0,
    "qmresume": 0,
    "qmdestroy": 2,
    "qmclone": 10,
    "copygib": 0,
    "qmtemplate": 1,
    "qmsnapshot": 2,
    "qmdelsnapshot": 2,
    "qmrollback": 2,
    "qmmove": 8,
    "qmigrate": 12,
    "vzmigrate": 8,
    "resize": 1,
    "vzcreate": 6,
    "vzstart": 2,
    "vzdestroy": 2,
    "boot": 20,
    "load": 30,
    "install": 300,
    "acpi": 5,
    "dhcp": 3,
    "login": 3,
    "resources": 10,
    "filelock": 10,
    "console": 10,
}
LOCK_FLOOR_SECONDS = 0.4
PHASE_FLOOR_SECONDS = 0.02


class Clock:
    """Scaled waiting; scale and durations can be changed while the lab runs, and while it waits."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.durations = dict(DURATIONS)
        self._changed = asyncio.Event()

    def set(self, scale: float, durations: Mapping[str, float]) -> None:
        """Change the scale and some durations; waits that have begun go by them from now on."""
        self.scale = scale
        self.durations.update(durations)
        self._changed.set()
        self._changed = asyncio.Event()

    def seconds(self, name: str) -> float:
        """Real seconds of a named duration."""
        return self.durations.get(name, 1) * self.scale

    async def work(self, name: str) -> None:
        """Let a named duration pass."""
        await self.passed(time.monotonic(), lambda: self.seconds(name))

    async def passed(self, began: float, seconds: Callable[[], float]) -> None:
        """Wait until ``seconds()`` have passed since ``began``, a moment of the monotonic clock."""
        await asyncio.sleep(0)
        while (left := began + seconds() - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def console_seconds(self) -> float:
        """How long a console waits for its client. That one is real, whatever the lab's scale."""
        return self.durations["console"]

    def file_lock_seconds(self) -> float:
        """How long a writer waits for a guest's file lock; not below a moment, for fast labs."""
        return max(self.seconds("filelock"), LOCK_FLOOR_SECONDS)

    def phase_seconds(self, name: str) -> float:
        """Length of a phase of a guest's life; a moment at least, so that loops do not spin."""
        return max(self.seconds(name), PHASE_FLOOR_SECONDS)
