"""Waiting for tasks of the lab, over HTTPS."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.proxmox.errors import Locked, NotFound, TaskFailed, TaskTimeout, Unreachable
from blocks.proxmox.waiting import FIRST_POLL, LAST_POLL, TaskResult, interval, is_upid, upid_node
from deployments.lab.testing import RunningLab
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

GONE = "UPID:pve1:0000AAAA:00000001:6B0DAC0C:qmcreate:999:root@pam!lab:"


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    running = lab_factory(time_scale=1.0)
    running.set_time(qmcreate=0.0, qmdestroy=0.0, qmstart=0.0, resize=0.0, qmstop=0.0)
    return running


@pytest.fixture
def client(lab: RunningLab) -> Iterator[Client]:
    """A client without repetitions, so that what waiting does itself is seen."""
    with Client(lab_connection(lab.state), retries=0) as one:
        yield one
    lab.clear_faults()
    lab.set_time(qmcreate=0.0)


vmids = iter(range(1000, 2000))


def create(client: Client) -> str:
    """Begin a task that the lab lets last as long as ``qmcreate`` was set to."""
    upid: str = client.post("/nodes/pve1/qemu", vmid=next(vmids), memory=64)
    return upid


def calls_to(lab: RunningLab, ending: str) -> int:
    return sum(row["path"].endswith(ending) for row in lab.requests())


def test_a_short_task_costs_one_look(lab: RunningLab, client: Client) -> None:
    lab.forget_requests()
    result = client.wait(create(client))
    assert (result.exitstatus, result.warnings) == ("OK", ())
    assert calls_to(lab, "/status") == 1
    assert calls_to(lab, "/log") == 0


def test_looks_become_rarer_with_a_tasks_age_and_never_too_rare() -> None:
    assert interval(0) == FIRST_POLL
    assert interval(4) == 0.5
    assert interval(3600) == LAST_POLL
    age, looks = 0.0, 0
    while age < 60:
        age += interval(age)
        looks += 1
    assert looks < 65


def test_a_failed_task_tells_its_status_the_end_of_its_log_and_what_that_means(
    lab: RunningLab, client: Client
) -> None:
    lines = [f"line {n}" for n in range(30)]
    lab.fault(kind="task", type="qmcreate", exitstatus="storage 'x' does not exist", log=lines)
    with pytest.raises(TaskFailed) as told:
        client.run("POST", "/nodes/pve1/qemu", vmid=next(vmids), memory=64)
    assert told.value.exitstatus == "storage 'x' does not exist"
    assert told.value.log[-1] == "TASK ERROR: storage 'x' does not exist"
    assert len(told.value.log) == 10
    assert "line 29" in str(told.value)
    assert isinstance(told.value.reason, NotFound)
    assert not told.value.transient


def test_a_task_that_ran_into_a_file_lock_may_be_done_again(
    lab: RunningLab, client: Client
) -> None:
    lock = "can't lock file '/var/lock/qemu-server/lock-1.conf' - got timeout"
    lab.fault(kind="task", type="qmcreate", exitstatus=lock)
    with pytest.raises(TaskFailed) as told:
        client.wait(create(client))
    assert isinstance(told.value.reason, Locked)
    assert told.value.transient


def test_a_task_with_warnings_succeeded_and_its_warnings_are_given(
    lab: RunningLab, client: Client
) -> None:
    lines = [
        "working",
        "WARN: EFI disk without 'ms-cert=2023k' option, suggesting that not all UEFI 2023",
        "certificates from Microsoft are enrolled yet.",
        "Something else.",
    ]
    lab.fault(kind="task", type="qmcreate", warnings=1, when="after", log=lines)
    result = client.wait(create(client))
    assert result.exitstatus == "WARNINGS: 1"
    assert result.warnings[0] == (
        "EFI disk without 'ms-cert=2023k' option, suggesting that not all UEFI 2023 "
        "certificates from Microsoft are enrolled yet."
    )


def test_each_line_of_a_followed_log_comes_once(lab: RunningLab, client: Client) -> None:
    lines = [f"line {n}" for n in range(3)]
    lab.set_time(qmcreate=0.3)
    lab.fault(kind="task", type="qmcreate", exitstatus="broken", when="after", log=lines)
    followed: list[str] = []
    with pytest.raises(TaskFailed):
        client.wait(create(client), on_log=followed.append)
    assert [line for line in followed if line.startswith("line")] == lines
    assert followed[-1] == "TASK ERROR: broken"
    assert "no content" not in followed


def test_a_task_that_never_ends_is_given_up_in_time(lab: RunningLab, client: Client) -> None:
    lab.fault(kind="task", type="qmcreate", endless=True)
    upid = create(client)
    with pytest.raises(TaskTimeout, match="still running after 0 s") as told:
        client.wait(upid, timeout=0.3)
    assert told.value.upid == upid
    assert "may still run" in str(told.value.advice)
    client.delete(f"/nodes/pve1/tasks/{upid}")


def test_a_connection_that_breaks_while_waiting_is_tried_again(
    lab: RunningLab, client: Client
) -> None:
    upid = create(client)
    lab.fault(method="GET", path=r".*/tasks/.*/status", reset="before", times=3)
    assert client.wait(upid, timeout=120).exitstatus == "OK"


def test_no_answer_until_the_time_out_is_unreachable_and_names_the_task(
    lab: RunningLab, client: Client
) -> None:
    upid = create(client)
    lab.fault(method="GET", path=r".*/tasks/.*/status", status=595, reason="no route", times=0)
    with pytest.raises(Unreachable, match="may still run") as told:
        client.wait(upid, timeout=2)
    assert upid in str(told.value)


@pytest.mark.parametrize("upid", [GONE, "nonsense", ""])
def test_a_task_that_does_not_exist_is_not_found(client: Client, upid: str) -> None:
    with pytest.raises(NotFound):
        client.wait(upid)


def test_an_answer_that_is_no_task_is_given_as_it_is(client: Client) -> None:
    answer = client.run("GET", "/nodes/pve1/version")
    assert not isinstance(answer, TaskResult)
    assert answer["release"] == client.version().release
    assert not is_upid(None)
    assert upid_node(GONE) == "pve1"


def test_many_waiters_share_one_list_and_end_when_their_tasks_end(
    lab: RunningLab, client: Client
) -> None:
    lab.set_time(qmcreate=2.0)
    count = 16
    done = threading.Barrier(count)

    def one(_: int) -> float:
        upid = create(client)
        done.wait()
        started = time.monotonic()
        client.wait(upid)
        return time.monotonic() - started

    lab.forget_requests()
    with ThreadPoolExecutor(count) as pool:
        waited = list(pool.map(one, range(count)))
    alone = sum(1 for _ in looks_of(max(waited))) * count
    shared = calls_to(lab, "/cluster/tasks") + calls_to(lab, "/status")
    assert shared < alone / 2
    assert calls_to(lab, "/cluster/tasks") > 0
    assert min(waited) > 1


def looks_of(seconds: float) -> Iterator[float]:
    """The looks that one waiter alone would take."""
    age = FIRST_POLL
    while age < seconds:
        yield age
        age += interval(age)


def test_waiters_that_share_a_list_get_each_their_own_result(
    lab: RunningLab, client: Client
) -> None:
    lab.set_time(qmcreate=0.5)
    upids = [create(client) for _ in range(5)]
    lab.fault(kind="task", type="qmcreate", exitstatus="broken")
    upids.append(create(client))

    def outcome(upid: str) -> str:
        try:
            return client.wait(upid).upid
        except TaskFailed as error:
            return error.exitstatus

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(outcome, upids)) == [*upids[:5], "broken"]


def test_waiters_get_on_without_the_list(lab: RunningLab, client: Client) -> None:
    lab.set_time(qmcreate=0.3)
    lab.fault(method="GET", path=r".*/cluster/tasks", status=500, reason="broken list", times=0)
    upids = [create(client) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(client.wait, upids))
    assert [result.exitstatus for result in results] == ["OK"] * 4
