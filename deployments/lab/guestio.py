"""How much a machine reads and writes, drive by drive, as QEMU counts it.

The counters belong to the process: they go on when the guest restarts by itself, and begin anew
with the next process. The figures are of the size that installers have, no more.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deployments.lab.clock import Clock
from deployments.lab.qemu.devices import Drive, drives, first_boot_disk

if TYPE_CHECKING:
    from deployments.lab.guestos import Run

# Bytes. An installer is loaded before it asks or writes anything, then copies packages; a system
# that boots is loaded from its disk, and writes a little each second.
INSTALLER_LOADED = 256 << 20
_PACKAGES_READ = 1 << 30
_PACKAGES_WRITTEN = 2 << 30
SYSTEM_LOADED = 128 << 20
_IDLE_WRITTEN = 4096

Counters = dict[str, list[int]]


def install_target(values: dict[str, str]) -> Drive | None:
    """The disk that an installer fills: the first in the boot order, else the first at all."""
    plain = (drive for drive in drives(values) if drive.is_plain_disk)
    return first_boot_disk(values) or next(plain, None)


def count(counters: Counters, key: str | None, read: int = 0, written: int = 0) -> None:
    """Add to the counters of a drive, in bytes."""
    if key is not None:
        before = counters.get(key, [0, 0])
        counters[key] = [before[0] + read, before[1] + written]


def counted(run: Run, clock: Clock) -> Counters:
    """Bytes read and written up to now by drive, those of drives that are gone included."""
    found = {key: list(pair) for key, pair in run.counted.items()}
    elapsed = max(0.0, time.time() - run.phase_since)
    if run.phase == "install":
        done = _share_installed(elapsed, clock)
        target = install_target(run.values)
        count(found, run.device, read=int(_PACKAGES_READ * done))
        count(found, target.key if target else None, written=int(_PACKAGES_WRITTEN * done))
    elif run.phase == "up":
        count(found, run.device, written=int(elapsed) * _IDLE_WRITTEN)
    return found


def _share_installed(elapsed: float, clock: Clock) -> float:
    length = clock.phase_seconds("install")
    if elapsed >= length:
        return 1.0
    looking = min(clock.seconds("load"), length)
    return max(0.0, elapsed - looking) / (length - looking) if looking < length else 0.0


def blockstat(run: Run, clock: Clock) -> dict[str, dict[str, int]]:
    """The key of that name: ``rd_bytes`` and ``wr_bytes`` of every drive that the machine has.

    From the public source of the server, not recorded. A TPM's state is no drive of QEMU's.
    """
    now = counted(run, clock)
    pairs = {
        drive.key: now.get(drive.key, [0, 0])
        for drive in drives(run.values)
        if drive.bus != "tpmstate"
    }
    return {key: {"rd_bytes": read, "wr_bytes": wrote} for key, (read, wrote) in pairs.items()}
