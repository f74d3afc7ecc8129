"""A plan says for each declared guest what is to be done, and refuses what is not ours."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from blocks.manifest.guest import Guest, Installation, IsoSource
from blocks.manifest.mark import Mark, marked
from blocks.manifest.plans import Action, Plan
from tasks.plan import make_plan
from tests.tasks.test_plan_diff import DISK, MAC, SHARED, a_config, a_guest


@dataclass(frozen=True)
class Row:
    vmid: int = 101
    name: str | None = "db1"
    node: str = "pve1"
    kind: str = "qemu"


@dataclass(frozen=True)
class Inventory:
    guests: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Environment:
    guests: tuple[Guest, ...]
    name: str = "lab"


OURS = Mark(env="lab", guest="db1", vmid=101, run="r1", ready=True)


def plan_of(guest: Guest, row: Row | None, config: dict[str, Any] | None) -> Plan:
    rows = (row,) if row else ()
    configs = {} if config is None else {guest.vmid: config}
    return make_plan(Environment((guest,)), Inventory(rows), configs, cluster="prod")


def ours(mark: Mark = OURS, **keys: Any) -> dict[str, Any]:
    return a_config(description=marked(mark, "notes") + "\n", **keys)


def test_an_absent_guest_is_created_and_the_plan_says_with_what() -> None:
    source = IsoSource(
        iso="local:iso/r9.iso",
        seed_storage="local",
        installation=Installation(distro="rocky9", hostname="db1"),
    )
    guest = a_guest(cores=2, sockets=2, source=source, disks=(*a_guest().disks, SHARED))
    plan = plan_of(guest, None, None).guest("db1")
    assert plan.action is Action.CREATE
    assert plan.creation is not None
    assert (plan.creation.cores, plan.creation.memory) == (4, 2048)
    assert plan.creation.disks == ("scsi0: 32 GiB on lvm", "scsi1: 1 GiB on lvm, of guest 100")
    assert plan.creation.nics == ("net0: virtio on vmbr0",)
    assert (plan.creation.iso, plan.creation.seed) == ("local:iso/r9.iso", "local")


def test_our_finished_guest_that_is_as_declared_is_left_alone() -> None:
    plan = plan_of(a_guest(), Row(), ours())
    assert plan.guests[0].action is Action.UNCHANGED
    assert plan.guests[0].run == "r1"
    assert plan.changes_nothing


def test_our_finished_guest_is_updated_where_it_differs() -> None:
    plan = plan_of(a_guest(memory=4096), Row(), ours()).guests[0]
    assert plan.action is Action.UPDATE
    assert [change.target for change in plan.changes] == ["memory"]
    assert str(plan) == "db1 (101 on pve1): update, 1 change"


def test_an_unfinished_installation_is_resumed_whatever_lies_in_its_drives() -> None:
    mark = OURS.model_copy(update={"ready": False})
    config = ours(mark, ide2="local:iso/a.iso,media=cdrom", boot="order=scsi0;ide2")
    plan = plan_of(a_guest(), Row(), config).guests[0]
    assert (plan.action, plan.changes) == (Action.RESUME, ())
    assert "run r1 did not finish" in plan.reason


@pytest.mark.parametrize(
    ("config", "row", "says"),
    [
        (a_config(), Row(name="theirs"), "'theirs' on pve1, which carries no mark of ours"),
        (ours(OURS.model_copy(update={"env": "prod"})), Row(), "environment 'prod'"),
        (ours(OURS.model_copy(update={"guest": "db9"})), Row(), "is guest 'db9'"),
        (None, Row(name=None), "'(no name)' on pve1, whose config cannot be read"),
        ({"description": f"{OURS}\n"}, Row(kind="lxc"), "container 'db1'"),
    ],
)
def test_what_is_not_ours_is_refused_with_the_reason(
    config: dict[str, Any] | None, row: Row, says: str
) -> None:
    plan = plan_of(a_guest(memory=4096), row, config)
    assert plan.guests[0].action is Action.FOREIGN
    assert says in plan.guests[0].reason
    assert plan.guests[0].changes == ()
    assert plan.refused == plan.guests


@pytest.mark.parametrize(
    ("keys", "row", "says"),
    [
        ({}, Row(node="pve2"), "it lives on pve2, declared is pve1; it has to be migrated"),
        ({"scsi0": DISK.replace("32G", "64G")}, Row(), "scsi0.size: a disk can grow, not shrink"),
        ({"bios": "ovmf"}, Row(), "bios: only making the guest anew"),
        ({"bios": "coreboot"}, Row(), "its config cannot be read"),
        ({"net0": f"virtio={MAC},model=e1000"}, Row(), "'model' is given twice"),
    ],
)
@pytest.mark.parametrize("ready", [True, False])
def test_what_cannot_be_done_in_place_is_impossible_with_the_reason(
    keys: dict[str, Any], row: Row, says: str, ready: bool
) -> None:
    mark = OURS.model_copy(update={"ready": ready})
    plan = plan_of(a_guest(memory=4096), row, ours(mark, **keys)).guests[0]
    assert plan.action is Action.IMPOSSIBLE
    assert says in plan.reason


def test_a_container_of_ours_is_impossible_for_now_instead_of_misread() -> None:
    config = {"description": f"{OURS}\n", "net0": "name=eth0,bridge=vmbr0", "memory": 256}
    plan = plan_of(a_guest(kind="lxc"), Row(kind="lxc"), config).guests[0]
    assert plan.action is Action.IMPOSSIBLE
    assert "container" in plan.reason


def test_guests_keep_the_order_of_the_manifest_and_are_counted() -> None:
    environment = Environment(
        (a_guest(), a_guest(label="a", vmid=102), a_guest(label="b", vmid=109))
    )
    rows = Inventory((Row(vmid=109), Row(vmid=101)))
    plan = make_plan(environment, rows, {101: ours()})
    assert [guest.label for guest in plan.guests] == ["db1", "a", "b"]
    counts = {action: number for action, number in plan.counts.items() if number}
    assert counts == {Action.UNCHANGED: 1, Action.CREATE: 1, Action.FOREIGN: 1}
    assert not plan.changes_nothing


def test_a_plan_is_json_with_counts_and_can_be_read_back() -> None:
    plan = plan_of(a_guest(memory=4096), Row(), ours())
    document = json.loads(plan.to_json())
    assert document["counts"]["update"] == 1
    assert document["guests"][0]["changes"][0] == {
        "kind": "change",
        "target": "memory",
        "before": 2048,
        "after": 4096,
        "in_place": True,
        "note": "takes effect when it is stopped and started",
    }
    del document["counts"]
    assert Plan.model_validate(document) == plan


def test_asking_a_plan_for_a_guest_that_it_lacks_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="db7"):
        plan_of(a_guest(), None, None).guest("db7")


def test_planning_does_not_load_prefect() -> None:
    code = "import sys, tasks.plan; sys.exit('prefect' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
