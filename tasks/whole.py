"""Prefect tasks for an environment as a whole: plan, preflight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from tasks.stage import RunRef

P = ParamSpec("P")
T = TypeVar("T")


def whole(
    name: str, *, delays: Sequence[float] = (2, 5, 15)
) -> Callable[[Callable[Concatenate[RunRef, P], T]], Callable[Concatenate[RunRef, P], T]]:
    """Make a Prefect task of a function about a whole environment; runs are named ``env/name``.

    Retried, ``delays`` seconds apart, where the error is transient. Errors reach the caller as
    they are, and Prefect as a failed state without a traceback.
    """

    def decorate(
        fn: Callable[Concatenate[RunRef, P], T],
    ) -> Callable[Concatenate[RunRef, P], T]:
        @wraps(fn)
        def body(run: RunRef, *args: P.args, **kwargs: P.kwargs) -> State[Any]:
            try:
                return Completed(data=fn(run, *args, **kwargs))
            except Exception as error:
                return Failed(message=str(error), data=error)

        def may_pass_next_time(_task: Any, _run: Any, state: State[Any]) -> bool:
            return bool(getattr(_value(state), "transient", False))

        made: Any = task(
            name=name,
            task_run_name="{run.env}/" + name,
            retries=len(delays),
            retry_delay_seconds=list(delays),
            retry_condition_fn=may_pass_next_time,
            cache_policy=NO_CACHE,
            persist_result=False,
        )(body)

        @wraps(fn)
        def call(run: RunRef, *args: P.args, **kwargs: P.kwargs) -> T:
            state: Any = made(run, *args, **kwargs, return_state=True)
            value = _value(state)
            if isinstance(value, BaseException):
                raise value
            return cast(T, value)

        return cast(Callable[Concatenate[RunRef, P], T], call)

    return decorate


def _value(state: State[Any]) -> Any:
    return getattr(state.data, "result", state.data)
