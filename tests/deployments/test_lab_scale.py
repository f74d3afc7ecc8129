"""Thousands of guests: everything is there, kept answers are never stale, memory stays flat."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.lab import process
from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client, eventually
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

SEED = """
default_isos: false
pools: [some]
users:
  - userid: viewer@pve
    password: viewer-password
    tokens: [{{name: t, secret: 11111111-2222-3333-4444-555555555555, privsep: false}}]
    acl: [{{path: /pool/some, role: PVEAuditor}}, {{path: /vms/1003, role: PVEAuditor}}]
guests:
  - vmid: 1000
    count: {count}
    running: true
    config: {{name: "web{{vmid}}", scsi0: "local-lvm:8", net0: "virtio,bridge=vmbr0"}}
  - {{vmid: 5000, count: 3, pool: some, config: {{name: "some{{vmid}}", tags: old}}}}
"""


@pytest.fixture(scope="module")
def client(lab_factory: LabFactory) -> Client:
    return Client(lab_factory(seed=SEED.format(count=9)))


def guests(client: Client) -> dict[int, dict[str, Any]]:
    return {row["vmid"]: row for row in client.get("/cluster/resources", type="vm")}


def test_many_guests_come_from_one_line_of_a_seed_and_are_dealt_out(client: Client) -> None:
    rows = guests(client)

    assert [rows[vmid]["name"] for vmid in (1000, 1008, 5002)] == ["web1000", "web1008", "some5002"]
    assert Counter(row["node"] for row in rows.values()) == {"pve1": 4, "pve2": 4, "pve3": 4}


def test_two_answers_are_equal_while_nothing_changes(client: Client) -> None:
    first, second = (client.raw("GET", "/cluster/resources").json() for _ in range(2))

    assert without_clock(first) == without_clock(second)


def without_clock(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "uptime": 0} for row in body["data"]]


def test_a_change_by_a_call_is_in_the_next_answer(client: Client) -> None:
    before = guests(client)[5000]
    client.call("PUT", f"/nodes/{before['node']}/qemu/5000/config", tags="new", name="renamed")

    after = guests(client)[5000]

    assert (before["tags"], after["tags"], after["name"]) == ("old", "new", "renamed")


def test_a_change_by_hand_is_seen_too(client: Client) -> None:
    node = guests(client)[5001]["node"]
    file = client.lab.state / "etc" / "nodes" / node / "qemu-server" / "5001.conf"

    file.write_text("lock: backup\n" + file.read_text())

    assert eventually(lambda: guests(client)[5001].get("lock") == "backup")


def test_power_pools_and_nodes_are_as_they_are_now(client: Client) -> None:
    row = guests(client)[1001]
    path = f"/nodes/{row['node']}/qemu/1001/status"

    assert client.task("POST", f"{path}/stop") == "OK"
    assert guests(client)[1001]["status"] == "stopped"
    client.call("PUT", "/pools/some", vms="1001")
    assert guests(client)[1001]["pool"] == "some"
    client.lab.node_offline(row["node"])
    assert guests(client)[1001]["status"] == "unknown"
    client.lab.clear_faults()
    assert guests(client)[1001]["status"] == "stopped"


def test_a_deleted_guest_is_gone_and_a_new_one_is_there(client: Client) -> None:
    node = guests(client)[5002]["node"]
    assert client.task("DELETE", f"/nodes/{node}/qemu/5002") == "OK"
    assert client.task("POST", f"/nodes/{node}/qemu", vmid=5100, name="late") == "OK"

    rows = guests(client)

    assert 5002 not in rows
    assert rows[5100]["name"] == "late"


def test_each_caller_has_an_answer_of_his_own(client: Client) -> None:
    header = "PVEAPIToken=viewer@pve!t=11111111-2222-3333-4444-555555555555"
    viewer = Client(client.lab, header)
    everything = set(guests(client))

    seen = set(guests(viewer))

    assert 1003 in seen
    assert 1004 not in seen
    assert seen < everything
    assert seen == {1003} | {vmid for vmid, row in guests(client).items() if "pool" in row}


# -- the process -----------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Iterator[RunningLab]:
    seed = tmp_path / "seed.yaml"
    seed.write_text(SEED.format(count=1997))
    state = tmp_path / "state"
    connection, _ = process.start(state, ["--time-scale", "0", "--seed", str(seed)])
    yield RunningLab(state, connection)
    process.stop(state)


def peak_memory(lab: RunningLab) -> int:
    """Bytes, as the kernel keeps it."""
    status = Path(f"/proc/{lab.connection['pid']}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


@pytest.mark.processes
def test_two_thousand_guests_on_three_nodes_need_little_memory(large: RunningLab) -> None:
    client = Client(large)

    answers = [client.raw("GET", "/cluster/resources").content for _ in range(20)]

    rows = [row for row in json.loads(answers[-1])["data"] if row["type"] == "qemu"]
    assert len(rows) == 2000
    assert eventually(
        lambda: all(run["phase"] == "up" for run in large.snapshot()["running"]), seconds=120
    )
    assert Counter(row["status"] for row in rows) == {"running": 1997, "stopped": 3}
    assert peak_memory(large) < 150 << 20
