"""What an installation looks like from outside, and what is wrong when it does not end.

A guest is looked at through its status: does it run, which process is it, how much has it written,
how much has it read from its install ISO. From a row of such sights follow its phase and its
troubles; nothing here makes a call or waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from blocks.units import human_size
from tasks.drives import INSTALL_DRIVE
from tasks.iso.distros import Family
from tasks.reread import WRITES, InstallMedium

Phase = Literal["switched off", "starting", "installing", "restarted", "installing again"]

# An ISO that tests itself before it installs, as the Red Hat family's do, reads for minutes and
# writes nothing; whoever waits for an answer reads much less between two looks (bytes).
READS: Final = 1024 * 1024
# Seconds that a guest may be off while it is waited for: some are restarted from outside.
OFF_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Bounds:
    """How patient to be. ``total``, ``quiet`` and ``marker`` in seconds.

    ``restarts`` make a loop: of the machine's process, or boots from the install ISO after the
    first. ``marker``: from the agent's first answer to the marker of a finished installation.
    """

    total: float
    quiet: float
    restarts: int = 2
    marker: float = 180.0


# A slow storage, updates over a slow line: three times of what is usual. An installer writes
# packages while it fetches them, so ten minutes without a write are a question on the screen.
BOUNDS: dict[Family | None, Bounds] = {
    "anaconda": Bounds(total=45 * 60, quiet=10 * 60),
    "subiquity": Bounds(total=60 * 60, quiet=10 * 60),
    "debian-installer": Bounds(total=60 * 60, quiet=10 * 60),
    # Its second stage installs the last packages in the first boot, with SSH and agent up already,
    # and may restart the installed system once more.
    "autoyast": Bounds(total=60 * 60, quiet=15 * 60, restarts=3, marker=20 * 60),
    # Its last script runs in the first boot, which starts with SELinux's labels and, where there
    # were many to write, with a restart.
    "agama": Bounds(total=60 * 60, quiet=10 * 60, restarts=3, marker=20 * 60),
    None: Bounds(total=10 * 60, quiet=float("inf")),
}


@dataclass(frozen=True)
class Sight:
    """A guest at one moment: ``at`` on a monotonic clock.

    ``written`` to all drives and ``read`` from the install drive in bytes, where they are told.
    """

    at: float
    running: bool
    pid: int | None = None
    uptime: int = 0
    written: int | None = None
    read: int | None = None

    @classmethod
    def of(cls, status: dict[str, Any], at: float) -> Sight:
        """From an answer of ``status/current``; ``blockstat`` has QEMU's counters by drive."""
        pid, written = status.get("pid"), status.get("diskwrite")
        read = (status.get("blockstat") or {}).get(INSTALL_DRIVE, {}).get("rd_bytes")
        return cls(
            at=at,
            running=status.get("status") == "running",
            pid=None if pid is None else int(pid),
            uptime=int(status.get("uptime") or 0),
            written=None if written is None else int(written),
            read=None if read is None else int(read),
        )


@dataclass
class Watch:
    """The sights of one guest, added up. ``began`` and ``changed`` on the clock of the sights."""

    began: float
    last: Sight | None = None
    restarts: int = 0
    changed: float = field(init=False)
    off_since: float | None = None
    told: bool = False
    medium: InstallMedium = field(default_factory=InstallMedium)
    _wrote: int = 0
    _base: int = 0
    _read: int = 0

    def __post_init__(self) -> None:
        """Nothing was seen yet."""
        self.changed = self.began

    @property
    def written(self) -> int:
        """Bytes written since it was first seen, by all of its processes."""
        return self._wrote

    @property
    def phase(self) -> Phase:
        """How far it is."""
        if self.last is not None and not self.last.running:
            return "switched off"
        if self.medium.boots:
            return "installing again"
        if self.restarts:
            return "restarted"
        return "installing" if self._wrote >= WRITES else "starting"

    def see(self, sight: Sight) -> None:
        """Take another sight, later than the last one."""
        before, self.last = self.last, sight
        if not sight.running:
            self.off_since = sight.at if self.off_since is None else self.off_since
            return
        self.off_since = None
        again = before is not None and (
            sight.uptime < before.uptime
            or (before.pid is not None and sight.pid is not None and sight.pid != before.pid)
        )
        if again:
            self.restarts += 1
            self._base = self._read = 0
            self.changed = sight.at
        fresh = 0
        if sight.written is not None:
            self.told = True
            # A guest that was first seen in the middle of its work has written before.
            fresh = max(0, sight.written - self._base)
            if fresh:
                self._wrote += fresh
                self.changed = sight.at
            self._base = sight.written
        if sight.read is not None:
            read = max(0, sight.read - self._read)
            self.medium.add(read, fresh)
            self._read = sight.read
            if read >= READS and not self._wrote:
                self.changed = sight.at

    def looping(self, bounds: Bounds) -> bool:
        """Whether it restarts, or is installed, again and again."""
        return max(self.restarts, self.medium.boots) >= bounds.restarts

    def stuck(self, bounds: Bounds, now: float) -> bool:
        """Whether nothing was written, nothing restarted and no ISO tested itself for too long."""
        return self.told and self.phase != "switched off" and now - self.changed >= bounds.quiet

    def off(self, now: float) -> bool:
        """Whether it has been switched off for too long."""
        return self.off_since is not None and now - self.off_since >= OFF_SECONDS

    def __str__(self) -> str:
        """The phase, for people: ``installing, 1.4 GiB written``."""
        if self.phase == "installing":
            return f"installing, {human_size(self._wrote)} written"
        if self.phase == "restarted":
            return "restarted, its SSH server does not answer yet"
        if self.phase == "installing again":
            return (
                f"installing again, as it seems, {human_size(self._wrote)} written: the install "
                "ISO was read as for a boot after the disk had been written"
            )
        if self.phase == "starting":
            return "starting, nothing is written yet" if self.told else "starting"
        return self.phase
