"""Stage clone: the template's copy with a mark of its own, made once, refused where it must be."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from blocks.manifest.guest import CloneSource
from blocks.manifest.mark import Mark, marked, read_mark
from blocks.proxmox.errors import AlreadyExists, ProxmoxError, TaskFailed, Unreachable
from tasks.errors import StageError
from tasks.session import Session
from tasks.template.clone import clone
from tests.environments import NODES, OTHER_RUN, RUN, Place
from tests.meanwhile import lasting_until_asked_for
from tests.tasks.template.clones import (
    SHARED,
    config,
    edit,
    everything,
    linked,
    make,
    make_template,
    on_shared,
)
from tests.templates import Golden


def mark(here: Session, label: str) -> Mark | None:
    """The live mark of a clone."""
    return read_mark(config(here, here.guest(label))["description"])


@pytest.fixture
def peace(place: Place) -> Iterator[Place]:
    """No trouble is left in the lab for the next test."""
    yield place
    place.lab.set_time(scale=0)
    place.lab.clear_faults()
    place.lab.settle()


def test_a_full_clone_has_its_own_mark_name_pool_and_description_from_the_one_call(
    golden: Golden,
) -> None:
    clone_guest = golden.clone(pool=f"pool{golden.place.number}", description="of the web team")
    with golden.opened(golden.recipe(clone_guest)) as here:
        here.client.post("/pools", poolid=clone_guest.pool)
        make_template(here)
        golden.place.lab.forget_requests()
        outcome = clone.fn(here.run, clone_guest.label)
        made = config(here, clone_guest)

    assert outcome.status == "done"
    assert outcome.detail == f"VM {clone_guest.vmid} on pve1, full clone of {golden.vmid}"
    assert golden.place.changes() == [f"POST /nodes/pve1/qemu/{golden.vmid}/clone"]
    assert made["name"] == clone_guest.name
    assert read_mark(made["description"]) == Mark(
        env=golden.name, guest=clone_guest.label, vmid=clone_guest.vmid, run=RUN
    )
    assert made["description"].endswith("\nof the web team")
    assert clone_guest.vmid in golden.place.lab.snapshot()["pools"][clone_guest.pool or ""]


def test_a_full_clone_goes_to_the_storage_that_is_declared(golden: Golden) -> None:
    guest = golden.clone(source=CloneSource(template="template", storage=SHARED))
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)

        assert config(here, guest)["scsi0"].startswith(f"{SHARED}:{guest.vmid}/")


def test_a_linked_clone_depends_on_the_templates_disk(golden: Golden) -> None:
    guest = linked(golden)
    with golden.opened(golden.recipe(guest, template=on_shared(golden))) as here:
        make_template(here)
        outcome = clone.fn(here.run, guest.label)

        assert config(here, guest)["scsi0"].startswith(f"{SHARED}:{golden.vmid}/base-")
    assert "linked clone" in outcome.detail


@pytest.mark.parametrize("full", [True, False])
def test_a_template_on_shared_storage_is_cloned_to_another_node(golden: Golden, full: bool) -> None:
    guest = golden.clone(node=NODES[1], source=CloneSource(template="template", full=full))
    with golden.opened(golden.recipe(guest, template=on_shared(golden))) as here:
        make_template(here)
        outcome = clone.fn(here.run, guest.label)

        assert config(here, guest)["name"] == guest.name
    assert f"on {NODES[1]}" in outcome.detail


@pytest.mark.parametrize("full", [True, False])
def test_a_clone_to_another_node_from_a_local_storage_is_refused_with_the_drives_that_hold_it_back(
    golden: Golden, full: bool
) -> None:
    guest = golden.clone(node=NODES[1], source=CloneSource(template="template", full=full))
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        before = everything(golden)
        with pytest.raises(StageError) as refused:
            clone.fn(here.run, guest.label)

    assert "scsi0 on local-lvm" in refused.value.message
    assert "ide2 on local-lvm" in refused.value.message
    assert "shared storage" in (refused.value.advice or "")
    assert NODES[0] in (refused.value.advice or "")
    assert everything(golden) == before


def test_a_clone_to_another_node_onto_a_local_storage_is_refused(golden: Golden) -> None:
    source = CloneSource(template="template", storage="local-lvm")
    guest = golden.clone(node=NODES[1], source=source)
    with golden.opened(golden.recipe(guest, template=on_shared(golden))) as here:
        make_template(here)
        with pytest.raises(StageError, match="storage local-lvm is not shared by pve1 and pve2"):
            clone.fn(here.run, guest.label)


def test_nothing_is_cloned_where_the_template_is_missing(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here, pytest.raises(StageError) as refused:
        clone.fn(here.run, guest.label)

    assert f"its template, VM {golden.vmid}, is not on node pve1" in refused.value.message
    assert "image, create, configure and template" in (refused.value.advice or "")


def test_nothing_is_cloned_from_a_machine_that_is_no_template_yet(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here, converted=False)
        with pytest.raises(StageError, match="is no template yet"):
            clone.fn(here.run, guest.label)

    assert golden.place.guests() == [golden.vmid]


def test_somebody_elses_machine_under_the_templates_number_is_not_cloned(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        here.client.run("POST", "/nodes/pve1/qemu", vmid=golden.vmid, name="payroll")
        with pytest.raises(AlreadyExists, match=r"payroll.*was not made by Proxflow"):
            clone.fn(here.run, guest.label)

    assert golden.place.guests() == [golden.vmid]


def test_a_strangers_guest_under_the_clones_number_is_refused_and_left_as_it_is(
    golden: Golden,
) -> None:
    guest = golden.clone()
    golden.place.strange(1, name="payroll")
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        before = everything(golden)
        with pytest.raises(AlreadyExists) as refused:
            clone.fn(here.run, guest.label)

    assert f"VM {guest.vmid} (payroll) on pve1 was not made by Proxflow" in refused.value.message
    assert everything(golden) == before


def test_a_number_that_is_taken_on_another_node_is_refused_with_the_guest_that_has_it(
    golden: Golden,
) -> None:
    guest = golden.clone(2, node=NODES[0])
    golden.place.strange(2, name="payroll")  # on pve2
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        before = everything(golden)
        with pytest.raises(AlreadyExists, match=r"\(payroll\) on pve2 was not made by Proxflow"):
            clone.fn(here.run, guest.label)

    assert everything(golden) == before


def test_a_clone_that_was_moved_to_another_node_is_told_and_not_made_again(golden: Golden) -> None:
    guest = golden.clone(2, node=NODES[0])
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        golden.place.strange(2, description=marked(here.mark(guest, ready=True), ""))
        with pytest.raises(StageError) as refused:
            clone.fn(here.run, guest.label)

    assert f"VM {guest.vmid} is on node pve2, declared is pve1" in refused.value.message
    assert "migrate it" in (refused.value.advice or "")


def test_a_hand_made_clone_carries_the_templates_mark_and_is_not_taken_for_ours(
    golden: Golden,
) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        path = f"/nodes/pve1/qemu/{golden.vmid}/clone"
        here.client.run("POST", path, newid=guest.vmid, full=1)
        with pytest.raises(AlreadyExists, match="belongs to template of environment"):
            clone.fn(here.run, guest.label)


def test_a_second_run_finds_the_clone_and_makes_no_other(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
    with golden.opened(golden.recipe(guest), OTHER_RUN) as here:
        golden.place.lab.forget_requests()
        outcome = clone.fn(here.run, guest.label)

        assert mark(here, guest.label) == Mark(
            env=golden.name, guest=guest.label, vmid=guest.vmid, run=RUN
        )
    assert (outcome.status, outcome.detail) == ("unchanged", f"VM {guest.vmid} exists")
    assert golden.place.changes() == []


@pytest.mark.parametrize("reset", ["before", "after"])
def test_a_connection_that_breaks_while_cloning_leads_to_one_clone(
    golden: Golden, peace: Place, reset: str
) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        peace.lab.fault(method="POST", path=".*/clone", reset=reset)
        with pytest.raises(Unreachable) as lost:
            clone.fn(here.run, guest.label)
        outcome = clone.fn(here.run, guest.label)

        assert mark(here, guest.label) == here.mark(guest)
    assert lost.value.transient
    assert outcome.status == {"before": "done", "after": "unchanged"}[reset]
    assert golden.place.guests() == [golden.vmid, guest.vmid]


def test_a_clone_whose_answer_was_lost_is_waited_for_until_its_mark_can_be_read(
    golden: Golden, peace: Place
) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        peace.lab.set_time(scale=60)  # a clone takes ten minutes
        peace.lab.fault(method="POST", path=".*/clone", reset="after")
        with pytest.raises(Unreachable):
            clone.fn(here.run, guest.label)
        half_made = config(here, guest)
        with lasting_until_asked_for(peace.lab):
            outcome = clone.fn(here.run, guest.label)

        assert "description" not in half_made
        assert half_made["lock"] == "clone"
        assert mark(here, guest.label) == here.mark(guest)
    assert outcome.status == "unchanged"


def test_a_failed_clone_is_told_with_its_log_and_leaves_nothing(
    golden: Golden, peace: Place
) -> None:
    guest = golden.clone(source=CloneSource(template="template", storage="local"))
    with golden.opened(golden.recipe(guest, template=on_shared(golden))) as here:
        make_template(here)
        before = everything(golden)
        peace.lab.storage_full("local")
        with pytest.raises(TaskFailed) as failed:
            clone.fn(here.run, guest.label)
        peace.lab.storage_full("local", on=False)

    assert "No space left on device" in failed.value.message
    assert f"creating a clone of VM {golden.vmid}" in failed.value.message
    assert everything(golden) == before


def test_a_clone_that_was_broken_off_on_the_node_is_told_with_the_way_to_unlock_it(
    golden: Golden, peace: Place
) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        # Nothing is done: what the call itself has written, a number and a lock, stays.
        peace.lab.fault(kind="task", type="qmclone", exitstatus="interrupted by signal")
        with pytest.raises(TaskFailed):
            clone.fn(here.run, guest.label)
        with pytest.raises(StageError) as stuck:
            clone.fn(here.run, guest.label)

    assert "is locked (clone), and no task is to be seen that clones it" in stuck.value.message
    assert f"qm unlock {guest.vmid}" in (stuck.value.advice or "")


def test_a_storage_that_knows_no_linked_clones_is_told_with_the_way_out(golden: Golden) -> None:
    guest = linked(golden)
    with golden.opened(golden.recipe(guest)) as here:
        template = make_template(here, converted=False)
        edit(here, template, template=1)  # its disk is no base volume
        with pytest.raises(ProxmoxError, match="Linked clone feature is not supported") as refused:
            clone.fn(here.run, guest.label)

    assert f"declare {guest.label} as a full one" in (refused.value.advice or "")
    assert golden.place.guests() == [golden.vmid]


def test_clones_may_be_made_at_the_same_time(golden: Golden, peace: Place) -> None:
    guests = [golden.clone(index) for index in range(1, 7)]
    with golden.opened(golden.recipe(*guests)) as here:
        make_template(here)
        peace.lab.set_time(scale=0.05)  # a clone takes half a second
        with ThreadPoolExecutor(len(guests)) as pool:
            made = list(pool.map(lambda guest: make(here, guest.label), guests))
        peace.lab.set_time(scale=0)

        assert {mark(here, guest.label) for guest in guests} == {
            here.mark(guest, ready=True) for guest in guests
        }
    assert {outcome.status for outcomes in made for outcome in outcomes} == {"done"}
