"""The one place that says how a stage is retried, tagged, timed, named and logged.

A stage is a plain function ``fn(run, node, ...) -> Outcome`` that looks before it acts. ``stage``
turns it into a :class:`Stage`: a Prefect task that is retried only where the same call may pass
next time, keeps no input cache and no result, and reports what happened as :class:`Event` values.

>>> @stage("create", retries=3, delays=(2, 5, 15))
... def create(run: RunRef, node: str) -> Outcome:
...     return done("vmid 9001")
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, cast
from uuid import UUID

from prefect import Task, get_run_logger
from prefect import tags as prefect_tags
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.exceptions import MissingContextError
from prefect.states import Cancelled, Failed
from pydantic import Field

from blocks.model import Model
from blocks.proxmox.errors import ProxmoxError

P = ParamSpec("P")

EventState = Literal[
    "started", "waiting", "working", "done", "unchanged", "skipped", "failed", "cancelled"
]


class RunRef(Model):
    """What a stage must know about its run; small, and safe to be shown by Prefect.

    ``manifest`` is an absolute path, ``cluster`` the name of a Prefect block or None for the one
    the manifest declares, ``run_id`` eight hexadecimal digits that also stand in the marks.
    ``options`` are the run's switches by name, never a secret.
    """

    manifest: str
    env: str
    cluster: str | None = None
    run_id: str = Field(pattern=r"^[0-9a-f]{8}$")
    options: dict[str, str | int | float | bool | None] = Field(default_factory=dict)


class Outcome(Model):
    """How a stage ended well. ``seconds`` is filled in by the stage itself."""

    status: Literal["done", "unchanged", "skipped"]
    detail: str = ""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0


def done(detail: str = "", *, warnings: Sequence[str] = ()) -> Outcome:
    """Something was missing and has been done."""
    return Outcome(status="done", detail=detail, warnings=tuple(warnings))


def unchanged(detail: str = "", *, warnings: Sequence[str] = ()) -> Outcome:
    """Everything was there already."""
    return Outcome(status="unchanged", detail=detail, warnings=tuple(warnings))


def skipped(reason: str) -> Outcome:
    """The stage does not apply; ``reason`` says why."""
    return Outcome(status="skipped", detail=reason)


class Event(Model):
    """One step of progress, for whoever shows it."""

    node: str
    stage: str
    state: EventState
    detail: str = ""
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


class StageFailed(Exception):
    """A stage of a guest failed; the text has guest, stage, the cause's words and the next step.

    ``cause`` is the exception that ended the stage, None once the value has been pickled;
    ``transient``: every retry was used and the same call may still pass later.
    """

    def __init__(self, guest: str, stage: str, cause: BaseException | str) -> None:
        """``cause``: an exception, or the words where there is none."""
        if isinstance(cause, ProxmoxError):
            words, advice = cause.message, cause.advice
        elif isinstance(cause, BaseException):
            words, advice = f"{type(cause).__name__}: {cause}", getattr(cause, "advice", None)
        else:
            words, advice = cause, None
        self.guest = guest
        self.stage = stage
        self.words = words
        self.advice: str | None = advice
        self.transient = bool(getattr(cause, "transient", False))
        self.cause = cause if isinstance(cause, BaseException) else None
        super().__init__(str(self))

    def __str__(self) -> str:
        """Guest, stage, cause; the advice on a line of its own."""
        text = f"{self.guest}: {self.stage} failed: {self.words}"
        return f"{text}\n  next: {self.advice}" if self.advice else text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the words, not the cause, which need not be picklable."""
        return _unpickled, (self.guest, self.stage, self.words, self.advice, self.transient)


def _unpickled(
    guest: str, stage_name: str, words: str, advice: str | None, transient: bool
) -> StageFailed:
    failure = StageFailed(guest, stage_name, words)
    failure.advice = advice
    failure.transient = transient
    return failure


class StageCancelled(Exception):
    """A stage was not started, or gave up a wait, because the run is stopping."""


@dataclass(frozen=True)
class Scope:
    """What surrounds the stages of one run: where events go, and whether the run is stopping."""

    emit: Callable[[Event], None] = lambda _event: None
    stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Self]:
        """Make this the scope of the stages that are called inside."""
        token = _scope.set(self)
        try:
            yield self
        finally:
            _scope.reset(token)


_scope: ContextVar[Scope | None] = ContextVar("proxflow_scope", default=None)
_current: ContextVar[tuple[str, str] | None] = ContextVar("proxflow_stage", default=None)
_NOBODY = Scope()


def current_scope() -> Scope:
    """The scope that surrounds the caller; outside a run, one that nobody listens to."""
    return _scope.get() or _NOBODY


@contextlib.contextmanager
def in_stage(node: str, name: str) -> Iterator[None]:
    """Work as if in that stage, without Prefect: ``waiting`` is heard by the surrounding scope."""
    token = _current.set((node, name))
    try:
        yield
    finally:
        _current.reset(token)


def waiting(detail: str) -> None:
    """Say what the running stage waits for; nothing happens outside a stage."""
    _say("waiting", detail)


def working(detail: str) -> None:
    """Say how far the running stage is; nothing happens outside a stage."""
    _say("working", detail)


def _say(state: EventState, detail: str) -> None:
    where = _current.get()
    if where is not None:
        node, name = where
        current_scope().emit(Event(node=node, stage=name, state=state, detail=detail))


def stopping() -> bool:
    """Whether the run is being interrupted, so that a long wait should give up."""
    return current_scope().stop.is_set()


def pause(seconds: float) -> None:
    """Sleep, but give up at once when the run stops: for every wait inside a stage.

    Raises :class:`StageCancelled`.
    """
    if current_scope().stop.wait(seconds):
        raise StageCancelled("the run is stopping")


@dataclass(frozen=True)
class Stage(Generic[P]):
    """A stage: ``fn`` is the plain function, ``task`` the Prefect task around it.

    Calling it inside a flow makes one task run and returns the :class:`Outcome`; it raises
    :class:`StageFailed` or :class:`StageCancelled`. Events go to the surrounding :class:`Scope`.
    """

    name: str
    fn: Callable[Concatenate[RunRef, str, P], Outcome]
    task: Task[..., Any]
    _record: Callable[[RunRef, str, str], object]

    def __call__(self, run: RunRef, node: str, /, *args: P.args, **kwargs: P.kwargs) -> Outcome:
        """Run the stage for one guest of the run."""
        emit = current_scope().emit
        began = time.monotonic()
        try:
            result = cast(Outcome | State[Any], self.task(run, node, *args, **kwargs))
        except StageFailed as exc:
            failure = exc
        except Exception as exc:  # the body catches its own: this is Prefect's API
            failure = StageFailed(node, self.name, exc)
        else:
            if isinstance(result, Outcome):
                emit(_ended(node, self.name, result))
                return result
            if result.is_cancelled():
                raise StageCancelled(result.message or "cancelled")
            failure = _failure_of(result) or StageFailed(node, self.name, str(result.message))
        seconds = time.monotonic() - began
        emit(
            Event(node=node, stage=self.name, state="failed", detail=str(failure), seconds=seconds)
        )
        raise failure

    def cancel(self, run: RunRef, node: str, reason: str) -> None:
        """Make a task run that says: cancelled, and why. Costs what an empty task costs."""
        self._record(run, node, reason)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Callable[[RunRef, str], Outcome]:
        """The stage with everything bound but run and guest."""

        def bound(run: RunRef, node: str) -> Outcome:
            return self(run, node, *args, **kwargs)

        return bound


def stage(
    name: str,
    *,
    retries: int = 0,
    delays: Sequence[float] = (2, 5, 15),
    tags: Sequence[str] = (),
) -> Callable[[Callable[Concatenate[RunRef, str, P], Outcome]], Stage[P]]:
    """Make a stage of a function.

    ``retries`` more tries, ``delays`` seconds apart (the last one repeats), and only for an error
    that is ``transient``. ``tags`` are on every run of the stage; each set of tags costs a request
    a task run, so give none without need. Task runs are named ``env/guest/stage``.
    """
    if retries and not delays:
        raise ValueError(f"stage {name!r} has retries but no delays")
    pauses = [float(delay) for delay in delays][:retries]

    def decorate(fn: Callable[Concatenate[RunRef, str, P], Outcome]) -> Stage[P]:
        @wraps(fn)
        def body(run: RunRef, node: str, *args: P.args, **kwargs: P.kwargs) -> Outcome | State[Any]:
            scope = current_scope()
            if scope.stop.is_set():
                return Cancelled(message="the run is stopping")
            began = time.monotonic()
            try:
                scope.emit(Event(node=node, stage=name, state="started"))
                with in_stage(node, name):
                    outcome = fn(run, node, *args, **kwargs)
            except StageCancelled as exc:
                return Cancelled(message=str(exc))
            except Exception as exc:
                failure = exc if isinstance(exc, StageFailed) else StageFailed(node, name, exc)
                _log_unexpected(failure)
                return Failed(message=str(failure), data=failure)
            finally:
                _note_run()
            outcome = outcome.model_copy(update={"seconds": time.monotonic() - began})
            _log_outcome(f"{run.env}/{node}/{name}", outcome)
            return outcome

        def record(run: RunRef, node: str, reason: str) -> State[Any]:
            _note_run()
            return Cancelled(message=reason)

        def may_pass_next_time(_task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
            failure = _failure_of(state)
            if failure is None or not failure.transient or current_scope().stop.is_set():
                return False
            attempt = task_run.run_count
            delay = pauses[min(attempt, len(pauses)) - 1]
            again = f"try {attempt + 1} of {retries + 1} in {delay:g} s: {failure.words}"
            current_scope().emit(
                Event(node=failure.guest, stage=failure.stage, state="waiting", detail=again)
            )
            return True

        run_name = "{run.env}/{node}/" + name
        made: Task[..., Any] = Task(
            fn=body,
            name=name,
            task_run_name=run_name,
            tags=list(tags) or None,
            retries=retries,
            retry_delay_seconds=pauses or None,
            retry_condition_fn=may_pass_next_time,
            cache_policy=NO_CACHE,
            persist_result=False,
        )
        recorder: Task[..., Any] = Task(
            fn=record,
            name=name,
            task_run_name=run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
        )
        return Stage(
            name=name,
            fn=fn,
            task=made,
            _record=cast(Callable[[RunRef, str, str], object], recorder),
        )

    return decorate


@contextlib.contextmanager
def tagged(*names: str) -> Iterator[None]:
    """Give the task runs that start inside these tags too."""
    with prefect_tags(*names):
        yield


_ran: set[UUID] = set()
_ran_lock = threading.Lock()


def task_runs_of_this_process() -> frozenset[UUID]:
    """The task runs of stages that ended here: what Prefect's history must have in the end."""
    with _ran_lock:
        return frozenset(_ran)


def _note_run() -> None:
    context = TaskRunContext.get()
    if context is not None:
        with _ran_lock:
            _ran.add(context.task_run.id)


def _ended(node: str, name: str, outcome: Outcome) -> Event:
    return Event(
        node=node,
        stage=name,
        state=outcome.status,
        detail=outcome.detail,
        seconds=outcome.seconds,
        warnings=outcome.warnings,
    )


def _failure_of(state: State[Any]) -> StageFailed | None:
    data = getattr(state.data, "result", state.data)
    return data if isinstance(data, StageFailed) else None


def _logger() -> logging.Logger | None:
    try:
        return cast(logging.Logger, get_run_logger())
    except MissingContextError:
        return None


def _log_outcome(where: str, outcome: Outcome) -> None:
    logger = _logger()
    if logger is None:
        return
    detail = f": {outcome.detail}" if outcome.detail else ""
    logger.info("%s %s%s (%.1f s)", where, outcome.status, detail, outcome.seconds)
    for warning in outcome.warnings:
        logger.warning("%s %s", where, warning)


def _log_unexpected(failure: StageFailed) -> None:
    """A fault of ours keeps its traceback, in the run's log only; a refusal needs none."""
    logger = _logger()
    if logger is None or failure.cause is None or isinstance(failure.cause, ProxmoxError):
        return
    logger.debug("unexpected error", exc_info=failure.cause)


class _NoEmptyTraceback(logging.Filter):
    """Prefect asks for a traceback where a state was returned, which logs ``NoneType: None``."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record, without the empty traceback."""
        if record.exc_info and record.exc_info[0] is None:
            record.exc_info = None
        return True


logging.getLogger("prefect.task_runs").addFilter(_NoEmptyTraceback())
