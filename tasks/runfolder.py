"""The private folder of a run, in which seed ISOs with password hashes lie until it ends."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from tasks.errors import StageError

_PREFIX = "proxflow-"
_LOCK = "held"
# A folder without a lock may be one that another run is making; after a day nobody is.
_STALE_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class RunFolder:
    """A folder that nobody else can read; its lock says that somebody works with it."""

    path: Path
    _lock: FileLock

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def make_run_folder() -> RunFolder:
    """Make a folder for a run, and remove those whose runs were killed.

    Raises StageError where it cannot be made.
    """
    try:
        _sweep(Path(tempfile.gettempdir()))
        while True:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            lock = FileLock(path / _LOCK, thread_local=False)
            # Between making and locking, another run may take it for a leftover.
            with suppress(FileNotFoundError):
                lock.acquire()
                if (path / _LOCK).exists():
                    return RunFolder(path, lock)
                lock.release()
    except OSError as error:
        raise no_room(error) from None


def no_room(error: OSError) -> StageError:
    """What to say where the seed ISO's folder cannot be made or written."""
    try:
        folder = tempfile.gettempdir()
    except OSError:
        folder = os.environ.get("TMPDIR", "for temporary files")
    return StageError(
        f"cannot write to the folder {folder}: {error.strerror or error}",
        advice="make room there, or name another folder in TMPDIR",
    )


def _sweep(parent: Path) -> None:
    """Remove this user's folders that no living run holds."""
    for path in parent.glob(_PREFIX + "*"):
        with suppress(OSError):
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            if not (path / _LOCK).exists():
                if time.time() - found.st_mtime > _STALE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
                continue
            with suppress(Timeout), FileLock(path / _LOCK, timeout=0, thread_local=False):
                shutil.rmtree(path, ignore_errors=True)
