"""Trouble on order: calls, tasks, nodes, storages; and the log of calls."""

from __future__ import annotations

from collections.abc import Iterator

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
