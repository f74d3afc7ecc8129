import _thread
import threading
from collections.abc import Callable

import pytest
from prefect import flow
from prefect.client.orchestration import get_client

from blocks.proxmox.errors import Unreachable
from flows.runtime.history import settle
from tasks.fleet import FleetResult, NodeJob, StageCall, run_fleet
from tasks.lanes import Lane
from tasks.limits import PRIVATE_API
from tasks.stage import (
    Event,
    Outcome,
    RunRef,
    StageFailed,
    done,
    pause,
    stage,
    unchanged,
)
from tests.history import runs_of_this_test

RUN = RunRef(manifest="/srv/shop.yaml", env="shop", run_id="0123abcd")
BOUND = 30.0


def job(node: str, *calls: StageCall) -> NodeJob:
    return NodeJob(node=node, run=RUN, stages=calls)


def fine(
    name: str,
    log: list[str] | None = None,
    after: tuple[tuple[str, str], ...] = (),
) -> StageCall:
    """A stage that ends well and writes ``node/name`` into the log."""

    def act(run: RunRef, node: str) -> Outcome:
        if log is not None:
            log.append(f"{node}/{name}")
        return done()

    return StageCall(name, act, after=after)


def broken(name: str, before: Callable[[], object] = lambda: None) -> StageCall:
    def act(run: RunRef, node: str) -> Outcome:
        before()
        raise StageFailed(node, name, Unreachable("no route to host"))

    return StageCall(name, act)


def test_the_stages_of_a_guest_run_in_order() -> None:
    log: list[str] = []
    names = ["preflight", "create", "start"]

    result = run_fleet([job("db1", *(fine(name, log) for name in names))], parallel=4)

    assert log == [f"db1/{name}" for name in names]
    assert result.ok
    assert list(result.nodes[0].outcomes) == names


def test_as_many_guests_run_at_once_as_asked_and_never_more() -> None:
    meet = threading.Barrier(3)
    running: set[str] = set()
    most: list[int] = []
    lock = threading.Lock()

    def act(run: RunRef, node: str) -> Outcome:
        with lock:
            running.add(node)
            most.append(len(running))
        meet.wait(BOUND)
        with lock:
            running.discard(node)
        return done()

    run_fleet([job(f"web{n}", StageCall("create", act)) for n in range(9)], parallel=3)

    assert max(most) == 3


@pytest.mark.parametrize("parallel", [1, 2, 8])
def test_a_guest_that_waits_for_another_blocks_no_worker(parallel: int) -> None:
    log: list[str] = []
    users = [
        job(f"user{n}", fine("build", log), fine("create", log, after=(("owner", "create"),)))
        for n in range(4)
    ]
    owner = job("owner", fine("build", log), fine("create", log), fine("start", log))

    result = run_fleet([*users, owner], parallel=parallel)

    assert result.ok
    assert all(log.index("owner/create") < log.index(f"user{n}/create") for n in range(4))


def test_a_failure_lets_running_stages_finish_and_cancels_the_rest() -> None:
    started, failed = threading.Event(), threading.Event()
    log: list[str] = []
    heard: list[Event] = []

    def slow(run: RunRef, node: str) -> Outcome:
        started.set()
        assert failed.wait(BOUND)
        return done("finished all the same")

    def listen(event: Event) -> None:
        heard.append(event)
        if event.node == "db1" and event.state == "cancelled":
            failed.set()

    result = run_fleet(
        [
            job("db1", broken("create", lambda: started.wait(BOUND)), fine("start", log)),
            job("db2", StageCall("create", slow), fine("start", log)),
            job("db3", fine("create", log), fine("start", log)),
        ],
        parallel=2,
        on_event=listen,
    )

    first, second, third = result.nodes
    assert str(first.failure) == "db1: create failed: no route to host"
    assert first.cancelled == ("start",)
    assert second.outcomes["create"].detail == "finished all the same"
    assert second.cancelled == ("start",)
    assert third.cancelled == ("create", "start")
    assert log == []
    cancelled = {(e.node, e.stage): e.detail for e in heard if e.state == "cancelled"}
    assert cancelled[("db3", "create")] == "create of db1 failed"


def test_with_continue_on_error_others_go_on_and_dependants_are_cancelled() -> None:
    result = run_fleet(
        [
            job("user", fine("build"), fine("create", after=(("owner", "create"),))),
            job("owner", fine("build"), broken("create"), fine("start")),
            job("users-user", fine("create", after=(("user", "create"),))),
            job("web1", fine("build"), fine("create")),
            job("web2", fine("build"), broken("start")),
        ],
        parallel=2,
        continue_on_error=True,
    )

    by_node = {node.node: node for node in result.nodes}
    assert by_node["web1"].ok
    assert by_node["owner"].cancelled == ("start",)
    assert by_node["user"].cancelled == ("create",)
    assert by_node["users-user"].cancelled == ("create",)
    assert [failure.guest for failure in result.failures] == ["owner", "web2"]


def test_a_fault_of_the_listener_ends_the_run_instead_of_hanging_it() -> None:
    def listen(event: Event) -> None:
        raise BrokenPipeError("the terminal is gone")

    def act(run: RunRef, node: str) -> Outcome:
        raise StageFailed(node, "create", "no")

    with pytest.raises(BrokenPipeError):
        run_fleet(
            [job(f"db{n}", StageCall("create", act), fine("start")) for n in range(4)],
            parallel=2,
            on_event=listen,
        )


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (
            [
                job("a", fine("create", after=(("b", "create"),))),
                job("b", fine("create", after=(("a", "create"),))),
            ],
            "wait for each other in a circle: a, b",
        ),
        ([job("a", fine("create", after=(("z", "create"),)))], "a/create waits for z/create"),
        ([job("a", fine("create")), job("a", fine("create"))], "unique name"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_before_anything_starts(
    jobs: list[NodeJob], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        run_fleet(jobs, parallel=2)


def test_cancelled_and_failed_stages_are_in_prefects_history(prefect_api: str) -> None:
    @stage("create")
    def create(run: RunRef, node: str) -> Outcome:
        raise Unreachable("no route to host")

    @stage("start")
    def start(run: RunRef, node: str) -> Outcome:
        return done()

    @flow(name="fleet-history")
    def history() -> FleetResult:
        return run_fleet(
            [
                job(
                    "history1",
                    StageCall("create", create.call(), create.cancel),
                    StageCall("start", start.call(), start.cancel),
                )
            ],
            parallel=1,
        )

    result = history()

    assert not result.ok
    assert settle(runs_of_this_test(), 30) == 0
    with get_client(sync_client=True) as client:
        states = {run.name: run.state for run in client.read_task_runs(limit=200)}
    failed, cancelled = states["shop/history1/create"], states["shop/history1/start"]
    assert failed is not None
    assert cancelled is not None
    assert (failed.name, failed.message) == (
        "Failed",
        "history1: create failed: no route to host",
    )
    assert (cancelled.name, cancelled.message) == ("Cancelled", "create failed")


def test_uploads_to_one_storage_follow_one_another_and_say_that_they_wait(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PRIVATE_API)  # as if other machines used the server too
    inside: list[str] = []
    heard: list[Event] = []
    queued = threading.Event()
    wanted = Lane(purpose="upload", cluster="lab", storage="local", node="pve1")

    @stage("upload")
    def upload(run: RunRef, node: str) -> Outcome:
        assert not inside, "two uploads at once"
        inside.append(node)
        assert queued.wait(BOUND)
        inside.remove(node)
        return unchanged()

    def listen(event: Event) -> None:
        heard.append(event)
        if event.state == "waiting":
            queued.set()

    @flow(name="fleet-lane")
    def lanes() -> FleetResult:
        call = StageCall("upload", upload.call(), upload.cancel, lane=wanted)
        return run_fleet([job(f"lane{n}", call) for n in range(3)], parallel=3, on_event=listen)

    result = lanes()

    assert result.ok
    waits = {event.detail for event in heard if event.state == "waiting"}
    assert waits == {"waiting for the upload lane of local on pve1"}
    assert settle(runs_of_this_test(), 30) == 0
    with get_client(sync_client=True) as client:
        tags = {run.name: run.tags for run in client.read_task_runs(limit=200)}
        limit = client.read_concurrency_limit_by_tag(wanted.tag)
    assert tags["shop/lane0/upload"] == ["proxflow:upload:lab:local:pve1"]
    assert limit.concurrency_limit == 1


def test_an_interrupted_run_stops_its_waits_and_passes_the_interruption_on() -> None:
    heard: list[Event] = []

    def listen(event: Event) -> None:
        heard.append(event)

    def wait(run: RunRef, node: str) -> Outcome:
        _thread.interrupt_main()
        pause(BOUND)
        raise AssertionError("the wait went on to its end")

    with pytest.raises(KeyboardInterrupt):
        run_fleet(
            [job("db1", StageCall("wait", wait), fine("finalize"))], parallel=1, on_event=listen
        )

    cancelled = [(event.stage, event.state) for event in heard if event.state == "cancelled"]
    assert cancelled == [("wait", "cancelled"), ("finalize", "cancelled")]


def test_an_interrupted_run_goes_on_only_when_its_running_stages_have_ended() -> None:
    told = threading.Event()
    ended: list[str] = []

    def listen(event: Event) -> None:
        if event.state == "waiting" and "the run is stopping" in event.detail:
            told.set()

    def create(run: RunRef, node: str) -> Outcome:
        _thread.interrupt_main()
        assert told.wait(BOUND)
        ended.append(node)
        return done()

    with pytest.raises(KeyboardInterrupt):
        run_fleet(
            [job("db1", StageCall("create", create), fine("start"))], parallel=1, on_event=listen
        )

    assert ended == ["db1"]


def test_no_guests_are_a_result_too() -> None:
    assert run_fleet([], parallel=4).ok
