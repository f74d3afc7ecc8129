"""What goes on in a lab while the code under test waits for it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deployments.lab.testing import RunningLab

_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 120
_STATUS = re.compile(r".*/tasks(/UPID:[^/]+/status)?")


@contextmanager
def lasting_until_asked_for(lab: RunningLab, times: int = 2) -> Iterator[None]:
    """Tasks last, until somebody has asked that often what they are doing; then all of them end.

    So a test proves that something was waited for, however slow the machine is. Begins a new list
    of calls.
    """
    lab.forget_requests()
    asked, over = threading.Event(), threading.Event()

    def watch() -> None:
        late = time.monotonic() + _PATIENCE_SECONDS
        while not over.wait(_LOOK_SECONDS) and time.monotonic() < late:
            calls = [row["path"] for row in lab.requests() if row["method"] == "GET"]
            if sum(1 for path in calls if _STATUS.fullmatch(path)) >= times:
                asked.set()
                break
        lab.set_time(scale=0)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
        assert asked.is_set(), "nobody has asked for a task"
    finally:
        over.set()
        watching.join()
