"""Worker tasks: UPIDs, logs, results, lists; each is an asyncio task and a file on disk."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deployments.lab.access import Identity
from deployments.lab.errors import ApiError, bad_parameter
from deployments.lab.faults import Faults
from deployments.lab.files import read_json, write_json

if TYPE_CHECKING:
    from deployments.lab.faultrules import TaskFault

_UPID = re.compile(
    r"UPID:(?P<node>[A-Za-z0-9-]+):(?P<pid>[0-9A-F]{8}):(?P<pstart>[0-9A-F]{8,9})"
    r":(?P<start>[0-9A-F]{8}):(?P<type>[^:\s]+):(?P<id>[^:\s]*):(?P<user>[^:\s]+):"
)
_FOREVER = 1 << 31


@dataclass
class Task:
    """One task. Times are whole epoch seconds; ``exitstatus`` is None while it runs."""

    upid: str
    node: str
    pid: int
    pstart: int
    starttime: int
    type: str
    id: str
    authid: str
    endtime: int | None = None
    exitstatus: str | None = None
    lines: list[str] = field(default_factory=list)
    warnings: int = 0

    def log(self, *lines: str) -> None:
        """Append lines to the log."""
        self.lines.extend(lines)

    def warn(self, *lines: str) -> None:
        """Append a warning; the task will end in ``WARNINGS: n``."""
        self.warnings += 1
        self.lines.extend(lines)

    @property
    def user(self) -> str:
        """The user without the token's name."""
        return self.authid.partition("!")[0]

    def owned_by(self, authid: str) -> bool:
        """Whether it is that caller's own: a token has its tasks only, a user its tokens', too."""
        return authid in (self.authid, self.user)

    def identity_fields(self) -> dict[str, Any]:
        """``user`` and, for tokens, ``tokenid``."""
        user, mark, token = self.authid.partition("!")
        return {"user": user, "tokenid": token} if mark else {"user": user}

    def full_log(self) -> list[str]:
        """The log as a client sees it, with the closing TASK line."""
        if self.exitstatus is None:
            return self.lines or ["no content"]
        if self.exitstatus == "OK" or self.exitstatus.startswith("WARNINGS: "):
            return [*self.lines, f"TASK {self.exitstatus}"]
        if self.exitstatus == "unexpected status":
            return self.lines
        return [*self.lines, f"TASK ERROR: {self.exitstatus}"]

    @property
    def failed(self) -> bool:
        """Whether it ended badly; warnings are no failure."""
        status = self.exitstatus
        return status is not None and status != "OK" and not status.startswith("WARNINGS: ")


Work = Callable[[Task], Awaitable[None]]


class Tasks:
    """All tasks of all nodes."""

    def __init__(self, folder: Path, faults: Faults) -> None:
        self._folder = folder
        self._faults = faults
        self._running: dict[str, asyncio.Task[None]] = {}
        self.all: dict[str, Task] = {}
        for file in sorted(folder.glob("*.json")):
            task = Task(**read_json(file, {}))
            if task.exitstatus is None:
                # Its process is gone, and nobody has written down how it ended.
                task.endtime, task.exitstatus = int(time.time()), "unexpected status"
                self._save(task)
            self.all[task.upid] = task
        self._next_pid = max((t.pid for t in self.all.values()), default=1000) + 1
        self._born = time.monotonic()

    def start(self, node: str, kind: str, task_id: str, identity: Identity, work: Work) -> str:
        """Begin ``work`` in the background; returns the UPID.

        An ApiError raised by the work becomes the exit status.
        """
        now = int(time.time())
        pid, pstart = self._next_pid, int((time.monotonic() - self._born) * 100) + 4096
        self._next_pid += 1
        upid = f"UPID:{node}:{pid:08X}:{pstart:08X}:{now:08X}:{kind}:{task_id}:{identity.authid}:"
        task = Task(upid, node, pid, pstart, now, kind, task_id, identity.authid)
        self.all[upid] = task
        self._save(task)
        rule = self._faults.for_task(kind, task_id)
        self._running[upid] = asyncio.create_task(self._run(task, work, rule))
        return upid

    async def _run(self, task: Task, work: Work, rule: TaskFault | None) -> None:
        try:
            if rule is None:
                await work(task)
            else:
                await _with_fault(task, work, rule)
            task.exitstatus = f"WARNINGS: {task.warnings}" if task.warnings else "OK"
        except ApiError as error:
            task.exitstatus = error.as_exit_status()
        except asyncio.CancelledError:
            task.exitstatus = "received interrupt"
        except Exception as error:
            task.exitstatus = f"lab error: {type(error).__name__}: {error}"
            raise
        finally:
            task.endtime = int(time.time())
            self._save(task)
            self._running.pop(task.upid, None)

    def _save(self, task: Task) -> None:
        write_json(
            self._folder / f"{task.starttime:08X}-{task.pid:08X}-{task.type}.json", asdict(task)
        )

    async def stop(self, upid: str) -> None:
        """Interrupt a running task and wait until it has let go."""
        runner = self._running.get(upid)
        if runner is not None:
            runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await runner

    async def stop_all(self) -> None:
        """Interrupt everything, at shutdown of the lab."""
        for upid in list(self._running):
            await self.stop(upid)

    async def settled(self) -> None:
        """Wait until no task runs."""
        while self._running:
            await asyncio.wait(list(self._running.values()))

    def running(self, kind: str | None = None, task_id: str | None = None) -> list[Task]:
        """Tasks that run now."""
        return [
            self.all[upid]
            for upid in self._running
            if kind in (None, self.all[upid].type) and task_id in (None, self.all[upid].id)
        ]

    def find(self, upid: str) -> Task | None:
        """The task of a UPID; 400 when the text is no UPID."""
        if not _UPID.fullmatch(upid):
            raise bad_parameter(upid="unable to parse worker upid")
        return self.all.get(upid)

    def newest_first(self, node: str | None = None) -> list[Task]:
        """All tasks of a node (or all), the latest start first."""
        chosen = [t for t in self.all.values() if node in (None, t.node)]
        return sorted(chosen, key=lambda t: (t.starttime, t.pid), reverse=True)


async def _with_fault(task: Task, work: Work, rule: TaskFault) -> None:
    if rule.when == "after":
        await work(task)
    task.log(*rule.log)
    if rule.endless:
        await asyncio.sleep(_FOREVER)
    if rule.exitstatus is not None:
        raise ApiError(500, rule.exitstatus)
    if rule.when == "before":
        await work(task)
    for _ in range(rule.warnings):
        task.warn("WARN: ordered by the lab")
