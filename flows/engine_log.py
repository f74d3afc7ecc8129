"""What Prefect's engine logs of a run that ended as failed in words of its own."""

from __future__ import annotations

import logging
from typing import Final

from prefect.exceptions import FailedRun

# The logger of a flow run, and the one of the process around it.
_LOGGERS: Final = ("prefect.flow_runs", "prefect.engine")


class _NoFailedRun(logging.Filter):
    """In a worker the engine raises a failed state once more, and calls that unexpected.

    The state's words were logged before, and a fault of ours keeps its traceback where it was
    caught.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record but those of an exception that only stands for a state."""
        return not (record.exc_info and isinstance(record.exc_info[1], FailedRun))


def quiet_engine() -> None:
    """Leave such records out from now on, in this process. May be called again."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(known, _NoFailedRun) for known in logger.filters):
            logger.addFilter(_NoFailedRun())
