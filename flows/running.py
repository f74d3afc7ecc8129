"""A flow run from the command line: Prefect's runtime around it, its progress on the terminal."""

from __future__ import annotations

from typing import Any

from prefect import Flow

from flows.progress import Board, listening
from flows.runtime import FlowRunResult, RuntimeUnavailable, prefect_runtime, run_flow
from flows.terminal import err, fail, say


def run_locally(flow: Flow[..., Any], /, **parameters: object) -> FlowRunResult:
    """Run the flow here and show its progress. Leaves where Prefect is not to be had.

    A fault that the flow told in words is raised again, to be shown like any other.
    """
    try:
        with prefect_runtime(say), Board(err) as board, listening(board):
            ended = run_flow(flow, **parameters)
    except RuntimeUnavailable as error:
        fail(str(error))
    if ended.failure is not None:
        raise ended.failure
    return ended
