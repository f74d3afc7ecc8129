import logging
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import TaskRun
from prefect.context import TaskRunContext

from blocks.proxmox.errors import InvalidParameter, PermissionDenied, Unreachable
from flows.runtime.history import settle
from tasks.stage import (
    Event,
    Outcome,
    RunRef,
    Scope,
    StageCancelled,
    StageFailed,
    done,
    pause,
    skipped,
    stage,
    waiting,
)
from tests.history import runs_of_this_test

RUN = RunRef(manifest="/srv/shop.yaml", env="shop", run_id="0123abcd")


def in_flow(act: Callable[[], Any]) -> Any:
    """What ``act`` returns or raises, called inside a flow run."""
    ended: list[Any] = []

    @flow(name="stage-test")
    def around() -> None:
        try:
            ended.append(act())
        except Exception as exc:
            ended.append(exc)

    around()
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


def recorded(name: str) -> TaskRun:
    """The task run of this name as Prefect has it once everything has been sent."""
    assert settle(runs_of_this_test(), 30) == 0
    with get_client(sync_client=True) as client:
        return next(run for run in client.read_task_runs(limit=200) if run.name == name)


def test_a_transient_error_is_retried_and_the_task_run_is_named_after_env_guest_and_stage(
    prefect_api: str,
) -> None:
    tries: list[int] = []

    @stage("create", retries=3, delays=(0, 0, 0))
    def create(run: RunRef, node: str) -> Outcome:
        tries.append(1)
        if len(tries) < 3:
            raise Unreachable("connection reset by peer")
        return done("vmid 9001")

    outcome = in_flow(lambda: create(RUN, "retried"))

    assert outcome.status == "done"
    assert outcome.detail == "vmid 9001"
    run = recorded("shop/retried/create")
    assert run.state_name == "Completed"
    assert run.run_count == 3


def test_a_refusal_fails_at_once_with_guest_stage_words_and_advice(prefect_api: str) -> None:
    tries: list[int] = []

    @stage("create", retries=3, delays=(0,))
    def create(run: RunRef, node: str) -> Outcome:
        tries.append(1)
        raise PermissionDenied(
            "Permission check failed (/vms/9001, VM.Allocate)", advice="grant VM.Allocate on /vms"
        )

    with pytest.raises(StageFailed) as failure:
        in_flow(lambda: create(RUN, "refused"))

    assert len(tries) == 1
    assert str(failure.value) == (
        "refused: create failed: Permission check failed (/vms/9001, VM.Allocate)\n"
        "  next: grant VM.Allocate on /vms"
    )
    state = recorded("shop/refused/create").state
    assert state is not None
    assert state.message == str(failure.value)


def test_retries_that_are_used_up_fail_with_the_last_error(prefect_api: str) -> None:
    @stage("create", retries=1, delays=(0,))
    def create(run: RunRef, node: str) -> Outcome:
        context = TaskRunContext.get()
        assert context is not None
        raise Unreachable(f"no answer, try {context.task_run.run_count}")

    with pytest.raises(StageFailed, match="no answer, try 2") as failure:
        in_flow(lambda: create(RUN, "exhausted"))

    assert failure.value.transient
    assert recorded("shop/exhausted/create").run_count == 2


def test_a_fault_of_ours_is_a_stage_failure_too(prefect_api: str) -> None:
    @stage("create", retries=3, delays=(0,))
    def create(run: RunRef, node: str) -> Outcome:
        raise KeyError("vmid")

    with pytest.raises(StageFailed, match=r"faulty: create failed: KeyError: 'vmid'"):
        in_flow(lambda: create(RUN, "faulty"))


def test_no_traceback_is_logged_for_a_failing_stage(
    prefect_api: str, caplog: pytest.LogCaptureFixture
) -> None:
    @stage("create")
    def create(run: RunRef, node: str) -> Outcome:
        raise InvalidParameter("Parameter verification failed.", fields={"cores": "too many"})

    with caplog.at_level(logging.INFO), pytest.raises(StageFailed):
        in_flow(lambda: create(RUN, "quiet"))

    lines = [record for record in caplog.records if record.name == "prefect.task_runs"]
    assert any("Parameter verification failed." in record.getMessage() for record in lines)
    assert not any(record.exc_info for record in lines)


def test_events_tell_start_wait_next_try_and_end(prefect_api: str) -> None:
    heard: list[Event] = []
    tries: list[int] = []

    @stage("upload", retries=1, delays=(0,))
    def upload(run: RunRef, node: str) -> Outcome:
        tries.append(1)
        waiting("the lane of local")
        if len(tries) == 1:
            raise Unreachable("proxy said 596")
        return skipped("installed already")

    def act() -> Outcome:
        with Scope(emit=heard.append)():
            return upload(RUN, "told")

    in_flow(act)

    assert [(event.state, event.detail) for event in heard] == [
        ("started", ""),
        ("waiting", "the lane of local"),
        ("waiting", "try 2 of 2 in 0 s: proxy said 596"),
        ("started", ""),
        ("waiting", "the lane of local"),
        ("skipped", "installed already"),
    ]


def test_a_cancelled_stage_is_a_task_run_in_state_cancelled_that_says_why(
    prefect_api: str,
) -> None:
    @stage("finalize")
    def finalize(run: RunRef, node: str) -> Outcome:
        return done()

    in_flow(lambda: finalize.cancel(RUN, "dropped", "create of db1 failed"))

    run = recorded("shop/dropped/finalize")
    assert run.state_name == "Cancelled"
    assert run.state is not None
    assert run.state.message == "create of db1 failed"


def test_a_stage_does_not_start_once_the_run_is_stopping(prefect_api: str) -> None:
    @stage("create")
    def create(run: RunRef, node: str) -> Outcome:
        raise AssertionError("must not start")

    scope = Scope()
    scope.stop.set()

    def act() -> Outcome:
        with scope():
            return create(RUN, "stopped")

    with pytest.raises(StageCancelled, match="the run is stopping"):
        in_flow(act)


def test_a_wait_gives_up_when_the_run_stops() -> None:
    scope = Scope()
    threading.Timer(0.05, scope.stop.set).start()
    began = time.monotonic()

    with scope(), pytest.raises(StageCancelled):
        pause(60)

    assert time.monotonic() - began < 30


def test_a_failure_survives_pickling_with_its_words_and_advice() -> None:
    cause = InvalidParameter("refused", fields={"cores": "too many"}, advice="use fewer cores")
    failure = StageFailed("db1", "create", cause)

    copy = pickle.loads(pickle.dumps(failure))

    assert str(copy) == str(failure) == "db1: create failed: refused\n  next: use fewer cores"
    assert (copy.guest, copy.stage, copy.advice) == ("db1", "create", "use fewer cores")


def test_a_run_reference_keeps_its_run_id_in_the_form_of_the_marks() -> None:
    with pytest.raises(ValueError, match="run_id"):
        RunRef(manifest="/srv/shop.yaml", env="shop", run_id="not-hex!")
