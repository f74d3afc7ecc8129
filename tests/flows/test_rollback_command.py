"""``rollback``: exactly what a run made, found on the cluster."""

from __future__ import annotations

import pytest

from tests.environments import OTHER_RUN, RUN, Place, brought_up, install, opened
from tests.flows.commands import Commands
from tests.tasks.test_installation import made


def half_done(place: Place, run_id: str = RUN) -> None:
    """What a killed run leaves: a guest with its seed, not installed."""
    with opened(place.folder / "env.yaml", run_id) as here:
        made(here)


def test_the_one_unfinished_run_is_undone_and_a_second_rollback_finds_none(
    place: Place, run: Commands
) -> None:
    manifest = place.write()
    half_done(place)

    first = run("rollback", manifest, "--yes")
    second = run("rollback", manifest, "--yes")
    named = run("rollback", manifest, "--run", RUN, "--yes")

    assert (first.code, second.code, named.code) == (0, 2, 2)
    assert f"run {RUN}: 1 guest removed, 1 seed ISO removed" in first.out
    assert f"no unfinished run of {place.env} is on the cluster" in second.err
    assert f"nothing of run {RUN} of {place.env} is on" in named.err
    assert place.guests() == []
    assert place.volumes() == []


def test_what_other_runs_made_is_left(place: Place, run: Commands) -> None:
    manifest = place.write(count=2)
    with opened(manifest, OTHER_RUN) as here:
        install(here, "n2")
    half_done(place)
    before = place.config(2)

    run.good("rollback", manifest, "--yes")

    assert place.guests() == [place.vmid(2)]
    assert place.config(2) == before
    assert [name for name in place.volumes("iso/") if OTHER_RUN in name] == place.volumes("iso/")


def test_a_finished_run_is_undone_only_where_it_is_named(place: Place, run: Commands) -> None:
    manifest = brought_up(place)

    unclear = run("rollback", manifest, "--yes")
    named = run("rollback", manifest, "--run", RUN, "--yes", "--json")

    assert unclear.code == 2
    assert f"name a run with --run; there is: {RUN}" in unclear.err
    assert named.code == 0
    assert len(named.json()["guests"]) == 1
    assert place.guests() == []


def test_a_run_that_nobody_knows_is_refused_with_those_that_there_are(
    place: Place, run: Commands
) -> None:
    manifest = place.write()
    half_done(place)
    before = place.lab.snapshot()

    said = run("rollback", manifest, "--run", "0123abcd", "--yes")

    assert said.code == 2
    assert f"nothing of run 0123abcd of {place.env} is on" in said.err
    assert f"there is: {RUN}" in said.err
    assert place.lab.snapshot() == before


def test_several_unfinished_runs_have_to_be_told_apart(place: Place, run: Commands) -> None:
    manifest = place.write(count=2)
    half_done(place)
    with opened(manifest, OTHER_RUN) as here:
        made(here, "n2")

    said = run("rollback", manifest, "--yes")

    assert said.code == 2
    assert f"choose one with --run: {RUN}, {OTHER_RUN}" in said.err
    assert len(place.guests()) == 2


def test_a_dry_run_names_what_would_go(place: Place, run: Commands) -> None:
    manifest = place.write()
    half_done(place)
    before = place.lab.snapshot()

    said = run.good("rollback", manifest, "--dry-run", "--json")

    assert said.json()["guests"] == [f"VM {place.vmid()} ({place.name()}) on pve1"]
    assert f"- VM {place.vmid()} ({place.name()}) on pve1" in said.err
    assert f"Rollback of run {RUN}: 1 guest and 1 seed ISO to delete" in said.err
    assert place.lab.snapshot() == before


def test_a_guest_whose_disk_another_guest_uses_is_kept_and_told(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, storages=("local-lvm", "shared"), iso=False)
    place.strange(2, name="reader", scsi1=place.config()["scsi1"].partition(",")[0])

    said = run("rollback", manifest, "--run", RUN, "--yes")

    assert said.code == 1
    assert f"owns a disk that is attached to VM {place.vmid(2)} (reader)" in said.text
    assert place.guests() == [place.vmid(1), place.vmid(2)]


def test_a_change_by_a_finished_run_is_set_back_by_its_journal(place: Place, run: Commands) -> None:
    manifest = brought_up(place)
    before = place.config()
    document = place.document()
    document["spec"]["hypervisor"]["nodes"]["n1"]["resources"]["memory"] = 2048
    changed = run("up", place.write(document), "--yes", "--json")
    between = place.config()["memory"]

    said = run("rollback", manifest, "--run", changed.json()["run_id"], "--yes")

    assert (changed.code, between) == (0, "2048")
    assert said.code == 0
    assert place.config()["memory"] == before["memory"] == "1024"
    assert "1 guest set back" in said.out
    assert place.guests() == [place.vmid()]


@pytest.mark.parametrize("name", ["x", "../../elsewhere", "0000000", "0000000G"])
def test_what_is_no_name_of_a_run_is_refused(place: Place, run: Commands, name: str) -> None:
    said = run("rollback", place.write(), "--run", name, "--yes")

    words = " ".join(said.err.replace("│", " ").split())
    assert said.code == 2
    assert "a run is named by the eight hexadecimal digits" in words
