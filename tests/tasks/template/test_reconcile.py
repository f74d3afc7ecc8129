"""Existing clones that differ: told, never changed unasked, and changed in place on request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blocks.manifest.guest import CloneSource, Disk, Guest
from blocks.proxmox.errors import Conflict
from blocks.units import GIB
from tasks.journal import read_journal
from tasks.live import Live
from tasks.rollback import undo_run
from tasks.session import Session
from tasks.stage import Outcome
from tasks.template.clone import adjust, clone, start
from tasks.template.clone_wanted import Tailoring
from tasks.template.reconcile import differences, is_linked, write
from tests.environments import KEY, OTHER_RUN, Place
from tests.tasks.template.clones import (
    SHARED,
    config,
    edit,
    everything,
    linked,
    live,
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
    place.lab.clear_faults()


def made(golden: Golden, guest: Guest, template: Guest | None = None) -> None:
    """The template and a finished clone of it."""
    with golden.opened(golden.recipe(guest, template=template)) as here:
        make_template(here)
        make(here, guest.label)


def found(here: Session, guest: Guest) -> list[str]:
    """The differences, by their targets."""
    changes = differences(here, guest, Live(config(here, guest)))
    return [change.target for change in changes]


def without_digest(here: Session, guest: Guest) -> dict[str, object]:
    """The live configuration without what every write changes."""
    return {key: value for key, value in config(here, guest).items() if key != "digest"}


def reconciled(golden: Golden, guest: Guest, template: Guest | None = None) -> Outcome:
    """What adjust says in another run that may change finished clones."""
    recipe = golden.recipe(guest, template=template)
    with golden.opened(recipe, OTHER_RUN, reconcile=True) as here:
        clone.fn(here.run, guest.label)
        return adjust.fn(here.run, guest.label)


def test_a_clone_that_was_just_made_does_not_differ(golden: Golden) -> None:
    guest = golden.clone(memory=2048, tags=("web",), description="of the web team")
    made(golden, guest)
    with golden.opened(golden.recipe(guest), OTHER_RUN) as here:
        assert found(here, guest) == []


@pytest.mark.parametrize("method", ["seed", "fields"])
def test_what_cloud_init_is_told_is_compared_without_a_call(golden: Golden, method: str) -> None:
    storage = "local" if method == "seed" else "local-lvm"
    told = golden.cloud_init(f"c1-{golden.place.number}", method=method, storage=storage)
    guest = golden.clone(cloud_init=told)
    made(golden, guest)
    other = golden.clone(cloud_init=told.model_copy(update={"user": "admin"}))
    with golden.opened(golden.recipe(other), OTHER_RUN) as here:
        as_it_is = Live(config(here, guest))
        before = sum(here.client.calls.values())
        same = differences(here, guest, as_it_is)
        changed = differences(here, other, as_it_is)

        assert sum(here.client.calls.values()) == before
    assert same == ()
    assert [change.target for change in changed] == ["ide2" if method == "seed" else "ciuser"]


def test_a_finished_clone_that_differs_is_told_and_left_as_it_is(golden: Golden) -> None:
    made(golden, golden.clone())
    other = golden.clone(memory=2048, tags=("blue",))
    before = everything(golden)
    with golden.opened(golden.recipe(other), OTHER_RUN) as here:
        outcomes = [stage.fn(here.run, other.label) for stage in (clone, adjust, start)]

    assert [outcome.status for outcome in outcomes] == ["unchanged"] * 3
    assert outcomes[1].warnings == (
        "differs from the manifest: ~ memory: 1024 MiB -> 2048 MiB (takes effect when it is "
        "stopped and started)",
        "differs from the manifest: + tags: blue",
        "run it with --reconcile to change what can be changed in place",
    )
    assert everything(golden) == before


def test_a_finished_clone_is_brought_to_the_manifest_on_request_and_once(golden: Golden) -> None:
    made(golden, golden.clone(tags=("old",), autostart=False))
    disks = (Disk(slot="scsi0", storage="local-lvm", size=6 * GIB),)
    told = golden.cloud_init(f"c1-{golden.place.number}", user="admin")
    other = golden.clone(
        memory=2048, tags=("blue",), disks=disks, cloud_init=told, description="new words"
    )
    golden.place.lab.forget_requests()
    first = reconciled(golden, other)
    calls = golden.place.changes()
    again = reconciled(golden, other)
    with golden.opened(golden.recipe(other), OTHER_RUN) as here:
        after = live(here, other)

        assert found(here, other) == []
        assert config(here, other)["ciuser"] == "admin"
    path = f"PUT /nodes/pve1/qemu/{other.vmid}"
    assert (first.status, again.status) == ("done", "unchanged")
    assert "memory: 1024 MiB -> 2048 MiB" in first.detail
    assert calls == golden.place.changes() == [f"{path}/config", f"{path}/resize"]
    assert after.tags == ("blue", "old")  # a tag that somebody added is his
    assert "state=ready" in after.description


def test_what_a_running_clone_does_not_have_yet_is_told(golden: Golden) -> None:
    made(golden, golden.clone())
    told = golden.cloud_init(f"c1-{golden.place.number}", user="admin")
    other = golden.clone(memory=2048, cores=2, cloud_init=told)
    golden.place.lab.forget_requests()
    outcome = reconciled(golden, other)

    assert outcome.status == "done"
    assert outcome.warnings == (
        "cloud-init is told anew, and sees it at the next boot",
        "waits until it is stopped and started: cores, memory",
    )
    path = f"PUT /nodes/pve1/qemu/{other.vmid}"
    assert golden.place.changes() == [f"{path}/config", f"{path}/cloudinit"]


def test_what_cannot_be_changed_in_place_is_told_beside_what_was_changed(golden: Golden) -> None:
    made(golden, golden.clone())
    smaller = (Disk(slot="scsi0", storage="local-lvm", size=GIB),)
    other = golden.clone(onboot=True, disks=smaller)
    outcome = reconciled(golden, other)
    with golden.opened(golden.recipe(other), OTHER_RUN) as here:
        after = config(here, other)

    assert outcome.status == "done"
    assert outcome.warnings == (
        "cannot be changed in place: ~ scsi0.size: 4G -> 1G (a disk can grow, not shrink)",
    )
    assert after["onboot"] == 1
    assert "size=4G" in after["scsi0"]


def test_where_nothing_can_be_changed_in_place_nothing_is_written(golden: Golden) -> None:
    made(golden, golden.clone())
    other = golden.clone(source=CloneSource(template="template", storage=SHARED))
    before = everything(golden)
    outcome = reconciled(golden, other)

    assert outcome.status == "unchanged"
    assert [text.partition(" (")[0] for text in outcome.warnings] == [
        "cannot be changed in place: ~ scsi0.storage: local-lvm -> shared"
    ]
    assert everything(golden) == before


@pytest.mark.parametrize("full", [True, False])
def test_a_linked_clone_does_not_become_a_full_one_nor_the_other_way_round(
    golden: Golden, full: bool
) -> None:
    kinds = {False: linked(golden), True: golden.clone()}
    template = on_shared(golden)
    made(golden, kinds[not full], template)
    before = everything(golden)
    outcome = reconciled(golden, kinds[full], template)

    words = "linked -> full" if full else "full -> linked"
    assert outcome.status == "unchanged"
    assert f"~ scsi0.clone: {words} (only making the guest anew would do it)" in outcome.warnings[0]
    assert everything(golden) == before


@pytest.mark.parametrize(
    ("volume", "answer"),
    [
        ("local:1100/base-1100-disk-1.qcow2/1101/vm-1101-disk-1.qcow2", True),
        ("local:1102/vm-1102-disk-1.qcow2", False),
        ("tank:base-1100-disk-0/vm-1101-disk-0", True),
        ("local-lvm:vm-1303-disk-0", None),
        ("", None),
    ],
)
def test_the_name_of_a_volume_tells_a_linked_clone_where_it_can(
    volume: str, answer: bool | None
) -> None:
    assert is_linked(volume) is answer


def test_a_rollback_sets_a_reconciled_clone_back(golden: Golden) -> None:
    guest = golden.clone(tags=("old",))
    made(golden, guest)
    told = golden.cloud_init(f"c1-{golden.place.number}", user="admin")
    other = golden.clone(memory=2048, tags=("blue",), cloud_init=told)
    with golden.opened(golden.recipe(guest)) as here:
        before = without_digest(here, guest)
    reconciled(golden, other)
    with golden.opened(golden.recipe(other), OTHER_RUN) as here:
        changed = without_digest(here, guest)
        undone = undo_run(here.client, golden.name, OTHER_RUN)

        assert without_digest(here, guest) == before != changed
    assert undone.errors == ()


def test_a_password_is_in_no_difference_and_in_no_journal(golden: Golden) -> None:
    hashed = "$6$saltsalt$" + "x" * 86
    plain = golden.cloud_init(f"c1-{golden.place.number}")
    made(golden, golden.clone(cloud_init=plain))
    told = plain.model_copy(update={"password_hash": hashed, "ssh_keys": (KEY, f"{KEY}2")})
    other = golden.clone(cloud_init=type(plain).model_validate(told.model_dump()))
    with golden.opened(golden.recipe(other), OTHER_RUN, reconcile=True) as here:
        texts = [str(c) for c in differences(here, other, Live(config(here, other)))]
        outcome = adjust.fn(here.run, other.label)
        entries = read_journal(golden.name, OTHER_RUN)

        assert "cipassword" in config(here, other)
    assert outcome.status == "done"
    assert entries
    assert "cipassword" not in entries[0].before
    assert hashed not in repr((texts, outcome, entries))


def test_a_seed_with_other_documents_takes_the_place_of_the_old_one(golden: Golden) -> None:
    told = golden.cloud_init(f"c1-{golden.place.number}", method="seed", storage="local")
    made(golden, golden.clone(cloud_init=told, autostart=False))
    old = seeds(golden)
    other = golden.clone(cloud_init=told.model_copy(update={"user": "admin"}))
    outcome = reconciled(golden, other)
    with golden.opened(golden.recipe(other), OTHER_RUN) as here:
        after = config(here, other)

    both = seeds(golden)
    again = reconciled(golden, other)
    (new,) = seeds(golden)
    assert (outcome.status, again.status) == ("done", "unchanged")
    assert {*old, new} == {*both}  # the old one stays for a rollback, and goes with the next run
    assert after["ide2"].partition(",")[0] == new.partition("/")[2]
    assert after["boot"] == "order=scsi0"


def test_a_rollback_gives_a_clone_its_old_seed_back(golden: Golden) -> None:
    told = golden.cloud_init(f"c1-{golden.place.number}", method="seed", storage="local")
    guest = golden.clone(cloud_init=told, autostart=False)
    made(golden, guest)
    other = golden.clone(cloud_init=told.model_copy(update={"user": "admin"}))
    (old,) = seeds(golden)
    reconciled(golden, other)
    with golden.opened(golden.recipe(other), OTHER_RUN) as here:
        undone = undo_run(here.client, golden.name, OTHER_RUN)

        assert config(here, guest)["ide2"].partition(",")[0] == old.partition("/")[2]
    assert undone.errors == ()


def test_a_clone_that_somebody_edits_meanwhile_is_not_overwritten(golden: Golden) -> None:
    made(golden, golden.clone())
    other = golden.clone(memory=2048)
    with golden.opened(golden.recipe(other), OTHER_RUN) as here:
        read_before = Live(config(here, other))
        edit(here, other, cores=3)
        wanted = Tailoring({"memory": 2048}, (), ())
        with pytest.raises(Conflict):
            write(here, other, read_before, wanted)

        assert config(here, other)["cores"] == 3
        assert config(here, other)["memory"] == "1024"
