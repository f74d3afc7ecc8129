"""Changes in place: stage update, its journal, and what a rollback sets back."""

from __future__ import annotations

import pytest

from blocks.proxmox.errors import AlreadyExists, Conflict, Unreachable
from tasks.attach import attach
from tasks.create import create
from tasks.errors import StageError
from tasks.journal import (
    Entry,
    close_journal,
    entry_for,
    journal_path,
    journals,
    read_journal,
    write_entry,
)
from tasks.plan import diff
from tasks.reconfigure import update
from tasks.rollback import undo_run
from tests.environments import OTHER_RUN, RUN, Document, Place, brought_up, opened


def node(document: Document, label: str = "n1") -> Document:
    found: Document = document["spec"]["hypervisor"]["nodes"][label]
    return found


def changed(place: Place) -> Document:
    """The environment of ``brought_up(place, iso=False)`` with other wishes."""
    document = place.document(iso=False, storages=("local-lvm", "shared"))
    node(document)["resources"]["memory"] = 2048
    node(document)["nics"][0]["bridge"] = "vmbr1"
    node(document)["tags"] = ["blue"]
    node(document)["onboot"] = True
    node(document)["description"] = "new words"
    return document


def config(place: Place, index: int = 1) -> dict[str, object]:
    """The live configuration without what every write changes."""
    return {key: value for key, value in place.config(index).items() if key != "digest"}


def test_update_changes_what_differs_in_one_call_and_once(place: Place) -> None:
    brought_up(place, iso=False)
    with opened(place.write(changed(place)), OTHER_RUN) as here:
        place.lab.forget_requests()
        first = update.fn(here.run, "n1")
        calls = place.changes()
        again = update.fn(here.run, "n1")
        left = diff(here.guest("n1"), place.config())

    assert (first.status, again.status) == ("done", "unchanged")
    assert calls == place.changes() == [f"PUT /nodes/pve1/qemu/{place.vmid()}/config"]
    assert left == ()
    assert "memory" in first.detail


def test_a_disk_is_grown_and_a_smaller_one_is_refused_before_anything_changes(
    place: Place,
) -> None:
    brought_up(place, iso=False)
    document = place.document(iso=False)
    node(document)["disks"][0]["size"] = "6G"
    with opened(place.write(document), OTHER_RUN) as here:
        update.fn(here.run, "n1")
    grown = place.config()["scsi0"]

    node(document)["disks"][0]["size"] = "2G"
    node(document)["resources"]["memory"] = 4096
    with opened(place.write(document), OTHER_RUN) as here:
        place.lab.forget_requests()
        with pytest.raises(StageError, match="a disk can grow, not shrink") as refused:
            update.fn(here.run, "n1")

    assert "size=6G" in grown
    assert "down --only n1" in (refused.value.advice or "")
    assert place.changes() == []


def test_update_never_changes_a_stranger(place: Place) -> None:
    place.strange()
    with opened(place.write()) as here, pytest.raises(AlreadyExists, match="not made by Proxflow"):
        update.fn(here.run, "n1")


def test_an_update_refuses_to_write_over_what_somebody_else_wrote_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought_up(place, iso=False)

    def meanwhile(*arguments: object) -> None:
        place.edit(cores=2)

    monkeypatch.setattr("tasks.reconfigure.write_entry", meanwhile)
    manifest = place.write(changed(place))
    with opened(manifest, OTHER_RUN) as here, pytest.raises(Conflict) as conflict:
        update.fn(here.run, "n1")

    assert conflict.value.transient
    assert place.config()["memory"] == "1024"


def test_a_state_folder_that_cannot_be_written_is_named_and_nothing_is_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought_up(place, iso=False)
    blocked = place.folder / "a-file"
    blocked.write_text("")
    monkeypatch.setenv("PROXFLOW_STATE_DIR", str(blocked))

    manifest = place.write(changed(place))
    with opened(manifest, OTHER_RUN) as here, pytest.raises(StageError) as refused:
        update.fn(here.run, "n1")

    assert refused.value.message == f"cannot write to the state folder {blocked}: Not a directory"
    assert "PROXFLOW_STATE_DIR" in str(refused.value.advice)
    assert place.config()["memory"] == "1024"


def test_a_rollback_sets_back_every_value_and_removes_added_disks(place: Place) -> None:
    brought_up(place, iso=False)
    before, volumes = config(place), place.volumes()
    with opened(place.write(changed(place)), OTHER_RUN) as here:
        update.fn(here.run, "n1")
        assert "scsi1" in place.config()
        done = undo_run(here.client, place.env, OTHER_RUN)
        again = undo_run(here.client, place.env, OTHER_RUN)

    assert done.restored == (f"VM {place.vmid()} (n1)",)
    assert config(place) == before
    assert place.volumes() == volumes
    assert again.nothing
    assert read_journal(place.env, OTHER_RUN) == ()


def test_a_change_whose_answer_was_lost_is_set_back_too(place: Place) -> None:
    brought_up(place, iso=False)
    before = config(place)
    with opened(place.write(changed(place)), OTHER_RUN) as here:
        place.lab.fault(method="PUT", path=".*/config", reset="after")
        with pytest.raises(Unreachable):
            update.fn(here.run, "n1")
        assert place.config()["memory"] == "2048"
        undo_run(here.client, place.env, OTHER_RUN)

    assert config(place) == before


def test_what_somebody_has_changed_since_stays_and_is_noted(place: Place) -> None:
    brought_up(place, iso=False)
    with opened(place.write(changed(place)), OTHER_RUN) as here:
        update.fn(here.run, "n1")
        place.edit(memory=3072)
        done = undo_run(here.client, place.env, OTHER_RUN)

    assert place.config()["memory"] == "3072"
    assert "bridge=vmbr0" in place.config()["net0"]
    assert done.notes == (f"VM {place.vmid()} (n1): memory was changed since and stays so",)


def test_a_grown_disk_cannot_be_set_back_and_is_noted(place: Place) -> None:
    brought_up(place, iso=False)
    document = place.document(iso=False)
    node(document)["disks"][0]["size"] = "6G"
    with opened(place.write(document), OTHER_RUN) as here:
        update.fn(here.run, "n1")
        done = undo_run(here.client, place.env, OTHER_RUN)

    assert "size=6G" in place.config()["scsi0"]
    assert f"VM {place.vmid()} (n1): scsi0 was grown and stays so" in done.notes


def test_a_guest_that_stays_gives_the_disk_of_a_new_owner_back(place: Place) -> None:
    document = place.document(count=2, iso=False)
    del document["spec"]["hypervisor"]["nodes"]["n1"]
    with opened(place.write(document)) as here:
        create.fn(here.run, "n2")
    before = config(place, 2)
    with opened(place.write(count=2, shared=True, iso=False), OTHER_RUN) as here:
        create.fn(here.run, "n1")
        attach.fn(here.run, "n2")
        assert "scsi1" in place.config(2)
        done = undo_run(here.client, place.env, OTHER_RUN)

    assert done.errors == ()
    assert place.guests() == [place.vmid(2)]
    assert config(place, 2) == before


def test_a_change_that_was_finished_stays_where_the_run_was_to_continue(place: Place) -> None:
    brought_up(place, iso=False)
    with opened(place.write(changed(place)), OTHER_RUN) as here:
        update.fn(here.run, "n1")
        undo_run(here.client, place.env, OTHER_RUN, keep_ready=True)

    assert place.config()["memory"] == "2048"


def test_the_journal_keeps_entries_in_order_and_a_torn_line_is_cut(place: Place) -> None:
    with opened(place.write()) as here:
        guest = here.guest("n1")
    first = entry_for(guest, {"memory": "1024"})
    second = entry_for(guest, {"cores": 1}, ("scsi0",))
    for entry in (first, second):
        write_entry(place.env, RUN, entry)
    with journal_path(place.env, RUN).open("a") as file:
        file.write('{"vmid": 10')

    assert read_journal(place.env, RUN) == (first, second)
    assert journals(place.env) == (RUN,)
    close_journal(place.env, RUN)
    assert read_journal(place.env, RUN) == ()
    assert journals(place.env) == ()
    close_journal(place.env, RUN)


def test_an_entry_that_has_ended_takes_the_place_of_the_one_that_began(place: Place) -> None:
    entry = Entry(vmid=101, node="pve1", kind="qemu", label="n1", before={"memory": "1024"})
    ended = entry.model_copy(update={"after": {"memory": "2048"}})
    write_entry(place.env, RUN, entry)
    write_entry(place.env, RUN, ended)

    assert read_journal(place.env, RUN) == (ended,)


def test_only_its_owner_may_read_a_journal(place: Place) -> None:
    entry = Entry(vmid=101, node="pve1", kind="qemu", label="n1", before={"memory": "1024"})
    write_entry(place.env, RUN, entry)

    path = journal_path(place.env, RUN)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
