"""What was ours when it was found may be another's when it is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from blocks.manifest.mark import Mark, marked
from blocks.proxmox.errors import AlreadyExists
from blocks.proxmox.inventory import read_inventory
from flows.environment import run_id_of
from tasks.attach import attach
from tasks.create import create
from tasks.destroy import Target, remove
from tasks.errors import StageError
from tasks.found import FoundGuest, all_guests, of_environment
from tasks.journal import entry_for, write_entry
from tasks.rollback import undo_run
from tasks.session import Session
from tests.environments import OTHER_RUN, RUN, Place, opened


def found(here: Session, place: Place, index: int = 1) -> FoundGuest:
    """The guest, as a search finds it."""
    guests = all_guests(here.client, read_inventory(here.client))
    return next(guest for guest in guests if guest.row.vmid == place.vmid(index))


@contextmanager
def offline(place: Place, node: str) -> Iterator[None]:
    """A node that is down meanwhile."""
    place.lab.node_offline(node)
    try:
        yield
    finally:
        place.lab.node_offline(node, on=False)


def test_runs_that_a_schedule_makes_at_once_have_run_ids_of_their_own() -> None:
    first = run_id_of("01a22dae-3a52-7a13-8f00-4d0b3c11aa01")
    second = run_id_of("01a22dae-3a52-7a14-9c11-77e0b1c2dd02")

    assert first != second
    assert len(first) == 8


def test_a_clone_that_carries_our_mark_is_nobody_of_ours(place: Place) -> None:
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        path = f"/nodes/pve1/qemu/{place.vmid(1)}"
        here.client.run("POST", f"{path}/clone", newid=place.vmid(9))
        ours = of_environment(all_guests(here.client, read_inventory(here.client)), place.env)
        done = undo_run(here.client, place.env, RUN, declared=here.environment.guests)

    assert [guest.row.vmid for guest in ours] == [place.vmid(1)]
    assert done.errors == ()
    assert place.guests() == [place.vmid(9)]


@pytest.mark.parametrize("description", ["", "elsewhere"])
def test_a_guest_that_became_anothers_since_it_was_found_is_not_deleted(
    place: Place, description: str
) -> None:
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        target = Target.of(found(here, place))
        other = Mark(env="elsewhere", guest="n1", vmid=place.vmid(1), run=OTHER_RUN)
        place.edit(description=marked(other, "") if description else "mine now")
        with pytest.raises(AlreadyExists, match="does not carry the mark of n1 any more"):
            remove(here.client, target, force=True)

    assert place.guests() == [place.vmid(1)]


def test_a_note_above_the_mark_changes_nothing(place: Place) -> None:
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        place.edit(description="do not touch before noon\n" + place.config()["description"])
        done = undo_run(here.client, place.env, RUN)

    assert done.errors == ()
    assert place.guests() == []


def test_a_guest_that_was_moved_meanwhile_is_followed(place: Place) -> None:
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        target = Target.of(found(here, place))
        here.client.run(
            "POST",
            f"/nodes/pve1/qemu/{place.vmid(1)}/migrate",
            target="pve2",
            **{"with-local-disks": 1},
        )
        remove(here.client, target, force=True)

    assert place.guests() == []


def test_an_old_journal_is_not_written_over_another_guest(place: Place) -> None:
    with opened(place.write(iso=False)) as here:
        write_entry(
            place.env,
            OTHER_RUN,
            entry_for(here.guest("n1"), {"memory": "512", "scsi1": None}),
        )
        place.strange(memory=2048, scsi1="local-lvm:1")
        before = place.config()
        done = undo_run(here.client, place.env, OTHER_RUN)

    assert done.restored == ()
    assert "another guest by now" in done.notes[0]
    assert place.config() == before


def test_an_owner_of_shared_disks_stays_while_a_node_cannot_be_seen(place: Place) -> None:
    with opened(place.write(count=3, shared=True, iso=False)) as here:
        for label in ("n1", "n2", "n3"):
            create.fn(here.run, label)
        for label in ("n2", "n3"):
            attach.fn(here.run, label)
        with offline(place, "pve3"):
            done = undo_run(here.client, place.env, RUN, declared=here.environment.guests)
            left = place.guests()
        undo_run(here.client, place.env, RUN, declared=here.environment.guests)

    assert left == [place.vmid(1), place.vmid(3)]
    assert any("cannot be seen" in error for error in done.errors)
    assert any("node pve3 is offline" in error for error in done.errors)
    assert place.guests() == []


def test_a_guest_that_attaches_a_shared_disk_at_the_last_moment_keeps_it(place: Place) -> None:
    with opened(place.write(count=1, shared=True, iso=False)) as here:
        create.fn(here.run, "n1")
        target = Target.of(found(here, place), shares=True)
        place.strange(2, scsi5=place.config()["scsi1"].partition(",")[0])
        with pytest.raises(StageError, match="is attached to VM"):
            remove(here.client, target, force=True)

    assert place.guests() == [place.vmid(1), place.vmid(2)]
