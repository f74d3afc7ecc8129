"""What a failed clone has left goes, where this run made it; nothing else is ever touched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blocks.manifest.guest import Guest
from blocks.proxmox.client import Client
from blocks.proxmox.errors import TaskFailed, TaskTimeout, Unreachable
from tasks.stage import Scope, StageCancelled, StageFailed
from tasks.template.clone import adjust, clean_up, clone, start
from tests.environments import NODES, OTHER_RUN, Place
from tests.tasks.template.clones import (
    config,
    edit,
    everything,
    make,
    make_template,
    on_shared,
    seeds,
)
from tests.templates import Golden


@pytest.fixture
def golden(place: Place) -> Iterator[Golden]:
    """A template's place, in a lab that has no trouble left afterwards."""
    yield Golden(place)
    place.lab.set_time(scale=0)
    place.lab.clear_faults()
    place.lab.settle()


def seeded(golden: Golden, index: int = 1) -> Guest:
    """A clone that is told by a seed ISO."""
    name = f"c{index}-{golden.place.number}"
    return golden.clone(index, cloud_init=golden.cloud_init(name, method="seed", storage="local"))


def test_a_clone_that_fails_is_removed_with_its_seed_and_the_others_stay(golden: Golden) -> None:
    good, bad = seeded(golden, 1), seeded(golden, 2).model_copy(update={"node": NODES[0]})
    with golden.opened(golden.recipe(good, bad)) as here:
        make_template(here)
        make(here, good.label)
        before = everything(golden)
        clone.fn(here.run, bad.label)
        adjust.fn(here.run, bad.label)
        golden.place.lab.fault(kind="task", type="qmstart", exitstatus="start failed")
        with pytest.raises(TaskFailed) as failure:
            start.fn(here.run, bad.label)
        brought = [name for name in seeds(golden) if f"_{bad.label}_" in name]
        said = clean_up(here, bad.label, StageFailed(bad.label, "start", failure.value))

    volid = brought[0].partition("/")[2]
    assert said == f"VM {bad.vmid} on pve1 was removed; {volid} was removed"
    assert everything(golden) == before
    assert golden.place.running(1)


def test_a_running_clone_that_failed_afterwards_is_removed_too(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        before = everything(golden)
        clone.fn(here.run, guest.label)
        here.client.run("POST", f"/nodes/pve1/qemu/{guest.vmid}/status/start")
        said = clean_up(here, guest.label, "the mark could not be written")

    assert said == f"VM {guest.vmid} on pve1 was removed"
    assert everything(golden) == before


def test_where_nothing_was_made_nothing_is_removed(golden: Golden) -> None:
    guest = seeded(golden)
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        golden.place.lab.forget_requests()
        said = clean_up(here, guest.label, "no template")

    assert said == f"VM {guest.vmid} on pve1 is not there"
    assert golden.place.changes() == []


@pytest.mark.parametrize("finished", [True, False])
def test_a_clone_that_another_run_made_stays(golden: Golden, finished: bool) -> None:
    guest = seeded(golden)
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        for stage in (clone, adjust, start) if finished else (clone, adjust):
            stage.fn(here.run, guest.label)
    before = everything(golden)
    with golden.opened(golden.recipe(guest), OTHER_RUN) as here:
        said = clean_up(here, guest.label, "refused")

    why = "was finished" if finished else "was made by run 0000000a"
    assert said == f"VM {guest.vmid} on pve1 {why}, and stays as it is"
    assert everything(golden) == before


def test_a_clone_that_this_run_has_finished_stays(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        make(here, guest.label)
        before = everything(golden)
        said = clean_up(here, guest.label, "a hook failed")

    assert said.endswith("was finished, and stays as it is")
    assert everything(golden) == before


@pytest.mark.parametrize("description", ["", "<!-- proxflow env=x guest=y vmid=1 run=0000000a -->"])
def test_a_guest_that_is_not_ours_stays(golden: Golden, description: str) -> None:
    guest = golden.clone()
    golden.place.strange(1, description=description)
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        before = everything(golden)
        said = clean_up(here, guest.label, "taken")

    assert said == f"VM {guest.vmid} on pve1 is not ours, and stays as it is"
    assert everything(golden) == before


def test_what_cannot_be_removed_is_said_and_not_raised(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        edit(here, guest, protection=1)
        said = clean_up(here, guest.label, "failed")

        assert config(here, guest)["name"] == guest.name
    assert f"VM {guest.vmid} on pve1 could not be removed (" in said
    assert said.endswith("roll the run back")


@pytest.mark.parametrize("node", [NODES[0], NODES[1]])
def test_a_clone_that_takes_too_long_is_stopped_and_leaves_nothing(
    golden: Golden, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = golden.clone(node=node)
    with golden.opened(golden.recipe(guest, template=on_shared(golden))) as here:
        make_template(here)
        before = everything(golden)
        monkeypatch.setattr("tasks.template.clone.CLONE_SECONDS", 0.3)
        golden.place.lab.set_time(scale=10)
        with pytest.raises(TaskTimeout) as late:
            clone.fn(here.run, guest.label)
        said = clean_up(here, guest.label, StageFailed(guest.label, "clone", late.value))
        golden.place.lab.set_time(scale=0)

    assert said == f"VM {guest.vmid} on {node} is not there"
    assert everything(golden) == before


def test_a_run_that_stops_stops_its_clone(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        before = everything(golden)
        golden.place.lab.set_time(scale=10)
        scope = Scope()
        scope.stop.set()
        with scope(), pytest.raises(StageCancelled):
            clone.fn(here.run, guest.label)
        golden.place.lab.set_time(scale=0)
        golden.place.lab.settle()

    assert everything(golden) == before


def test_a_clone_whose_answer_was_lost_is_waited_for_and_removed(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        before = everything(golden)
        golden.place.lab.set_time(scale=0.1)
        golden.place.lab.fault(method="POST", path=".*/clone", reset="after")
        with pytest.raises(Unreachable) as lost:
            clone.fn(here.run, guest.label)
        said = clean_up(here, guest.label, StageFailed(guest.label, "clone", lost.value))

    assert said == f"VM {guest.vmid} on pve1 was removed"
    assert everything(golden) == before


def test_a_node_that_is_out_of_reach_is_said_and_not_raised(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        here.client = Client(here.connection, retries=0)
        golden.place.lab.fault(method="GET", path=".*/config", status=595)
        said = clean_up(here, guest.label, "connection lost")

    assert "could not be removed" in said
