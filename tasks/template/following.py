"""Long tasks on a guest: one at a time, with their progress said."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

from blocks.manifest.guest import Guest
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import ProxmoxError, TaskFailed
from blocks.proxmox.inventory import permissions
from blocks.proxmox.waiting import is_upid
from tasks.live import config_path
from tasks.progress import Meter
from tasks.stage import StageCancelled, current_scope

LONG: Final = 4 * 3600.0
"""Seconds that an import may take."""
NOTICED: Final = 0.5
"""Seconds until a task notices that the run stops."""

_TRANSFERRED = re.compile(r"transferred .*\((?P<percent>\d+)(?:\.\d+)?%\)")


def configure_in_task(client: Client, guest: Guest, job: str, **params: Any) -> tuple[str, ...]:
    """Write a guest's configuration in a task and wait for that; gives its warnings.

    The percentage of its log is said as the progress of ``job``. Where the run stops, so does the
    task. Raises ProxmoxError or StageCancelled.
    """
    upid = client.post(config_path(guest), **params)
    if not is_upid(upid):
        return ()
    return _wait(client, guest, str(upid), job)


def wait_for_earlier(client: Client, guest: Guest, kind: str | None, job: str) -> bool:
    """Wait for a task of that kind, or of any, that works on the guest now; whether there was one.

    A connection that broke leaves the task of its call running: a second import beside it would
    make the disk twice, a second conversion would be refused. ``kind``: ``qmconfig``,
    ``qmtemplate``. One call. Raises ProxmoxError.
    """
    rows: list[dict[str, Any]] = client.get(
        f"/nodes/{guest.node}/tasks", vmid=guest.vmid, source="active", typefilter=kind
    )
    for row in rows:
        # How it ended is seen in the configuration.
        with contextlib.suppress(TaskFailed):
            _wait(client, guest, str(row["upid"]), job)
    return bool(rows)


def sees_all_tasks(client: Client, node: str) -> bool:
    """Whether the caller sees the tasks of others on a node; his own tell nothing of theirs.

    Two calls. Raises ProxmoxError.
    """
    path = api_path("nodes", node)
    return "Sys.Audit" in permissions(client, path).by_path[path]


def _wait(client: Client, guest: Guest, upid: str, job: str) -> tuple[str, ...]:
    meter = Meter()
    percent = 0

    def read(line: str) -> None:
        nonlocal percent
        if found := _TRANSFERRED.match(line):
            percent = int(found["percent"])
        meter.percent(job, percent)

    with _stopped_with_the_run(client, f"/nodes/{guest.node}/tasks/{upid}"):
        return client.wait(upid, timeout=LONG, on_log=read).warnings


@contextlib.contextmanager
def _stopped_with_the_run(client: Client, task: str) -> Iterator[None]:
    """Stop the task when the run stops; then StageCancelled is what comes out.

    A task may go on for long without a line in its log, so it is a thread that looks.
    """
    stop, over = current_scope().stop, threading.Event()

    def interrupt() -> None:
        with contextlib.suppress(ProxmoxError):
            client.delete(task)

    def watch() -> None:
        while not over.wait(NOTICED):
            if stop.is_set():
                interrupt()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except TaskFailed as failure:
        if stop.is_set():
            raise StageCancelled(f"the run is stopping: {failure.exitstatus}") from None
        raise
    except StageCancelled:
        interrupt()
        raise
    finally:
        over.set()
