"""Whether an installer was started again, told from what was read from its install ISO.

A guest that restarts by itself stays the same process for Proxmox VE: no new pid, no younger
uptime, and the counters of its drives go on. What shows is how a boot from the ISO looks: as much
is read as before the first write, and nothing is written meanwhile. An installation that goes on
reads the ISO too, but writes what it reads. (Measured with QEMU 7.2 and Debian's packaged
installer: 87,953,408 bytes before its first question, and exactly as many again after a reset.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# A disk that was partitioned, and not a firmware that keeps its settings (bytes).
WRITES: Final = 4 * 1024 * 1024
# A boot of an installer reads a kernel and an initrd at least; a system that looks what is in its
# drives reads much less (bytes).
_LEAST: Final = 16 * 1024 * 1024
# Looks fall between events, and what is left of a system before its restart is still written.
_SHARE: Final = 0.8
_UNNOTICED: Final = 1024 * 1024


@dataclass
class InstallMedium:
    """The install ISO of one guest, in bytes. ``boots``: how often it seems to be booted again."""

    boots: int = 0
    first: int = field(default=0, init=False)
    stretch: int = field(default=0, init=False)
    _wrote: int = field(default=0, init=False)
    _meanwhile: int = field(default=0, init=False)
    _counted: bool = field(default=False, init=False)

    def add(self, read: int, written: int) -> None:
        """What was read from the ISO and written to disks since the last look.

        Where the first look comes late, ``first`` is too large, and less is noticed.
        """
        before = self._wrote
        self._wrote += written
        if before < WRITES:
            self.first += read
            return
        self._meanwhile += written
        if self._meanwhile >= _UNNOTICED:
            self.stretch, self._meanwhile, self._counted = 0, 0, False
            return
        self.stretch += read
        if not self._counted and self.stretch >= max(_LEAST, _SHARE * self.first):
            self.boots += 1
            self._counted = True
