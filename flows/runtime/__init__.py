"""Prefect for a run from the command line, with a server or without.

::

    runtime.warm()                      # while the user reads the plan
    with runtime.prefect_runtime(say):
        ended = runtime.run_flow(up, manifest="shop.yaml")

The server that ``PREFECT_API_URL`` or the active profile names is used; else one that runs at the
usual address; else a temporary one is started, which ends with this process however that ends,
and keeps a complete history in ``PREFECT_HOME``.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, cast
from uuid import UUID

from prefect import Flow
from prefect.client.schemas.objects import State
from prefect.context import refresh_global_settings_context
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    temporary_settings,
)

from flows.runtime.console import quiet_console
from flows.runtime.history import BOUND, flush, settle
from flows.runtime.network import unproxied
from flows.runtime.server import RuntimeUnavailable, TemporaryServer, find_server
from tasks.limits import PRIVATE_API
from tasks.stage import task_runs_of_this_process

__all__ = [
    "FlowRunResult",
    "Runtime",
    "RuntimeUnavailable",
    "pointed_at",
    "prefect_runtime",
    "run_flow",
    "warm",
]

Say = Callable[[str], None]

_BOUND_AFTER_EXCEPTION: Final = 5.0
# In the text of the bare RuntimeError that Prefect's engine raises (prefect 3.9.1).
_UNREACHED: Final = "Failed to reach API"

_warmed: list[TemporaryServer] = []
_warm_lock = threading.Lock()


@dataclass(frozen=True)
class Runtime:
    """Where a run is recorded. ``temporary``: the server ends with this process."""

    url: str
    temporary: bool


@dataclass(frozen=True)
class FlowRunResult:
    """How a flow run ended.

    ``result``: what the flow returned, None unless it returned a value. ``failure``: the exception
    that ended it, None if there was none or the flow returned a failed state.
    """

    state: State[Any]
    result: Any
    run_id: UUID | None
    failure: BaseException | None

    @property
    def ok(self) -> bool:
        """The run is Completed."""
        return self.state.is_completed()


def warm() -> None:
    """Start the temporary server, if one will be needed, without waiting for it.

    Costs some 20 ms. What is wrong with a named server is said by :func:`prefect_runtime`.
    """
    with _warm_lock, contextlib.suppress(RuntimeUnavailable):
        if not _warmed and find_server() is None:
            _warmed.append(TemporaryServer())


@contextlib.contextmanager
def prefect_runtime(say: Say | None = None) -> Iterator[Runtime]:
    """Make Prefect usable inside: API, quiet console, no heartbeats, complete history.

    ``say`` gets one line when the user has to wait for something. Raises
    :class:`RuntimeUnavailable`.
    """
    notice: Say = say or (lambda _text: None)
    url = find_server()
    server: TemporaryServer | None = None
    if url is None:
        with _warm_lock:
            server = _warmed.pop() if _warmed else TemporaryServer()
        url = server.url
    with contextlib.ExitStack() as stack:
        if server is not None:
            stack.callback(server.stop)
            stack.enter_context(_orderly_end(server))
            # The engine imports it at its first flow, half a second that is free meanwhile.
            importlib.import_module("fastapi.encoders")
            notice("starting a Prefect server for this run")
            server.wait()
            stack.enter_context(pointed_at(url))
        elif PREFECT_API_URL.value() is None:
            stack.enter_context(pointed_at(url, private=False))
        else:
            stack.enter_context(_variables(unproxied(url)))
        stack.enter_context(quiet_console())
        # A heartbeat thread is joined at the end of every synchronous flow, which takes a second.
        stack.enter_context(temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}))
        before = task_runs_of_this_process()
        bound = _BOUND_AFTER_EXCEPTION
        try:
            yield Runtime(url=url, temporary=server is not None)
            bound = BOUND
        finally:
            made = task_runs_of_this_process() - before
            if server is not None and (missing := settle(made, bound)):
                notice(f"{missing} task runs are missing from Prefect's history")


def run_flow(flow: Flow[..., Any], /, **parameters: object) -> FlowRunResult:
    """Run a flow, and return how it ended instead of raising.

    SIGINT still raises ``KeyboardInterrupt``, after the flow run has been recorded as Crashed and
    its hooks have run; SIGTERM ends the process. Raises :class:`RuntimeUnavailable` when the API
    cannot be reached, so that the run could not begin.
    """
    try:
        state = cast(State[Any], flow(**parameters, return_state=True))
    except RuntimeError as error:
        # The engine's own: an exception of the flow is in the state.
        if _UNREACHED not in str(error):
            raise
        raise RuntimeUnavailable(
            f"The Prefect API at {PREFECT_API_URL.value()} answers, but not to Prefect's client.\n"
            "  next: look at the proxy in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY (NO_PROXY exempts a"
            " host), and at PREFECT_API_AUTH_STRING."
        ) from None
    failure: BaseException | None = None
    result: Any = None
    value = state.result(raise_on_failure=False)
    if isinstance(value, BaseException):
        failure = value
    elif not isinstance(value, State):
        result = value
    return FlowRunResult(
        state=state, result=result, run_id=state.state_details.flow_run_id, failure=failure
    )


@contextlib.contextmanager
def pointed_at(url: str | None, *, private: bool = True) -> Iterator[None]:
    """Point this process, all of its threads and the processes it starts at a server.

    With None, at none. ``private``: nobody on another machine uses it. A proxy is kept out of the
    way to a server on the loopback interface.
    """
    api = {"PREFECT_API_URL": url, PRIVATE_API: url if private else None}
    with _variables({**api, **unproxied(url)}):
        yield


@contextlib.contextmanager
def _variables(wanted: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # Threads that were started without a context read this one.
    refresh_global_settings_context()


@contextlib.contextmanager
def _orderly_end(server: TemporaryServer) -> Iterator[None]:
    """After SIGTERM: send what is queued, end the server, and die of the signal as before.

    Inside a flow Prefect's own handler comes first, records the crash, runs the hooks and then
    hands the signal on to this one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(Exception):
            flush(2.0)
        server.stop(2.0)
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
