"""``python -m flows.template build`` on the lab: from an image to a template and its clones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blocks.units import GIB
from tests.environments import NODES, Place
from tests.flows.commands import Commands, flow_run, states
from tests.templates import Golden

pytestmark = pytest.mark.usefixtures("prefect_api")

RUN = ("--yes", "--json")


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def image(golden: Golden, tmp_path: Path) -> Path:
    return golden.image_file(tmp_path / "images")


def config(golden: Golden, vmid: int, node: str = NODES[0]) -> dict[str, Any]:
    with golden.place.client() as client:
        return dict(client.get(f"/nodes/{node}/qemu/{vmid}/config"))


def line(result: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in result["stages"] if each["name"] == name)
    return found


def test_a_template_and_its_clones_come_from_an_image(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=2))

    result = run.good("template", "build", manifest, *RUN).json()

    assert [each["status"] for each in result["stages"]] == ["done"] * 6
    assert config(golden, golden.vmid)["template"] == 1
    for index in (1, 2):
        clone = config(golden, golden.vmid + index)
        assert clone["name"] == f"c{index}-{golden.place.number}"
        assert golden.place.address(index) in clone["ipconfig0"]
        assert golden.vmid + index in {
            row["vmid"] for row in golden.place.lab.snapshot()["running"]
        }
    assert [clone["state"] for clone in result["clones"]] == ["done", "done"]


def test_each_stage_is_a_task_run_of_the_flow_run(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=1))

    result = run.good("template", "build", manifest, *RUN).json()

    assert flow_run(result["run_id"]).name == f"template {golden.name}"
    clone = f"c1-{golden.place.number}"
    assert set(states(result["run_id"])) == {
        f"{golden.name}/plan",
        f"{golden.name}/preflight",
        *(
            f"{golden.name}/template/{stage}"
            for stage in ("image", "create", "configure", "template")
        ),
        *(f"{golden.name}/{clone}/{stage}" for stage in ("clone", "adjust", "start")),
    }


def test_a_second_run_changes_nothing_and_says_so(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=2))
    run.good("template", "build", manifest, *RUN)
    before = golden.place.lab.snapshot()
    golden.place.lab.forget_requests()

    result = run.good("template", "build", manifest, *RUN).json()

    assert {each["status"] for each in result["stages"]} == {"unchanged"}
    assert golden.place.changes() == []
    assert golden.place.lab.snapshot() == before


def test_stages_may_be_run_one_by_one(golden: Golden, image: Path, run: Commands) -> None:
    manifest = golden.write(golden.document(image, clones=1))

    run.good("template", "build", manifest, *RUN, "--stages", "image,create")
    assert "scsi0" not in config(golden, golden.vmid)

    run.good("template", "build", manifest, *RUN, "--from", "configure", "--skip", "clones")
    assert config(golden, golden.vmid)["template"] == 1

    result = run.good("template", "build", manifest, *RUN, "--stages", "clones").json()
    assert [clone["state"] for clone in result["clones"]] == ["done"]
    assert line(result, "image")["status"] == "skipped"


def test_a_stage_whose_ground_is_missing_is_refused_before_anything_is_changed(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=1))
    before = golden.place.lab.snapshot()

    said = run("template", "build", manifest, "--yes", "--stages", "clones")

    assert said.code == 2
    assert "template" in said.err
    assert golden.place.lab.snapshot() == before


def test_preflight_alone_looks_at_all_that_a_build_would_do(
    golden: Golden, image: Path, run: Commands
) -> None:
    document = golden.document(image, clones=1)
    document["spec"]["nics"] = [{"bridge": "vmbr77"}]
    before = golden.place.lab.snapshot()

    said = run("template", "build", golden.write(document), "--yes", "--stages", "preflight")

    assert said.code == 2
    assert "has no bridge vmbr77" in said.err
    assert golden.place.lab.snapshot() == before


def test_a_clone_that_fails_is_removed_and_the_others_stay(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=3))
    second = golden.vmid + 2
    golden.place.lab.fault(
        kind="task", type="qmstart", id=str(second), exitstatus="no memory for you"
    )

    said = run("template", "build", manifest, *RUN)

    result = said.json()
    assert said.code == 1
    assert [clone["state"] for clone in result["clones"]] == ["done", "failed", "done"]
    assert "no memory for you" in "\n".join(result["errors"])
    there = set(map(int, golden.place.lab.snapshot()["guests"]))
    assert {golden.vmid, golden.vmid + 1, golden.vmid + 3} <= there
    assert second not in there


def test_a_template_that_cannot_be_finished_is_removed(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=1))
    golden.place.lab.fault(
        kind="task", type="qmtemplate", id=str(golden.vmid), exitstatus="out of luck"
    )

    said = run("template", "build", manifest, *RUN)

    assert said.code == 1
    assert "out of luck" in said.text
    assert golden.vmid not in set(map(int, golden.place.lab.snapshot()["guests"]))
    volumes = golden.place.lab.snapshot()["volumes"]
    assert any("import/proxflow-" in name for name in volumes), "the cached image stays"


def test_with_no_rollback_what_was_made_stays_and_the_next_run_goes_on(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image))
    golden.place.lab.fault(
        kind="task", type="qmtemplate", id=str(golden.vmid), exitstatus="out of luck"
    )
    run("template", "build", manifest, *RUN, "--no-rollback")
    golden.place.lab.clear_faults()

    result = run.good("template", "build", manifest, *RUN).json()

    assert line(result, "create")["status"] == "unchanged"
    assert line(result, "template")["status"] == "done"


def test_somebody_elses_guest_under_the_number_is_never_touched(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=1))
    golden.place.strange(1)  # the number of the first clone
    before = golden.place.lab.snapshot()

    said = run("template", "build", manifest, "--yes")

    assert said.code == 2
    assert f"vm_id {golden.vmid + 1} is taken" in said.err
    assert golden.place.lab.snapshot() == before


def test_finished_clones_that_differ_are_shown_and_changed_only_with_reconcile(
    golden: Golden, image: Path, run: Commands
) -> None:
    document = golden.document(image, clones=1)
    run.good("template", "build", golden.write(document), *RUN)
    document["spec"]["clones"][0]["resources"] = {"memory": 2048}
    manifest = golden.write(document)

    shown = run.good("template", "build", manifest, "--yes")
    assert "2048" in shown.text
    assert config(golden, golden.vmid + 1)["memory"] == "1024"

    run.good("template", "build", manifest, "--yes", "--reconcile")
    assert config(golden, golden.vmid + 1)["memory"] == "2048"


def test_a_dry_run_shows_the_plan_and_changes_nothing(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=2))
    before = golden.place.lab.snapshot()

    said = run.good("template", "build", manifest, "--dry-run")

    assert "template to be built, 2 clones to be made" in said.err
    assert golden.place.lab.snapshot() == before


def test_a_template_is_no_environment_and_an_environment_no_template(
    golden: Golden, image: Path, run: Commands
) -> None:
    template = golden.write(golden.document(image))
    environment = golden.place.write()

    refused = run("up", template, "--yes")
    assert refused.code == 2
    assert "build it with flows.template build" in refused.err

    refused = run("template", "build", environment, "--yes")
    assert refused.code == 2
    assert "bring it up with flows.up" in refused.err


def test_down_removes_the_clones_and_then_the_template(
    golden: Golden, image: Path, run: Commands
) -> None:
    document = golden.document(image, clones=1)
    document["spec"]["disk"]["storage"] = "local"
    document["spec"]["clones"][0]["mode"] = "linked"
    manifest = golden.write(document)
    run.good("template", "build", manifest, *RUN)

    run.good("down", manifest, "--yes")

    there = set(map(int, golden.place.lab.snapshot()["guests"]))
    assert not {golden.vmid, golden.vmid + 1} & there


def rebuilt(golden: Golden, image: Path, *, keep: int, clones: int = 0) -> dict[str, Any]:
    first = golden.vmid + 10
    return golden.document(
        image,
        clones,
        rebuild={"when": "on-new-image", "keep": keep, "vm_ids": f"{first}-{first + 3}"},
        vm_id=first,
        alias={"tag": f"{golden.name}-current"},
    )


def templates_of(golden: Golden) -> dict[int, dict[str, Any]]:
    """Generations by number, with their configuration."""
    there = sorted(map(int, golden.place.lab.snapshot()["guests"]))
    numbers = range(golden.vmid + 10, golden.vmid + 14)
    return {vmid: config(golden, vmid) for vmid in there if vmid in numbers}


def test_a_new_image_makes_a_new_generation_that_takes_the_alias(
    golden: Golden, image: Path, tmp_path: Path, run: Commands
) -> None:
    run.good("template", "build", golden.write(rebuilt(golden, image, keep=2)), *RUN)
    newer = golden.image_file(tmp_path / "newer", size=2 * GIB)
    manifest = golden.write(rebuilt(golden, newer, keep=2))

    run.good("template", "build", manifest, *RUN)

    first, second = templates_of(golden).values()
    assert first["template"] == second["template"] == 1
    assert first["name"] != second["name"]
    assert f"{golden.name}-current" in second["tags"]
    assert f"{golden.name}-current" not in first.get("tags", "")
    said = run.good("status", manifest)
    assert "an older generation" in said.out

    run.good("down", manifest, "--yes")
    assert templates_of(golden) == {}


def test_generations_beyond_those_kept_go_unless_a_linked_clone_needs_them(
    golden: Golden, image: Path, tmp_path: Path, run: Commands
) -> None:
    document = rebuilt(golden, image, keep=1, clones=1)
    document["spec"]["disk"]["storage"] = "local"
    document["spec"]["clones"][0]["mode"] = "linked"
    run.good("template", "build", golden.write(document), *RUN)
    (old,) = templates_of(golden)
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "newer", size=2 * GIB))

    said = run.good("template", "build", golden.write(document), *RUN)

    assert old in templates_of(golden)
    assert len(templates_of(golden)) == 2
    assert "stays" in "\n".join(said.json()["warnings"])

    document["spec"]["clones"][0]["mode"] = "full"
    run.good("down", golden.write(document), "--yes", "--only", f"c1-{golden.place.number}")
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "newest", size=3 * GIB))
    run.good("template", "build", golden.write(document), *RUN)
    assert old not in templates_of(golden)
    assert len(templates_of(golden)) == 1
