"""Finding what is ours, and stages destroy and sweep; rollback of what a run made."""

from __future__ import annotations

import pytest

from blocks.manifest.mark import Mark
from blocks.proxmox.errors import AlreadyExists, TaskFailed
from blocks.proxmox.inventory import read_inventory
from tasks import destroy as destroying
from tasks import settling
from tasks.create import create
from tasks.destroy import Target, destroy
from tasks.found import all_guests, all_seeds, of_environment
from tasks.rollback import traces, undo_run
from tasks.session import Session
from tasks.start import start
from tasks.sweep import sweep
from tests.environments import OTHER_RUN, RUN, Place, brought_up, opened
from tests.tasks.test_installation import made


def target(place: Place, index: int = 1) -> Target:
    mark = Mark(env=place.env, guest=f"n{index}", vmid=place.vmid(index), run=RUN)
    return Target(node=f"pve{index}", kind="qemu", vmid=place.vmid(index), mark=mark)


def mine(here: Session, place: Place) -> list[int]:
    """Numbers of the guests that are found to be the environment's."""
    guests = all_guests(here.client, read_inventory(here.client))
    return [found.row.vmid for found in of_environment(guests, place.env)]


def test_ours_is_what_carries_the_mark_of_the_environment_and_run(place: Place) -> None:
    place.strange(2)
    place.of_another_environment(3)
    manifest = place.write()
    with opened(manifest) as here:
        made(here)
        assert mine(here, place) == [place.vmid()]
        found = traces(here.client, place.env)
        guests, seeds = found.of(RUN)
        nothing = found.of(OTHER_RUN)

    assert [g.row.vmid for g in guests] == [place.vmid()]
    assert [(s.name.guest, s.node) for s in seeds] == [("n1", "pve1")]
    assert nothing == ((), ())


def test_guests_of_an_offline_node_are_left_out(place: Place) -> None:
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        place.lab.node_offline("pve1")
        assert mine(here, place) == []
        assert all_seeds(here.client, read_inventory(here.client), place.env) == ()


def test_destroy_removes_the_guest_with_its_disks_and_a_second_time_finds_nothing(
    place: Place,
) -> None:
    brought_up(place, ovmf=True, storages=("local-lvm", "shared"))
    with opened(place.folder / "env.yaml") as here:
        first = destroy.fn(here.run, "n1", target(place), False)
        place.lab.forget_requests()
        again = destroy.fn(here.run, "n1", target(place), False)

    assert (first.status, again.status) == ("done", "unchanged")
    assert place.guests() == []
    assert place.volumes("disk") == []
    assert place.changes() == []


@pytest.mark.parametrize("whose", ["nobody's", "another's"])
def test_destroy_reads_the_mark_again_and_spares_what_is_not_ours(place: Place, whose: str) -> None:
    if whose == "nobody's":
        place.strange()
    else:
        place.of_another_environment()
    with opened(place.write()) as here:
        place.lab.forget_requests()
        with pytest.raises(AlreadyExists, match="does not carry the mark of n1 any more") as spared:
            destroy.fn(here.run, "n1", target(place), True)

    assert "look at it before you delete it" in (spared.value.advice or "")
    assert place.changes() == []
    assert place.exists()


def test_a_guest_that_does_not_shut_down_in_time_is_switched_off(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destroying, "SHUTDOWN_SECONDS", 1)
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        start.fn(here.run, "n1")
        place.lab.fault(kind="task", type="qmshutdown", exitstatus="VM quit/powerdown failed")
        destroy.fn(here.run, "n1", target(place), False)

    assert place.guests() == []


def test_a_guest_that_cannot_be_deleted_is_told_in_the_words_of_its_task(place: Place) -> None:
    place.lab.fault(kind="task", type="qmdestroy", exitstatus="volume is busy", log=["lvremove"])
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        with pytest.raises(TaskFailed, match="volume is busy") as busy:
            destroy.fn(here.run, "n1", target(place), True)

    assert "lvremove" in busy.value.message


def test_sweep_deletes_the_seeds_of_one_guest_of_any_run_and_storage(place: Place) -> None:
    document = place.document(count=2)
    with opened(place.write(document)) as here:
        made(here, "n1")
        made(here, "n2")
    document["spec"]["hypervisor"]["iso"]["kickstart_storage"] = "shared"
    with opened(place.write(document), OTHER_RUN) as here:
        made(here, "n1")
        before = len(place.volumes("iso/"))
        first = sweep.fn(here.run, "n1")
        again = sweep.fn(here.run, "n1")

    assert before == 3
    assert (first.status, first.detail) == ("done", "2 seed ISOs deleted")
    assert again.status == "unchanged"
    assert ["_n2_" in name for name in place.volumes("iso/")] == [True]


def test_a_rollback_removes_what_the_run_made_and_nothing_else(place: Place) -> None:
    manifest = brought_up(place)
    place.write(count=3)
    place.strange(3)
    before = place.lab.snapshot()
    said: list[str] = []
    with opened(manifest, OTHER_RUN) as here:
        made(here, "n2")
        done = undo_run(here.client, place.env, OTHER_RUN, say=said.append)
        place.lab.forget_requests()
        again = undo_run(here.client, place.env, OTHER_RUN)
    after = place.lab.snapshot()

    assert done.guests == (f"VM {place.vmid(2)} ({place.name(2)}) on pve2",)
    assert len(done.seeds) == 1
    assert (after["guests"], after["volumes"]) == (before["guests"], before["volumes"])
    assert again.nothing
    assert place.changes() == []
    assert any(text.startswith("removed VM") for text in said)


def test_a_rollback_keeps_finished_guests_where_the_run_was_to_continue(place: Place) -> None:
    manifest = brought_up(place, OTHER_RUN)
    place.write(count=2)
    with opened(manifest, OTHER_RUN) as here:
        made(here, "n2")
        done = undo_run(here.client, place.env, OTHER_RUN, keep_ready=True)

    assert len(done.kept) == 1
    assert place.guests() == [place.vmid(1)]
    assert ["_n1_" in name for name in place.volumes("iso/")] == [True]


def test_a_rollback_goes_on_after_an_error_and_tells_it(place: Place) -> None:
    with opened(place.write(count=2)) as here:
        made(here, "n1")
        made(here, "n2")
        place.lab.fault(
            kind="task", type="qmdestroy", id=str(place.vmid(2)), exitstatus="volume is busy"
        )
        done = undo_run(here.client, place.env, RUN)
        again = undo_run(here.client, place.env, RUN)

    assert len(done.errors) == 1
    assert f"VM {place.vmid(2)}" in done.errors[0]
    assert "volume is busy" in done.errors[0]
    assert len(done.guests) == 1
    assert again.errors == ()
    assert place.guests() == []


def test_a_rollback_waits_for_the_call_that_a_dead_run_left_behind(place: Place) -> None:
    place.lab.set_time(scale=1.0, qmcreate=0.6)
    try:
        with opened(place.write(iso=False)) as here:
            guest = here.guest("n1")
            place.lab.fault(method="POST", path="/nodes/pve1/qemu", reset="after")
            with pytest.raises(Exception, match="unknown"):
                create.fn(here.run, "n1")
            undo_run(here.client, place.env, RUN, declared=(guest,))
        place.lab.settle()
    finally:
        place.lab.set_time(scale=0.0, qmcreate=2.0)

    assert place.guests() == []


def test_a_rollback_does_not_wait_for_ever(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "SECONDS", 0.2)
    place.lab.fault(kind="task", type="qmcreate", endless=True)
    with opened(place.write(iso=False)) as here:
        guest = here.guest("n1")
        upid = here.client.post("/nodes/pve1/qemu", vmid=guest.vmid)
        done = undo_run(here.client, place.env, RUN, declared=(guest,))
        here.client.delete(f"/nodes/pve1/tasks/{upid}")

    assert done.errors == ()
