"""Which task runs a test has to answer for, and that they reach the server."""

from __future__ import annotations

import sys
from uuid import UUID

_earlier: set[UUID] = set()
_GOODBYE = 5.0


def begin_test() -> None:
    """From here on a new test runs."""
    _earlier.update(_of_this_process())


def end_test() -> None:
    """Send what the test is to tell Prefect's server.

    Once a connection for events answered nobody for five minutes, and what test after test had to
    tell waited behind the first event and was lost. The next test begins with a new connection.
    """
    if "prefect.events.worker" in sys.modules:
        from flows.runtime.history import flush

        flush(_GOODBYE)


def runs_of_this_test() -> frozenset[UUID]:
    """Task runs since the test began; those of other tests may be on servers that have ended."""
    return _of_this_process() - _earlier


def _of_this_process() -> frozenset[UUID]:
    # A test that needs no Prefect should not pay for its import.
    if "tasks.stage" not in sys.modules:
        return frozenset()
    from tasks.stage import task_runs_of_this_process

    return task_runs_of_this_process()
