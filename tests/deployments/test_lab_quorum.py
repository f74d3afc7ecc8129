"""A cluster without a majority can be read but not changed; lost nodes do not answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client
from tests.labfixture import lab, lab_factory

__all__ = ["lab", "lab_factory"]

NO_QUORUM = (500, "cluster not ready - no quorum?")


@pytest.fixture
def client(lab: RunningLab) -> Iterator[Client]:
    yield Client(lab)
    lab.clear_faults()


def quorate(client: Client) -> int:
    rows = client.get("/cluster/status")
    return next(int(row["quorate"]) for row in rows if row["type"] == "cluster")


@pytest.mark.parametrize(
    ("method", "path", "params"),
    [
        ("POST", "/nodes/pve1/qemu", {"vmid": 150}),
        ("PUT", "/nodes/pve1/qemu/100/config", {"cores": 2}),
        ("POST", "/nodes/pve1/qemu/100/status/start", {}),
        ("DELETE", "/nodes/pve1/qemu/100", {}),
        ("POST", "/pools", {"poolid": "late"}),
        ("POST", "/nodes/pve1/lxc/101/clone", {"newid": 160}),
    ],
)
def test_every_write_is_refused_while_reads_go_on(
    client: Client, method: str, path: str, params: dict[str, object]
) -> None:
    client.lab.quorum_lost()
    before = client.lab.snapshot()

    place = "params" if method == "DELETE" else "data"
    answer = client.raw(method, path, **{place: params})

    assert (answer.status_code, answer.reason) == NO_QUORUM
    assert client.get("/cluster/resources")
    assert quorate(client) == 0
    assert client.lab.snapshot() == before


def test_a_login_needs_no_quorum(client: Client) -> None:
    client.lab.quorum_lost()

    user, password = client.lab.connection["user"], client.lab.connection["password"]
    answer = client.raw("POST", "/access/ticket", data={"username": user, "password": password})

    assert answer.status_code == 200


def test_quorum_follows_the_number_of_nodes_that_are_up(client: Client) -> None:
    client.lab.node_offline("pve2")
    assert quorate(client) == 1
    client.lab.node_offline("pve3")
    assert quorate(client) == 0

    answer = client.raw("POST", "/pools", data={"poolid": "late"})

    assert (answer.status_code, answer.reason) == NO_QUORUM
    client.lab.node_offline("pve3", on=False)
    assert client.raw("POST", "/pools", data={"poolid": "late"}).status_code == 200


def test_calls_for_an_offline_node_meet_no_route(client: Client) -> None:
    client.lab.node_offline("pve2")

    answers = [
        client.raw("GET", "/nodes/pve2/qemu"),
        client.raw("POST", "/nodes/pve2/qemu", data={"vmid": 151}),
    ]

    assert {a.status_code for a in answers} == {595}
    assert all("No route to host" in a.reason for a in answers)
    rows = {row["node"]: row["status"] for row in client.get("/nodes")}
    assert rows["pve2"] == "offline"


@pytest.mark.parametrize(
    "path", ["/cluster/ha/resources", "/cluster/ha/status/current", "/cluster/ha/rules"]
)
def test_high_availability_is_not_modelled(client: Client, path: str) -> None:
    assert client.raw("GET", path).status_code == 501
