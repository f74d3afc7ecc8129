"""Waiting for tasks, with few calls and little delay.

A task is asked for soon after its start and then ever more rarely. Where three or more threads of
one client wait, one read of /cluster/tasks at a time serves them all. That list is short and may
lag behind on other nodes, so each waiter still asks for its own task now and then.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from blocks.proxmox.answers import Answer
from blocks.proxmox.errors import (
    NotFound,
    ProxmoxError,
    TaskFailed,
    TaskTimeout,
    Unreachable,
)
from blocks.proxmox.refusals import understand

FIRST_POLL = 0.05
LAST_POLL = 2.0
SHARED_POLL = 1.0
"""Seconds between two reads of the shared list at most: one call serves all, so it may be often."""
OWN_POLL = 5.0
"""Seconds between two reads of a task's own status while the shared list shows the task."""
LOG_POLL = 2.0
"""Seconds between two reads of a log that is followed, at least: it is for people."""
SHARED_FROM = 3
"""Waiting threads from which on one list serves better than a status each."""
WITHOUT_LIST = 30.0
"""Seconds without another try after the shared list could not be read."""
TAIL = 10
PAGE = 500

_UPID = re.compile(r"UPID:(?P<node>[^:]+):[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+:(?P<type>[^:]+):")
_WARNINGS = re.compile(r"WARNINGS: \d+")
_WARNING_LINE = re.compile(r"WARN(?:ING)?: (?P<text>.*)", re.IGNORECASE)


class Reader(Protocol):
    """The part of a client that waiting needs."""

    def get(self, path: str, /, **params: object) -> Answer:
        """GET."""
        ...


@dataclass(frozen=True)
class TaskResult:
    """A task that succeeded: ``exitstatus`` is ``OK`` or ``WARNINGS: n``.

    ``log`` is read where it was followed or where there are warnings, and empty otherwise: a
    call saved for each good task.
    """

    upid: str
    exitstatus: str
    warnings: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


def is_upid(data: object) -> bool:
    """Whether an answer names a task."""
    return isinstance(data, str) and _UPID.match(data) is not None


def upid_node(upid: str) -> str:
    """The node on which a task runs. Raises NotFound where the text names no task."""
    found = _UPID.match(upid)
    if found is None:
        raise NotFound(f"{upid!r} names no task")
    return found["node"]


def interval(age: float) -> float:
    """Seconds until the next look at a task that was started ``age`` seconds ago.

    An eighth of the age, so that a wait is at most an eighth too long: what waits in a lane behind
    it waits that much too. A task of ten minutes costs some three hundred looks.
    """
    return min(LAST_POLL, max(FIRST_POLL, age / 8))


class _Waiter:
    """One waiting thread's state; the shared reader sets ``exitstatus``."""

    def __init__(self, upid: str, now: float, timeout: float) -> None:
        self.upid = upid
        self.node = upid_node(upid)
        self.started = now
        self.deadline = now + timeout
        self.timeout = timeout
        self.exitstatus: str | None = None
        self.looked = now
        self.trouble: ProxmoxError | None = None
        self.lines = 0
        self.followed = now
        self.listed = False

    def next_look(self, *, shared: bool) -> float:
        """When to ask for this very task again, on the monotonic clock."""
        age = self.looked - self.started
        if not shared or age == 0:
            return self.looked + interval(age)
        return self.looked + (OWN_POLL if self.listed else min(OWN_POLL, max(0.5, age)))

    def log_is_due(self) -> bool:
        """Whether the log is to be read now; a step may end early, for what others were told."""
        now = time.monotonic()
        if now < self.followed + max(LOG_POLL, interval(now - self.started)):
            return False
        self.followed = now
        return True

    @property
    def path(self) -> str:
        return f"/nodes/{self.node}/tasks/{self.upid}"


class Waiting:
    """All waits of one client."""

    def __init__(self, client: Reader) -> None:
        """``client`` is asked from the waiting threads."""
        self._client = client
        self._changed = threading.Condition()
        self._waiters: set[_Waiter] = set()
        self._reading = False
        self._next_read = 0.0
        self._alone_until = 0.0

    def wait(
        self,
        upid: str,
        *,
        timeout: float = 600.0,
        on_log: Callable[[str], None] | None = None,
    ) -> TaskResult:
        """Wait until the task ended well, ``timeout`` seconds at most.

        ``on_log`` gets each line of the log once, while the task runs. Raises TaskFailed (with
        the last lines of the log), TaskTimeout, NotFound (no such task), Unreachable (no answer
        until the time-out). A connection that breaks meanwhile is tried again until then.
        """
        waiter = _Waiter(upid, time.monotonic(), timeout)
        with self._changed:
            self._waiters.add(waiter)
        try:
            log: list[str] = []
            while waiter.exitstatus is None:
                self._step(waiter)
                if on_log is not None and waiter.log_is_due():
                    self._follow(waiter, log, on_log)
        finally:
            with self._changed:
                self._waiters.discard(waiter)
                self._changed.notify_all()
        if on_log is not None:
            self._follow(waiter, log, on_log)
        return self._judge(waiter, tuple(log), followed=on_log is not None)

    def _step(self, waiter: _Waiter) -> None:
        """Sleep until something is due, then do it: the shared read, the own one, or give up."""
        with self._changed:
            # Asked again under the lock: the shared reader may just have told.
            if waiter.exitstatus is not None:
                return
            now = time.monotonic()
            if now >= waiter.deadline:
                raise self._too_late(waiter)
            shared = len(self._waiters) >= SHARED_FROM and now >= self._alone_until
            due = waiter.next_look(shared=shared)
            if shared and not self._reading:
                due = min(due, self._next_read)
            if now < due:
                self._changed.wait(min(due, waiter.deadline) - now)
                return
            lead = shared and not self._reading and now >= self._next_read
            self._reading = self._reading or lead
        if lead:
            self._read_list()
            return
        self._read_own(waiter)

    def _too_late(self, waiter: _Waiter) -> ProxmoxError:
        if waiter.trouble is not None:
            return Unreachable(
                f"{waiter.trouble.message}; the task may still run: {waiter.upid}",
                effect_unknown=True,
                advice=waiter.trouble.advice,
            )
        return TaskTimeout(
            waiter.upid,
            waiter.timeout,
            advice="it may still run: look at the node's task list before doing it again",
        )

    def _read_own(self, waiter: _Waiter) -> None:
        try:
            status = self._client.get(waiter.path + "/status")
        except ProxmoxError as error:
            if not error.transient:
                raise
            waiter.trouble = error
        else:
            waiter.trouble = None
            if status.get("status") == "stopped":
                waiter.exitstatus = str(status.get("exitstatus") or "unexpected end")
        waiter.looked = time.monotonic()

    def _read_list(self) -> None:
        rows: list[dict[str, Any]] | None = None
        try:
            rows = self._client.get("/cluster/tasks")
        except ProxmoxError:
            # Whoever may not read the list, or gets no answer, still asks for his own task.
            pass
        finally:
            with self._changed:
                if rows is None:
                    self._alone_until = time.monotonic() + WITHOUT_LIST
                self._settle(rows or [])

    def _settle(self, rows: list[dict[str, Any]]) -> None:
        now = time.monotonic()
        listed = {str(row.get("upid")) for row in rows}
        ended = _ended(rows)
        for waiter in self._waiters:
            if waiter.exitstatus is None and waiter.upid in ended:
                waiter.exitstatus = ended[waiter.upid]
                waiter.trouble = None
            waiter.listed = waiter.upid in listed
        ages = [now - waiter.started for waiter in self._waiters if waiter.exitstatus is None]
        self._reading = False
        self._next_read = now + min(SHARED_POLL, interval(min(ages, default=0.0)))
        self._changed.notify_all()

    def _follow(self, waiter: _Waiter, log: list[str], on_log: Callable[[str], None]) -> None:
        ended = waiter.exitstatus is not None
        while True:
            try:
                rows = self._client.get(waiter.path + "/log", start=waiter.lines, limit=PAGE)
            except ProxmoxError as error:
                if error.transient:
                    return
                raise
            if not ended and _is_placeholder(rows):
                return
            for row in rows:
                line = str(row.get("t", ""))
                log.append(line)
                on_log(line)
            waiter.lines += len(rows)
            if len(rows) < PAGE:
                return

    def _judge(self, waiter: _Waiter, log: tuple[str, ...], *, followed: bool) -> TaskResult:
        status = waiter.exitstatus or ""
        if status == "OK":
            return TaskResult(waiter.upid, status, log=log)
        if not followed:
            log = self._log(waiter)
        if _WARNINGS.fullmatch(status):
            return TaskResult(waiter.upid, status, warnings=_warnings(log), log=log)
        raise TaskFailed(waiter.upid, status, log[-TAIL:], reason=understand(status))

    def _log(self, waiter: _Waiter) -> tuple[str, ...]:
        try:
            rows = self._client.get(waiter.path + "/log", limit=0)
        except ProxmoxError:
            return ()
        return tuple(str(row.get("t", "")) for row in rows)


def _ended(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Exit status by UPID. Recorded: rows of running tasks have no end and no exit text."""
    return {
        str(row["upid"]): str(row["status"])
        for row in rows
        if "endtime" in row and row.get("status") not in (None, "", "RUNNING")
    }


def _is_placeholder(rows: list[dict[str, Any]]) -> bool:
    """A running task without output shows this one line. Recorded in 10-tasks-and-locks."""
    return len(rows) == 1 and rows[0].get("n") == 1 and rows[0].get("t") == "no content"


def _warnings(log: tuple[str, ...]) -> tuple[str, ...]:
    """The warnings of a log. A sentence that the server broke over two lines is put together."""
    found: list[str] = []
    unfinished = False
    for line in log:
        start = _WARNING_LINE.match(line)
        if start:
            found.append(start["text"])
        elif unfinished and line[:1].islower():
            found[-1] += " " + line
        else:
            unfinished = False
            continue
        unfinished = not found[-1].endswith(".")
    return tuple(found)
