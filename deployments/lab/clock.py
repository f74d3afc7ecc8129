"""Simulated durations: seconds of a real cluster times the lab's time scale."""

from __future__ import annotations

import asyncio

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
}
LOCK_FLOOR_SECONDS = 0.4
PHASE_FLOOR_SECONDS = 0.02


class Clock:
    """Scaled waiting; durations by name can be changed while the lab runs."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.durations = dict(DURATIONS)

    def seconds(self, name: str) -> float:
        """Real seconds of a named duration."""
        return self.durations.get(name, 1) * self.scale

    async def work(self, name: str) -> None:
        """Let a named duration pass."""
        await asyncio.sleep(self.seconds(name))

    def file_lock_seconds(self) -> float:
        """How long a writer waits for a guest's file lock; not below a moment, for fast labs."""
        return max(self.seconds("filelock"), LOCK_FLOOR_SECONDS)

    def phase_seconds(self, name: str) -> float:
        """Length of a phase of a guest's life; a moment at least, so that loops do not spin."""
        return max(self.seconds(name), PHASE_FLOOR_SECONDS)
