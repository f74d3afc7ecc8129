"""The flow ``up`` in this process, with the time that it waits for the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tasks.wait
from blocks.proxmox.client import Client
from flows.progress import listening
from flows.results import UpResult
from flows.runtime import run_flow
from flows.up import up
from tasks.stage import Event


@dataclass
class Clock:
    """Seconds spent in calls to the cluster and in looking for its guests, over all threads."""

    seconds: float = 0.0
    calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                with self._lock:
                    self.seconds += time.perf_counter() - began
                    self.calls += 1

        return wrapped


@contextmanager
def cluster_time() -> Iterator[tuple[Clock, Clock]]:
    """Count calls to the API, and apart from them the pauses and looks of stage ``wait``."""
    calls, looks = Clock(), Clock()
    with ExitStack() as stack:
        for target, name, clock in (
            (Client, "_translated", calls),
            (tasks.wait, "ssh_banner", looks),
            (tasks.wait, "pause", looks),
        ):
            stack.enter_context(patch.object(target, name, clock.timed(getattr(target, name))))
        yield calls, looks


@dataclass(frozen=True)
class Brought:
    """An ``up`` that ended well: its result, seconds of the whole flow, events with their time.

    ``processor``: seconds that this process computed, which other work on the machine hardly
    changes.
    """

    result: UpResult
    seconds: float
    processor: float
    events: tuple[tuple[float, Event], ...]


def bring_up(manifest: Path, *, parallel: int, dry_run: bool = False) -> Brought:
    """Run the flow inside a Prefect runtime. Raises RuntimeError where it fails."""
    events: list[tuple[float, Event]] = []
    began, computed = time.perf_counter(), time.process_time()
    with listening(lambda event: events.append((time.perf_counter() - began, event))):
        ended = run_flow(
            up,
            manifest=str(manifest),
            cluster="lab",
            parallel=parallel,
            dry_run=dry_run,
            boot_timeout=120.0,
        )
    seconds, processor = time.perf_counter() - began, time.process_time() - computed
    if not ended.ok:
        raise RuntimeError(f"up did not end well: {ended.state.message}") from ended.failure
    return Brought(UpResult.model_validate(ended.result), seconds, processor, tuple(events))
