"""Trouble on order: calls, tasks, nodes, storages; and the log of calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client, eventually
from tests.labfixture import lab, lab_factory

__all__ = ["lab", "lab_factory"]

POOLS = "/pools"
QEMU = "/nodes/pve1/qemu"


@pytest.fixture
def client(lab: RunningLab) -> Iterator[Client]:
    yield Client(lab)
    lab.clear_faults()


def pools(client: Client) -> set[str]:
    return {row["poolid"] for row in client.get(POOLS)}


def test_a_refusal_is_given_as_often_as_ordered(client: Client) -> None:
    client.lab.fault(path="/version", status=596, reason="no route", times=2)

    answers = [client.raw("GET", "/version") for _ in range(3)]

    assert [(a.status_code, a.reason) for a in answers[:2]] == [(596, "no route")] * 2
    assert answers[2].status_code == 200


def test_a_cut_before_the_effect_leaves_nothing_behind(client: Client) -> None:
    client.lab.fault(method="POST", path=POOLS, reset="before")

    with pytest.raises(requests.ConnectionError):
        client.raw("POST", POOLS, data={"poolid": "before"})

    assert "before" not in pools(client)


def test_a_cut_after_the_effect_hides_a_success(client: Client) -> None:
    client.lab.fault(method="POST", path=POOLS, reset="after")

    with pytest.raises(requests.ConnectionError):
        client.raw("POST", POOLS, data={"poolid": "after"})

    assert "after" in pools(client)


def test_a_task_can_be_made_to_fail_before_it_does_anything(client: Client) -> None:
    client.lab.fault(kind="task", type="qmcreate", exitstatus="out of luck", log=["trying"])

    ended = client.task("POST", QEMU, vmid=300)

    assert ended == "out of luck"
    assert client.raw("GET", f"{QEMU}/300/config").status_code == 500


def test_a_task_can_end_with_warnings_after_a_good_end(client: Client) -> None:
    client.lab.fault(kind="task", type="qmcreate", warnings=1)

    assert client.task("POST", QEMU, vmid=301) == "WARNINGS: 1"
    assert client.get(f"{QEMU}/301/config")["boot"] == " "


def test_an_endless_task_runs_until_somebody_stops_it(client: Client) -> None:
    client.lab.fault(kind="task", type="qmcreate", endless=True)
    upid = client.call("POST", QEMU, vmid=302)
    path = f"/nodes/pve1/tasks/{upid}"
    assert client.get(f"{path}/status")["status"] == "running"

    client.call("DELETE", path)

    assert client.wait(upid) == "received interrupt"


def test_a_full_storage_refuses_new_disks_and_says_so_in_its_status(client: Client) -> None:
    client.lab.storage_full("local")

    assert client.get("/nodes/pve1/storage/local/status")["avail"] == 0
    assert "No space left" in client.task("POST", QEMU, vmid=303, scsi0="local:1")


def test_an_offline_node_is_shown_so_and_does_not_answer(client: Client) -> None:
    client.lab.node_offline("pve3")

    states = {row["node"]: row["status"] for row in client.get("/nodes")}
    assert states == {"pve1": "online", "pve2": "online", "pve3": "offline"}
    assert client.raw("GET", "/nodes/pve3/status").status_code == 595


def test_reading_changes_nothing_and_the_log_proves_it(client: Client) -> None:
    before = client.lab.snapshot()
    client.lab.forget_requests()

    client.get("/cluster/resources")
    client.get("/nodes/pve1/storage/local/content")

    assert client.lab.snapshot() == before
    assert client.lab.writes() == []
    assert [row["path"] for row in client.lab.requests()] == [
        "/cluster/resources",
        "/nodes/pve1/storage/local/content",
    ]


def test_the_control_interface_refuses_a_wrong_token(client: Client) -> None:
    answer = client.session.get(
        f"{client.lab.endpoint}/_lab/state", headers={"X-Lab-Token": "guess"}, timeout=10
    )

    assert answer.status_code == 403


def test_a_guest_is_locked_for_writers_while_a_task_works_on_it(client: Client) -> None:
    assert client.task("POST", QEMU, vmid=304, scsi0="local-lvm:1") == "OK"
    client.lab.set_time(scale=0.01, resize=500.0)
    upid = client.call("PUT", f"{QEMU}/304/resize", disk="scsi0", size="+1G")

    answer = client.raw("PUT", f"{QEMU}/304/config", data={"cores": 2})

    client.call("DELETE", f"/nodes/pve1/tasks/{upid}")
    client.lab.set_time(scale=0, resize=1.0)
    assert "can't lock file" in answer.reason
    written = eventually(lambda: client.raw("PUT", f"{QEMU}/304/config", data={"cores": 2}).ok)
    assert written


@pytest.mark.parametrize(
    ("status", "reason"), [(595, "No route to host"), (596, "Connection timed out")]
)
def test_the_proxy_of_a_node_fails_in_its_own_words(
    client: Client, status: int, reason: str
) -> None:
    client.lab.fault(path="/nodes/pve2/.*", status=status)

    answer = client.raw("GET", "/nodes/pve2/status")

    assert (answer.status_code, answer.reason) == (status, reason)
    assert client.raw("GET", "/nodes/pve2/status").ok


def test_a_rule_lets_as_many_calls_pass_as_it_skips(client: Client) -> None:
    client.lab.fault(path="/version", status=500, skip=2)

    answers = [client.raw("GET", "/version").status_code for _ in range(4)]

    assert answers == [200, 200, 500, 200]


def test_a_delayed_call_still_has_its_answer(client: Client) -> None:
    client.lab.fault(path="/version", delay=0.2)

    answer = client.raw("GET", "/version")

    assert answer.ok
    assert answer.elapsed.total_seconds() >= 0.2


def test_a_foreign_lock_refuses_a_config_write_and_fails_a_task(client: Client) -> None:
    assert client.task("POST", QEMU, vmid=310, scsi0="local-lvm:1") == "OK"
    client.lab.fault(kind="lock", vmid=310, times=2)

    written = client.raw("PUT", f"{QEMU}/310/config", data={"cores": 2})
    resized = client.task("PUT", f"{QEMU}/310/resize", disk="scsi0", size="+1G")

    text = "can't lock file '/var/lock/qemu-server/lock-310.conf' - got timeout"
    assert (written.status_code, written.reason) == (500, text)
    assert resized == text
    assert client.raw("PUT", f"{QEMU}/310/config", data={"cores": 2}).ok


def test_a_failing_task_may_have_done_its_work_before(client: Client) -> None:
    client.lab.fault(kind="task", type="qmcreate", exitstatus="too late", when="after")

    ended = client.task("POST", QEMU, vmid=311)

    assert ended == "too late"
    assert client.raw("GET", f"{QEMU}/311/config").ok


def test_a_ticket_that_is_too_old_is_refused(client: Client) -> None:
    user, password = client.lab.connection["user"], client.lab.connection["password"]
    login = client.call("POST", "/access/ticket", username=user, password=password)
    cookie = {"PVEAuthCookie": quote(login["ticket"])}
    by_ticket = requests.Session()
    by_ticket.trust_env, by_ticket.verify = False, client.lab.connection["ca_file"]
    url = f"{client.lab.endpoint}/api2/json/version"
    fresh = by_ticket.get(url, cookies=cookie, timeout=10)

    client.lab.ticket_seconds(0)
    old = by_ticket.get(url, cookies=cookie, timeout=10)

    client.lab.ticket_seconds(7200)
    assert (fresh.status_code, old.status_code, old.content) == (200, 401, b"")


def test_a_slow_line_holds_an_upload_up_and_nobody_else(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "slow.iso"
    file.write_bytes(bytes(200_000))
    client.lab.fault(method="POST", path=".*/upload", rate=400_000)
    ended: list[str] = []
    other = Client(client.lab)
    upload = threading.Thread(target=lambda: ended.append(other.upload("pve1", "local", file)))
    began = time.monotonic()
    upload.start()
    eventually(lambda: client.lab.injected()[-1:] and "rate" in client.lab.injected()[-1]["what"])

    answer = client.raw("GET", "/version")
    answered = time.monotonic() - began

    upload.join()
    assert answer.ok
    assert ended == ["OK"]
    assert answered < time.monotonic() - began
    assert time.monotonic() - began >= 0.5


def refused(client: Client, seed: int) -> list[bool]:
    client.lab.reseed(seed)
    client.lab.fault(path="/version", status=503, times=0, probability=0.5)
    answers = [client.raw("GET", "/version").status_code == 503 for _ in range(24)]
    client.lab.clear_faults()
    return answers


def test_troubles_by_chance_are_the_same_for_the_same_seed(client: Client) -> None:
    first, second, other = refused(client, 7), refused(client, 7), refused(client, 8)

    assert first == second != other
    assert {True, False} == set(first)


def test_what_was_injected_is_written_down_in_order(client: Client) -> None:
    client.lab.forget_requests()
    client.lab.fault(path="/version", status=596)
    client.lab.fault(kind="task", type="qmcreate", warnings=2)

    client.raw("GET", "/version")
    client.task("POST", QEMU, vmid=312)
    client.lab.fault(kind="lock", vmid=312)
    client.raw("PUT", f"{QEMU}/312/config", data={"cores": 2})
    client.lab.node_offline("pve3")

    log = [(row["n"], row["kind"], row["what"]) for row in client.lab.injected()]
    assert log == [
        (1, "call", "status 596"),
        (2, "task", "warnings 2"),
        (3, "lock", "lock time-out"),
        (4, "node-offline", "on"),
    ]
    assert client.lab.control("GET", "faults")["rules"] == []


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("faults", {"path": "/x", "tmies": 2}, "tmies"),
        ("faults", {"path": "("}, "no regular expression"),
        ("faults", {"kind": "flood"}, "kind must be one of"),
        ("node-offline", {"name": "pve9"}, "there is no pve9"),
        ("storage-full", {"name": "locl"}, "there is no locl"),
        ("time", {"scale": -1}, "time does not run backwards"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_with_the_reason(
    client: Client, name: str, body: dict[str, Any], reason: str
) -> None:
    answer = client.session.post(
        f"{client.lab.endpoint}/_lab/{name}",
        json=body,
        headers={"X-Lab-Token": client.lab.connection["control_token"]},
        timeout=10,
    )

    assert answer.status_code == 400
    assert reason in answer.json()["error"]
