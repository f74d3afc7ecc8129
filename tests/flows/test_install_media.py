"""``up`` and ``down`` with install ISOs that the run provides."""

from __future__ import annotations

from pathlib import Path

from tests.environments import Place
from tests.flows.commands import Commands, states
from tests.tasks.test_media import document, ubuntu_source


def provided(place: Place) -> list[str]:
    """The rewritten ISOs of the place that are on the lab's storages."""
    return [
        name
        for name in place.lab.snapshot()["volumes"]
        if f"{place.env}-ubuntu" in name and ".proxflow-" in name
    ]


def test_two_nodes_are_installed_from_one_rewritten_iso_which_outlives_them(
    place: Place, tmp_path: Path, run: Commands
) -> None:
    document_ = document(place, ubuntu_source(place, tmp_path), count=2, storage="shared")
    manifest = place.write(document_)

    plan = run.good("plan", manifest)
    first = run.good("up", manifest, "--yes", "--json")
    second = run.good("up", manifest, "--yes")
    before_down = provided(place)
    run.good("down", manifest, "--yes")

    result = first.json()
    media = [stage for guest in result["guests"] for stage in guest["stages"][2:3]]
    said = " ".join(plan.text.split())
    assert "so that Ubuntu 24.04 asks nothing, and uploaded if it is not there" in said
    assert "asks questions" not in said
    assert [stage["name"] for stage in media] == ["media", "media"]
    assert sorted(stage["status"] for stage in media) == ["done", "unchanged"]
    assert states(result["run_id"])[f"{place.env}/n1/media"] == "Completed"
    assert "nothing to do" in second.err
    assert len(before_down) == 1
    assert provided(place) == before_down
    assert place.guests() == []


def test_a_rollback_leaves_the_rewritten_iso_for_the_next_run(
    place: Place, tmp_path: Path, run: Commands
) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path), storage="shared"))
    place.lab.fault(kind="task", type="qmstart", exitstatus="start failed: exit code 1")

    failed = run("up", manifest, "--yes")
    place.lab.clear_faults()
    again = run.good("up", manifest, "--yes", "--json")

    assert failed.code == 1
    (stage,) = [s for s in again.json()["guests"][0]["stages"] if s["name"] == "media"]
    assert stage["status"] == "unchanged"
    assert len(provided(place)) == 1


def test_a_wrong_checksum_is_refused_and_nothing_is_made(
    place: Place, tmp_path: Path, run: Commands
) -> None:
    source = ubuntu_source(place, tmp_path)
    manifest = place.write(document(place, source, checksum="sha256:" + "0" * 64))
    place.lab.forget_requests()

    said = run("up", manifest, "--yes")

    assert said.code == 2
    assert "and the manifest asks for 000" in said.text.replace("\n", " ")
    assert place.changes() == []
