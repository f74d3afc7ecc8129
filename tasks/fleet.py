"""The node runner: many guests, each with its stages in order, a bounded number at once.

One task run a guest and stage, called directly in a worker thread inside a copy of the flow run's
context: no futures that block a pool, no subflows.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tasks.lanes import FIRST_NOTICE, NEXT_NOTICES, Lane, lane
from tasks.limits import (
    UNRECORDED,
    api_is_private,
    ensure_limits,
    free_unrecorded_slots,
    who_holds,
)
from tasks.stage import (
    Event,
    Outcome,
    RunRef,
    Scope,
    StageCancelled,
    StageFailed,
    current_scope,
    tagged,
)

OnEvent = Callable[[Event], None]

TERMINATION_GRACE: Final = 10.0
"""Seconds that running stages get after SIGTERM, before the process goes on without them."""

_INTERRUPTED: Final = "the run was interrupted"

# Prefect's server on SQLite answers 503 to slots that are asked for at once, and its client then
# tries again seconds later: they are asked for one after the other. A slot that another run has
# does not hold up the others for longer than FIRST_NOTICE.
_asking = threading.Lock()


@dataclass(frozen=True)
class StageCall:
    """One stage of one guest.

    ``act``: what to do, usually ``stage.call(...)``. ``after``: (guest, stage) pairs that must
    have ended well before; a guest that waits for one occupies no worker. ``lane``: held around
    the stage; its tag is given to the task run. ``cancel`` records the stage as cancelled.
    """

    name: str
    act: Callable[[RunRef, str], Outcome]
    cancel: Callable[[RunRef, str, str], None] | None = None
    lane: Lane | None = None
    after: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NodeJob:
    """A guest and its stages, in order."""

    node: str
    run: RunRef
    stages: tuple[StageCall, ...]


@dataclass(frozen=True)
class NodeResult:
    """What became of a guest: outcomes by stage, the failure if any, what was cancelled."""

    node: str
    outcomes: dict[str, Outcome]
    failure: StageFailed | None
    cancelled: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Every stage ended well."""
        return self.failure is None and not self.cancelled


@dataclass(frozen=True)
class FleetResult:
    """What became of every guest, in the order they were given."""

    nodes: tuple[NodeResult, ...]

    @property
    def failures(self) -> tuple[StageFailed, ...]:
        """Every failure, in the order of the guests."""
        return tuple(node.failure for node in self.nodes if node.failure is not None)

    @property
    def ok(self) -> bool:
        """Every stage of every guest ended well."""
        return all(node.ok for node in self.nodes)


@dataclass
class _Track:
    """Where a guest is on its way."""

    job: NodeJob
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failure: StageFailed | None = None
    cancelled: tuple[str, ...] = ()
    began: float | None = None
    ended: float | None = None

    @property
    def next_stage(self) -> StageCall:
        return self.job.stages[len(self.outcomes)]

    @property
    def finished(self) -> bool:
        return self.ended is not None


def run_fleet(
    nodes: Sequence[NodeJob],
    *,
    parallel: int,
    continue_on_error: bool = False,
    on_event: OnEvent = lambda _event: None,
    termination_grace: float = TERMINATION_GRACE,
) -> FleetResult:
    """Run the stages of all guests, at most ``parallel`` guests at once.

    A failure lets running stages finish and cancels the rest of all guests; with
    ``continue_on_error`` only the rest of that guest, and the guests that wait for it. A cancelled
    stage is an event and a task run in state Cancelled. ``on_event`` is called under a lock.

    SIGINT lets running stages finish (a second one does not wait for them), SIGTERM gives them
    ``termination_grace`` seconds; then the exception goes on, to end the flow run as Crashed.
    Raises ``ValueError`` for duplicate names, unknown dependencies or a circle of them.
    """
    _check(nodes)
    if parallel < 1:
        raise ValueError(f"parallel must be 1 or more, not {parallel}")
    if not api_is_private():
        ensure_limits(call.lane.tag for job in nodes for call in job.stages if call.lane)
    fleet = _Fleet(nodes, continue_on_error=continue_on_error, on_event=on_event)
    with fleet.scope():
        try:
            fleet.start(min(parallel, len(nodes)))
            fleet.join()
        except BaseException as interruption:
            bound = None if isinstance(interruption, KeyboardInterrupt) else termination_grace
            fleet.interrupt(bound)
            raise
        fleet.record_cancelled()
    return fleet.result()


class _Fleet:
    """The shared state of one :func:`run_fleet` call; everything mutable is under ``_turn``."""

    def __init__(
        self, nodes: Sequence[NodeJob], *, continue_on_error: bool, on_event: OnEvent
    ) -> None:
        self._tracks = [_Track(job) for job in nodes]
        self._by_node = {track.job.node: track for track in self._tracks}
        self._parked = list(self._tracks)
        self._ready: deque[_Track] = deque()
        self._continue_on_error = continue_on_error
        self._turn = threading.Condition()
        self._event_lock = threading.RLock()
        self._on_event = on_event
        self._halt_reason: str | None = None
        self._interrupted = False
        self._workers = 0
        self._idle = threading.Event()
        self._surprise: BaseException | None = None
        self._reasons: dict[str, str] = {}
        self.scope = Scope(emit=self._emit)

    def start(self, workers: int) -> None:
        with self._turn:
            self._promote()
            self._workers = 1
        try:
            for number in range(workers):
                with self._turn:
                    self._workers += 1
                threading.Thread(
                    target=contextvars.copy_context().run,
                    args=(self._work,),
                    name=f"fleet-{number + 1}",
                    daemon=True,
                ).start()
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._turn:
            self._workers -= 1
            if not self._workers:
                self._idle.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the workers; returns early after ``seconds``.

        Not by ``Thread.join``: in Python 3.11 one that a signal interrupts takes the thread for
        ended, and a rollback would begin while a stage still creates things.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._idle.wait(0.2):
            if deadline is not None and time.monotonic() >= deadline:
                return
        if self._surprise is not None and not self._interrupted:
            raise self._surprise

    def interrupt(self, seconds: float | None) -> None:
        """Start nothing more; wait for what runs, at most ``seconds``."""
        with self._turn:
            self._interrupted = True
            self._halt_reason = _INTERRUPTED
            self.scope.stop.set()
            self._turn.notify_all()
        if not self._idle.is_set():
            self._announce(seconds)
        with contextlib.suppress(KeyboardInterrupt):
            self.join(seconds)
        for track in self._tracks:
            if not track.finished:
                self._drop_rest(track, _INTERRUPTED)

    def _announce(self, seconds: float | None) -> None:
        bound = "Ctrl-C again leaves it" if seconds is None else f"at most {seconds:g} s"
        for track in self._tracks:
            if track.began is not None and not track.finished and track not in self._parked:
                self._emit(
                    Event(
                        node=track.job.node,
                        stage=track.next_stage.name,
                        state="waiting",
                        detail=f"the run is stopping; waiting for this stage ({bound})",
                    )
                )

    def record_cancelled(self) -> None:
        """Make the cancelled stages visible in Prefect, a few milliseconds each."""
        for track in self._tracks:
            for call in track.job.stages:
                if call.name in track.cancelled and call.cancel is not None:
                    call.cancel(track.job.run, track.job.node, self._reasons[track.job.node])

    def result(self) -> FleetResult:
        return FleetResult(tuple(_result(track) for track in self._tracks))

    def _emit(self, event: Event) -> None:
        with self._event_lock:
            self._on_event(event)

    def _work(self) -> None:
        try:
            while (track := self._next()) is not None:
                self._advance(track)
        except BaseException as exc:  # a fault of the runner or of on_event must not hang the flow
            with self._turn:
                self._surprise = self._surprise or exc
                self._halt_reason = self._halt_reason or "the run broke off"
                self.scope.stop.set()
                self._turn.notify_all()
        finally:
            self._leave()

    def _next(self) -> _Track | None:
        with self._turn:
            while True:
                if self._halt_reason is not None or all(track.finished for track in self._tracks):
                    return None
                if self._ready:
                    return self._ready.popleft()
                self._turn.wait()

    def _advance(self, track: _Track) -> None:
        """Run the guest's stages until it ends, fails, or must wait for another guest."""
        if track.began is None:
            track.began = time.monotonic()
        while True:
            call = track.next_stage
            try:
                outcome = self._run(track, call)
            except StageFailed as exc:
                self._failed(track, exc)
                return
            except StageCancelled as exc:
                with self._turn:
                    self._drop_rest(track, str(exc))
                    self._drop_dependants()
                    self._promote()
                    self._turn.notify_all()
                return
            with self._turn:
                track.outcomes[call.name] = outcome
                if len(track.outcomes) == len(track.job.stages):
                    track.ended = time.monotonic()
                elif self._halt_reason is not None:
                    self._drop_rest(track, self._halt_reason)
                elif self._is_ready(track):
                    self._promote()
                    continue
                else:
                    self._parked.append(track)
                    self._drop_dependants()
                self._promote()
                self._turn.notify_all()
                return

    def _run(self, track: _Track, call: StageCall) -> Outcome:
        run, node = track.job.run, track.job.node
        if call.lane is None:
            return call.act(run, node)

        def say(text: str) -> None:
            self._emit(Event(node=node, stage=call.name, state="waiting", detail=text))

        with lane(call.lane, node=node, say=say):
            if api_is_private():
                return call.act(run, node)
            with tagged(call.lane.tag), self._watching(call.lane, say) as scope, scope():
                return call.act(run, node)

    @contextlib.contextmanager
    def _watching(self, wanted: Lane, say: Callable[[str], None]) -> Iterator[Scope]:
        """Say for whom the tag makes the stage wait; gives the scope that notices its start.

        A slot that nobody can be named for, twice in a row, is one that a dead run left.
        """
        begun = threading.Event()
        first = _asking.acquire(timeout=FIRST_NOTICE)

        def begin() -> None:
            if not begun.is_set():
                begun.set()
                if first:
                    _asking.release()

        def emit(event: Event) -> None:
            begin()
            self._emit(event)

        def watch() -> None:
            pause = FIRST_NOTICE
            before: str | None = None
            while not begun.wait(pause):
                pause = NEXT_NOTICES
                with contextlib.suppress(Exception):  # a notice is not worth a failure
                    holder = who_holds(wanted.tag)
                    say(f"waiting for {wanted}, {_kept_by(holder)}")
                    if holder == before == UNRECORDED:
                        free_unrecorded_slots(wanted.tag)
                    before = holder

        watcher = contextvars.copy_context()
        threading.Thread(target=watcher.run, args=(watch,), daemon=True).start()
        try:
            yield Scope(emit=emit, stop=current_scope().stop)
        finally:
            begin()

    def _failed(self, track: _Track, failure: StageFailed) -> None:
        with self._turn:
            track.failure = failure
            self._drop_rest(track, f"{failure.stage} failed", failed=failure.stage)
            if self._continue_on_error:
                self._drop_dependants()
                self._promote()
            elif self._halt_reason is None:
                self._halt_reason = f"{failure.stage} of {failure.guest} failed"
                for other in [*self._parked, *self._ready]:
                    self._drop_rest(other, self._halt_reason)
                self._parked.clear()
                self._ready.clear()
            self._turn.notify_all()

    def _drop_dependants(self) -> None:
        """Cancel the guests that wait for a stage that will never end well, and theirs."""
        again = True
        while again:
            again = False
            for track in list(self._parked):
                for node, stage in track.next_stage.after:
                    other = self._by_node[node]
                    if other.finished and stage not in other.outcomes:
                        self._parked.remove(track)
                        self._drop_rest(track, f"{stage} of {node} did not succeed")
                        again = True
                        break

    def _drop_rest(self, track: _Track, reason: str, *, failed: str | None = None) -> None:
        rest = [call.name for call in track.job.stages if call.name not in track.outcomes]
        track.cancelled = tuple(name for name in rest if name != failed)
        track.ended = time.monotonic()
        self._reasons[track.job.node] = reason
        for name in track.cancelled:
            self._emit(Event(node=track.job.node, stage=name, state="cancelled", detail=reason))

    def _is_ready(self, track: _Track) -> bool:
        return all(stage in self._by_node[node].outcomes for node, stage in track.next_stage.after)

    def _promote(self) -> None:
        """Move the guests whose next stage may start from parked to ready, in their order."""
        ready = [track for track in self._parked if self._is_ready(track)]
        if not ready:
            return
        self._parked = [track for track in self._parked if track not in ready]
        self._ready.extend(sorted(ready, key=self._tracks.index))
        self._turn.notify_all()


def _kept_by(holder: str | None) -> str:
    return f"held by {holder}" if holder else "free, but Prefect's server has not granted it yet"


def _result(track: _Track) -> NodeResult:
    began, ended = track.began, track.ended
    return NodeResult(
        node=track.job.node,
        outcomes=dict(track.outcomes),
        failure=track.failure,
        cancelled=track.cancelled,
        seconds=0.0 if began is None or ended is None else ended - began,
    )


def _check(nodes: Sequence[NodeJob]) -> None:
    """Names are unique, dependencies exist, and there is an order in which all can run."""
    known: dict[str, list[str]] = {}
    for job in nodes:
        names = [call.name for call in job.stages]
        if job.node in known or len(set(names)) != len(names) or not names:
            raise ValueError(f"guest {job.node!r}: needs a unique name and unique stages")
        known[job.node] = names
    for job in nodes:
        for call in job.stages:
            for node, stage in call.after:
                if stage not in known.get(node, ()):
                    raise ValueError(
                        f"{job.node}/{call.name} waits for {node}/{stage}, which is not in this run"
                    )
    _check_order(nodes)


def _check_order(nodes: Sequence[NodeJob]) -> None:
    place = {job.node: 0 for job in nodes}
    finished: set[tuple[str, str]] = set()
    moved = True
    while moved:
        moved = False
        for job in nodes:
            while place[job.node] < len(job.stages):
                call = job.stages[place[job.node]]
                if not finished.issuperset(call.after):
                    break
                finished.add((job.node, call.name))
                place[job.node] += 1
                moved = True
    stuck = [job.node for job in nodes if place[job.node] < len(job.stages)]
    if stuck:
        raise ValueError(f"these guests wait for each other in a circle: {', '.join(stuck)}")
