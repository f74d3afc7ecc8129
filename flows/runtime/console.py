"""Prefect's own lines stay off the terminal of a local run; its API still gets all of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from prefect.logging.handlers import PrefectConsoleHandler

_ENGINES = ("flow_engine.py", "task_engine.py")
# Outcomes and warnings of stages, which are shown as events.
_STAGES = "stage.py"
# Said by the queues of events and log lines at the end; a run waits for them and says what is lost.
_STILL_SENDING = "Still processing items"


class _OursOnly(logging.Filter):
    """Warnings of anybody, but not what Prefect's engines say about a run: we say that better."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return False
        if record.filename in _ENGINES:
            return "running hook" in record.getMessage()
        if record.filename == _STAGES or record.getMessage().startswith(_STILL_SENDING):
            return False
        return not (record.exc_info and record.name.startswith("prefect"))


@contextlib.contextmanager
def quiet_console() -> Iterator[None]:
    """Show warnings and errors that are not already part of the run's own report."""
    ours = _OursOnly()
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, PrefectConsoleHandler)
    ]
    for handler in handlers:
        handler.addFilter(ours)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(ours)
