"""Which task runs a test has to answer for."""

from __future__ import annotations

import sys
from uuid import UUID

_earlier: set[UUID] = set()


def begin_test() -> None:
    """From here on a new test runs."""
    _earlier.update(_of_this_process())


def runs_of_this_test() -> frozenset[UUID]:
    """Task runs since the test began; those of other tests may be on servers that have ended."""
    return _of_this_process() - _earlier


def _of_this_process() -> frozenset[UUID]:
    # A test that needs no Prefect should not pay for its import.
    if "tasks.stage" not in sys.modules:
        return frozenset()
    from tasks.stage import task_runs_of_this_process

    return task_runs_of_this_process()
