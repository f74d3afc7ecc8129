"""Disks that several guests share: one volume, made once, and never taken from under a user."""

from __future__ import annotations

import pytest

from blocks.proxmox.errors import NotFound
from blocks.proxmox.inventory import read_inventory
from tasks.attach import attach
from tasks.create import create
from tasks.destroy import Target, refuse_known_users, remove
from tasks.errors import StageError
from tasks.found import all_guests, removal_order, uses
from tasks.session import Session
from tests.environments import Place, opened


def created(here: Session, *labels: str) -> None:
    """The guests, without an installation."""
    for label in labels:
        create.fn(here.run, label)


def test_the_owner_makes_the_volume_and_the_others_attach_it(place: Place) -> None:
    with opened(place.write(count=3, shared=True, iso=False)) as here:
        created(here, "n1", "n2", "n3")
        outcomes = [attach.fn(here.run, label).status for label in ("n1", "n2", "n3")]

    volumes = {place.config(n)["scsi1"].partition(",")[0] for n in (1, 2, 3)}
    assert volumes == {f"shared:{place.vmid(1)}/vm-{place.vmid(1)}-disk-0.raw"}
    assert outcomes == ["unchanged", "done", "done"]
    assert len(place.volumes("shared:")) == 1


def test_a_user_is_created_without_the_disk_of_the_owner(place: Place) -> None:
    with opened(place.write(count=2, shared=True, iso=False)) as here:
        created(here, "n2")
    assert "scsi1" not in place.config(2)
    assert place.volumes("shared:") == []


def test_attaching_again_changes_nothing(place: Place) -> None:
    with opened(place.write(count=2, shared=True, iso=False)) as here:
        created(here, "n1", "n2")
        attach.fn(here.run, "n2")
        place.lab.forget_requests()
        assert attach.fn(here.run, "n2").status == "unchanged"
    assert place.changes() == []


def test_a_disk_whose_owner_is_missing_is_refused(place: Place) -> None:
    with opened(place.write(count=2, shared=True, iso=False)) as here:
        created(here, "n2")
        with pytest.raises(NotFound, match=f"VM {place.vmid(1)} is not on node pve1"):
            attach.fn(here.run, "n2")


def test_an_owner_without_the_disk_is_named(place: Place) -> None:
    with opened(place.write(count=2, shared=True, iso=False)) as here:
        created(here, "n1", "n2")
        place.edit(1, delete="scsi1")
        with pytest.raises(StageError) as missing:
            attach.fn(here.run, "n2")

    text = f"n1 (VM {place.vmid(1)}) has no disk scsi1, which scsi1 shares"
    assert missing.value.message == text


def test_the_owner_is_found_though_only_the_user_was_asked_for(place: Place) -> None:
    manifest = place.write(count=2, shared=True, iso=False)
    with opened(manifest) as here:
        created(here, "n1")
    with opened(manifest, only=["n2"]) as here:
        created(here, "n2")
        assert attach.fn(here.run, "n2").status == "done"


def test_an_owner_is_not_deleted_while_another_guest_uses_its_disk(place: Place) -> None:
    with opened(place.write(count=2, shared=True, iso=False)) as here:
        created(here, "n1", "n2")
        attach.fn(here.run, "n2")
        guests = all_guests(here.client, read_inventory(here.client))
        owner, user = (g for g in guests if g.row.vmid in place.guests())
        place.lab.forget_requests()
        with pytest.raises(StageError, match="owns a disk that is attached to VM") as used:
            refuse_known_users(owner, (user,))

    assert str(place.vmid(2)) in used.value.message
    assert place.changes() == []
    assert place.guests() == [place.vmid(1), place.vmid(2)]


def test_users_go_before_the_owner_and_a_user_takes_no_volume_with_it(place: Place) -> None:
    with opened(place.write(count=3, shared=True, iso=False)) as here:
        created(here, "n1", "n2", "n3")
        for label in ("n2", "n3"):
            attach.fn(here.run, label)
        guests = all_guests(here.client, read_inventory(here.client))
        mine = [g for g in guests if g.row.vmid in place.guests()]
        order = removal_order(mine)
        remove(here.client, Target.of(order[0], shares=True), force=True)

    assert [g.row.vmid for g in order] == [place.vmid(2), place.vmid(3), place.vmid(1)]
    assert uses(mine[1], mine[0])
    assert not uses(mine[0], mine[1])
    assert len(place.volumes("shared:")) == 1
