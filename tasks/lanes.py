"""Lanes: what must happen one after the other, on one machine and in one order.

A lane is first come first served among the guests of a run, and one lock of the operating system
between runs, which the kernel frees when its owner dies, however it dies. Inside the lane the
Prefect tag of the same name has a free slot, unless a run on another machine has it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from prefect.context import FlowRunContext
from prefect.settings import get_current_settings

from blocks.model import Model
from tasks.limits import tag
from tasks.stage import StageCancelled, stopping

FIRST_NOTICE: Final = 3.0
NEXT_NOTICES: Final = 30.0
_POLL: Final = 0.1

Say = Callable[[str], None]


class Lane(Model):
    """One lane: ``purpose`` (``upload``, ``clone``) on a storage of a cluster.

    ``node`` is None for a shared storage: one lane for the whole cluster.
    """

    purpose: str
    cluster: str
    storage: str
    node: str | None = None

    @property
    def tag(self) -> str:
        """The Prefect tag that keeps runs on other machines out of this lane."""
        parts = [self.purpose, self.cluster, self.storage]
        return tag(*parts, self.node) if self.node else tag(*parts)

    def __str__(self) -> str:
        """How an operator would call it."""
        place = f"{self.storage} on {self.node}" if self.node else self.storage
        return f"the {self.purpose} lane of {place}"


class Holder(Model):
    """The run that has a lane, as it wrote itself down."""

    pid: int
    run: str
    node: str
    since: str

    def __str__(self) -> str:
        """For a notice."""
        return f"{self.run} (pid {self.pid}, guest {self.node}, since {self.since})"


_queues: dict[str, deque[object]] = {}
_changed = threading.Condition()


@contextmanager
def lane(wanted: Lane, *, node: str = "", say: Say | None = None) -> Iterator[None]:
    """Hold a lane for a guest; waits in arrival order and tells ``say`` what it waits for.

    ``say`` is called at once when another guest of this run is before us, and after 3 s and then
    every 30 s as long as another run has the lane. Raises :class:`StageCancelled` when the run
    stops meanwhile.
    """
    notice: Say = say or (lambda _text: None)
    ticket = object()
    with _changed:
        queue = _queues.setdefault(wanted.tag, deque())
        queue.append(ticket)
        if queue[0] is not ticket:
            notice(f"waiting for {wanted}")
    try:
        _wait_for_turn(queue, ticket, wanted)
        with _machine_lock(wanted, node, notice):
            yield
    finally:
        with _changed:
            queue.remove(ticket)
            if not queue:
                _queues.pop(wanted.tag, None)
            _changed.notify_all()


def _wait_for_turn(queue: deque[object], ticket: object, wanted: Lane) -> None:
    with _changed:
        while queue[0] is not ticket:
            if stopping():
                raise StageCancelled(f"the run stopped while waiting for {wanted}")
            _changed.wait(_POLL)


@contextmanager
def _machine_lock(wanted: Lane, node: str, notice: Say) -> Iterator[None]:
    path = _lock_path(wanted)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not bound to a thread: a stage may be parked and go on in another one.
    lock = FileLock(path, thread_local=False)
    next_notice = time.monotonic() + FIRST_NOTICE
    while True:
        try:
            lock.acquire(timeout=_POLL * 5, poll_interval=_POLL)
            break
        except Timeout:
            if stopping():
                raise StageCancelled(f"the run stopped while waiting for {wanted}") from None
            if time.monotonic() >= next_notice:
                next_notice = time.monotonic() + NEXT_NOTICES
                holder = _read_holder(path)
                notice(f"waiting for {wanted}, held by {holder or 'another run'}")
    try:
        _write_holder(path, node)
        yield
    finally:
        _holder_path(path).unlink(missing_ok=True)
        lock.release()


def _lock_path(wanted: Lane) -> Path:
    """Below ``PREFECT_HOME``, where the database of the temporary server is too."""
    name = wanted.tag.removeprefix("proxflow:").replace(":", "+")
    return get_current_settings().home / "proxflow" / "lanes" / f"{name}.lock"


def _holder_path(lock: Path) -> Path:
    """Beside the lock: opening a lock file empties it."""
    return lock.with_suffix(".json")


def _write_holder(lock: Path, node: str) -> None:
    context = FlowRunContext.get()
    name = context.flow_run.name if context and context.flow_run else "a run without a name"
    since = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
    holder = Holder(pid=os.getpid(), run=f"flow run {name!r}", node=node, since=since)
    target = _holder_path(lock)
    draft = target.with_suffix(f".{os.getpid()}")
    draft.write_text(holder.model_dump_json())
    draft.replace(target)


def _read_holder(lock: Path) -> Holder | None:
    try:
        return Holder.model_validate(json.loads(_holder_path(lock).read_text()))
    except (OSError, ValueError):
        return None
