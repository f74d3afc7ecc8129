"""Nothing that this process did may be missing from Prefect's history.

Task runs reach the server as events, on a socket, and its database some time after that. A
temporary server that ends meanwhile loses them, so a run waits until they have arrived.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

BOUND: Final = 15.0
_PAGE: Final = 200


def flush(seconds: float = BOUND) -> None:
    """Send what is queued in this process: events and log lines."""
    EventsWorker.drain_all(timeout=seconds, at_exit=False)
    APILogWorker.drain_all(timeout=seconds, at_exit=False)


def settle(task_runs: Iterable[UUID], seconds: float = BOUND) -> int:
    """Send everything, wait until the server has the end of these task runs; how many it lacks.

    What else was sent before them has arrived then too: the server records in order.
    """
    flush(seconds)
    deadline = time.monotonic() + seconds
    missing = set(task_runs)
    while missing := missing - _ended(missing):
        if time.monotonic() >= deadline:
            break
        time.sleep(0.1)
    return len(missing)


def _ended(task_runs: set[UUID]) -> set[UUID]:
    ids = list(task_runs)
    ended: set[UUID] = set()
    if not ids:
        return ended
    with get_client(sync_client=True) as client:
        for start in range(0, len(ids), _PAGE):
            page = ids[start : start + _PAGE]
            found = client.read_task_runs(
                task_run_filter=TaskRunFilter.model_validate({"id": {"any_": page}}), limit=_PAGE
            )
            ended.update(run.id for run in found if run.state is not None and run.state.is_final())
    return ended
