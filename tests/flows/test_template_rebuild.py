"""``template build --rebuild``: a new generation because somebody asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.environments import Place
from tests.flows.commands import Commands
from tests.tasks.template.runs import generations
from tests.templates import Golden

pytestmark = pytest.mark.usefixtures("prefect_api")

RUN = ("--yes", "--json")


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def built(golden: Golden, tmp_path: Path, run: Commands) -> dict[str, Any]:
    """The manifest of a template with generations, one of which is there."""
    first = golden.vmid + 10
    document = golden.document(
        golden.image_file(tmp_path / "images"),
        vm_id=first,
        rebuild={"when": "on-new-image", "keep": 2, "vm_ids": f"{first}-{first + 4}"},
        alias={"tag": f"{golden.name}-current"},
    )
    run.good("template", "build", golden.write(document), *RUN)
    return document


def tagged(golden: Golden) -> list[int]:
    """Numbers of the generations that carry the alias."""
    alias = f"{golden.name}-current"
    return [vmid for vmid, live in generations(golden).items() if alias in live.get("tags", "")]


def test_hardware_that_changed_comes_with_the_generation_that_is_asked_for(
    golden: Golden, built: dict[str, Any], run: Commands
) -> None:
    built["spec"]["resources"] = {"memory": 3072}
    manifest = golden.write(built)

    result = run.good("template", "build", manifest, *RUN, "--rebuild").json()

    old, new = generations(golden)
    assert result["vmid"] == new
    assert generations(golden)[new]["memory"] == "3072"
    assert generations(golden)[old]["memory"] == "1024"
    assert tagged(golden) == [new]


def test_the_generation_that_was_asked_for_is_the_one_that_the_next_run_finds(
    golden: Golden, built: dict[str, Any], run: Commands
) -> None:
    manifest = golden.write(built)
    for _ in range(3):
        made = run.good("template", "build", manifest, *RUN, "--rebuild").json()
    golden.place.lab.forget_requests()

    again = run.good("template", "build", manifest, *RUN).json()

    assert again["vmid"] == made["vmid"]
    assert {line["status"] for line in again["stages"]} <= {"unchanged", "skipped"}
    assert golden.place.changes() == []
    assert tagged(golden) == [made["vmid"]]


def test_the_plan_of_a_template_that_differs_names_the_option(
    golden: Golden, built: dict[str, Any], run: Commands
) -> None:
    built["spec"]["resources"] = {"memory": 3072}

    said = run.good("template", "build", golden.write(built), "--dry-run")

    assert "is not as declared" in said.err
    assert "`--rebuild` makes it now" in said.err


def test_the_plan_of_a_generation_that_is_asked_for_says_why_it_is_made(
    golden: Golden, built: dict[str, Any], run: Commands
) -> None:
    built["spec"]["resources"] = {"memory": 3072}
    manifest = golden.write(built)
    golden.place.lab.forget_requests()

    said = run.good("template", "build", manifest, "--rebuild", "--dry-run", "--json")

    assert "a new one is asked for" in said.json()["reason"]
    assert "memory" in said.json()["differs"][0]
    assert "a new one is asked for" in " ".join(said.err.split())
    assert golden.place.changes() == []


def test_a_template_without_generations_is_told_what_to_declare(
    golden: Golden, tmp_path: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(golden.image_file(tmp_path / "images")))

    said = run("template", "build", manifest, "--yes", "--rebuild")

    assert said.code == 2
    assert "rebuild: weekly" in said.err
    assert golden.place.guests() == []


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("--skip", "image"), "image"),
        (("--stages", "image,create"), "configure, template"),
        (("--from", "template"), "image, create, configure"),
    ],
)
def test_stages_that_leave_a_generation_unfinished_are_refused_beside_it(
    golden: Golden,
    built: dict[str, Any],
    run: Commands,
    words: tuple[str, str],
    missing: str,
) -> None:
    golden.place.lab.forget_requests()

    said = run("template", "build", golden.write(built), "--yes", "--rebuild", *words)

    assert said.code == 2
    assert f"these stages are left out: {missing}" in said.err
    assert golden.place.changes() == []


def test_a_generation_without_its_clones_may_be_asked_for(
    golden: Golden, built: dict[str, Any], run: Commands
) -> None:
    manifest = golden.write(built)

    run.good("template", "build", manifest, *RUN, "--rebuild", "--skip", "clones")

    assert len(generations(golden)) == 2


def test_the_next_steps_after_a_build_name_left_out_stages_only_where_there_are_some(
    golden: Golden, built: dict[str, Any], run: Commands
) -> None:
    manifest = golden.write(built)

    whole = run.good("template", "build", manifest, "--yes", "--rebuild")
    part = run.good("template", "build", manifest, "--yes", "--rebuild", "--skip", "clones")

    assert "the stages left out" not in whole.text
    assert "the stages left out" in part.text
