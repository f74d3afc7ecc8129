"""The state folder as a whole: whose it is, and that only one lab uses it."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from deployments.lab.errors import StateFolderError
from deployments.lab.files import CONNECTION

PARTS = ("etc", "storage", "run", "tasks", "tmp", "tls", "guestfiles")
LOG = "lab.log"
_LOCK = "lab.lock"


@contextlib.contextmanager
def holding(root: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Have a state folder for oneself; StateFolderError while another lab serves it.

    The lock is the kernel's: it goes with the process, however that ends. ``patience``: seconds to
    go on trying, since whoever asks :func:`in_use` has the lock himself for a moment.
    """
    deadline = time.monotonic() + patience
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)
    with (root / _LOCK).open("a") as handle:
        while not _locked(handle):
            if time.monotonic() >= deadline:
                raise StateFolderError(
                    f"{root} is in use by a running lab; stop that one, or give another --state"
                )
            time.sleep(0.02)
        yield


def _locked(handle: TextIO) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def in_use(root: Path) -> bool:
    """Whether a lab serves the folder, perhaps one that does not answer yet."""
    if not (root / _LOCK).exists():
        return False
    try:
        with holding(root):
            return False
    except StateFolderError:
        return True


def refuse_foreign(root: Path) -> None:
    """StateFolderError when the folder holds what no lab has put there."""
    foreign = {entry.name for entry in root.iterdir()} - {*PARTS, _LOCK, LOG, CONNECTION}
    if foreign:
        raise StateFolderError(
            f"{root} does not look like the state folder of a lab: it holds "
            f"{', '.join(sorted(foreign)[:3])}; give an empty folder with --state"
        )
