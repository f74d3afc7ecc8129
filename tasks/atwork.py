"""Which runs are at work, as far as this machine or its Prefect server can tell.

Each run has a lock, which the kernel frees however its owner ends, and a note beside it, both in
the user's state folder: that is certain, for the runs of one user and machine.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
from filelock import FileLock, Timeout
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException

from blocks.model import Model
from blocks.paths import state_dir
from tasks.limits import api_is_private

_KEPT: Final = 30 * 24 * 3600.0
"""Seconds after which a note is old enough to be forgotten."""
_PROBED: Final = 5.0
"""Seconds to wait for somebody who only looks whether a lock is held."""


class Worker(Model):
    """A run that this machine knows. ``since``: seconds since 1970; ``alive``: it is at work."""

    since: float
    alive: bool


_RECENT: Final = 200
"""Flow runs of an environment that are looked at."""


class _Note(Model):
    since: float


@contextmanager
def at_work(env: str, run_id: str) -> Iterator[None]:
    """Be known to other runs of this machine as being at work.

    Where the state folder cannot be written this is silently not so: nothing depends on it but how
    much others know.
    """
    lock = FileLock(_lock_path(env, run_id), thread_local=False)
    with suppress(OSError, Timeout):
        _lock_path(env, run_id).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock.acquire(timeout=_PROBED)
        _note_path(env, run_id).write_text(_Note(since=time.time()).model_dump_json())
    _forget_old(_lock_path(env, run_id).parent)
    try:
        yield
    finally:
        lock.release()


def known_worker(env: str, run_id: str) -> Worker | None:
    """What this machine knows of a run; None where it is none of its own."""
    try:
        note = _Note.model_validate_json(_note_path(env, run_id).read_text())
    except (OSError, ValueError):
        return None
    try:
        # A lock that somebody has deleted proves nothing: a new one would be free.
        with _lock_path(env, run_id).open() as lock:
            # Shared: of two who look at once, neither takes the other for the run.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Worker(since=note.since, alive=True)
    except OSError:
        return None
    return Worker(since=note.since, alive=False)


def has_ended(env: str, run_id: str) -> bool:
    """Whether the Prefect server that machines share knows that a template's run has ended.

    That one is said to be running proves nothing: nobody tells the server of a killed one.
    """
    if api_is_private():
        return False
    wanted = FlowRunFilter.model_validate({"name": {"any_": [f"template {env}"]}})
    try:
        with get_client(sync_client=True) as client:
            runs = client.read_flow_runs(
                flow_run_filter=wanted, sort=FlowRunSort.START_TIME_DESC, limit=_RECENT
            )
    except (httpx.HTTPError, PrefectException):
        return False
    return any(
        run.state is not None and run.state.is_final()
        for run in runs
        if str(run.id).endswith(run_id)
    )


def _forget_old(folder: Path) -> None:
    """Several runs may do so at once, and some notes may be of another user."""
    for note in folder.glob("*.json"):
        with suppress(OSError):
            if time.time() - note.stat().st_mtime > _KEPT:
                note.with_suffix(".lock").unlink(missing_ok=True)
                note.unlink()


def _note_path(env: str, run_id: str) -> Path:
    return state_dir() / "runs" / env / f"{run_id}.json"


def _lock_path(env: str, run_id: str) -> Path:
    return _note_path(env, run_id).with_suffix(".lock")
