"""Nothing that this process did may be missing from Prefect's history.

Task runs reach the server as events, on a socket, some time after they happened. This module
counts those that leave, and waits until the server has them.
"""

from __future__ import annotations

import threading
import time
from typing import Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter
from prefect.events.clients import PrefectEventsClient
from prefect.events.schemas.events import Event
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

BOUND: Final = 15.0
_PREFIX: Final = "prefect.task-run."
_PAGE: Final = 200

_sent: dict[UUID, str] = {}
_lock = threading.Lock()


class _CountingClient(PrefectEventsClient):
    """Prefect's own events client, which also notes the last state of every task run."""

    async def _emit(self, event: Event) -> None:
        await super()._emit(event)
        if event.event.startswith(_PREFIX):
            run = UUID(event.resource.id.removeprefix(_PREFIX))
            with _lock:
                _sent[run] = event.event.removeprefix(_PREFIX)


def watch_history() -> None:
    """Count the task runs of this process from now on."""
    EventsWorker.set_client_override(_CountingClient)


def unwatch_history() -> None:
    """Stop counting."""
    EventsWorker.set_client_override(None)
    with _lock:
        _sent.clear()


def flush(seconds: float = BOUND) -> None:
    """Send what is queued in this process: events and log lines."""
    EventsWorker.drain_all(timeout=seconds, at_exit=False)
    APILogWorker.drain_all(timeout=seconds, at_exit=False)


def settle(seconds: float = BOUND) -> int:
    """Send everything and wait until the server has recorded it; the number still missing."""
    flush(seconds)
    deadline = time.monotonic() + seconds
    while missing := _missing():
        if time.monotonic() >= deadline:
            return len(missing)
        time.sleep(0.1)
    return 0


def _missing() -> dict[UUID, str]:
    with _lock:
        wanted = dict(_sent)
    ids = list(wanted)
    with get_client(sync_client=True) as client:
        for start in range(0, len(ids), _PAGE):
            page = ids[start : start + _PAGE]
            found = client.read_task_runs(
                task_run_filter=TaskRunFilter.model_validate({"id": {"any_": page}}), limit=_PAGE
            )
            for run in found:
                if run.state_name == wanted[run.id]:
                    del wanted[run.id]
    with _lock:
        for done in set(ids) - set(wanted):
            _sent.pop(done, None)
    return wanted
