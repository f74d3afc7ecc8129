"""What goes on in a lab while the code under test waits for it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from deployments.lab.testing import RunningLab

_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 120
_TASKS = re.compile(r".*/tasks(/UPID:[^/]+/status)?")


@contextmanager
def lasting_until(
    lab: RunningLab, seen: Callable[[dict[str, Any]], bool], times: int = 1
) -> Iterator[None]:
    """Tasks last until that many calls of such a kind have been answered; then all of them end.

    So a test proves that something was waited for, however slow the machine is. Begins a new list
    of calls.
    """
    lab.forget_requests()
    met, over = threading.Event(), threading.Event()

    def watch() -> None:
        late = time.monotonic() + _PATIENCE_SECONDS
        while not over.wait(_LOOK_SECONDS) and time.monotonic() < late:
            if sum(1 for call in lab.requests() if seen(call)) >= times:
                met.set()
                break
        lab.set_time(scale=0)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
        assert met.is_set(), "what the tasks were to last for did not happen"
    finally:
        over.set()
        watching.join()


def lasting_until_asked_for(lab: RunningLab) -> AbstractContextManager[None]:
    """Tasks last until somebody has asked twice what they are doing; then all of them end."""
    return lasting_until(lab, _asks_for_tasks, times=2)


def _asks_for_tasks(call: dict[str, Any]) -> bool:
    return call["method"] == "GET" and bool(_TASKS.fullmatch(call["path"]))
