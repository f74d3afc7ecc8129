"""The plan of a template tells what this run is asked for, and nothing beyond."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from flows.template_plan import plan_markdown, planned_summary
from flows.template_stages import STAGES
from tasks.template.seen import TemplateSurvey, survey_template
from tests.environments import Place
from tests.templates import Golden


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def nothing_there(golden: Golden, tmp_path: Path) -> TemplateSurvey:
    source = golden.template().image
    assert source is not None
    local = source.model_copy(update={"origin": str(golden.image_file(tmp_path / "images"))})
    recipe = golden.recipe(golden.clone(1), template=golden.template(source=local))
    with golden.opened(recipe) as here:
        return survey_template(here, date(2026, 7, 6))


def test_a_whole_run_is_planned_with_template_and_clones(nothing_there: TemplateSurvey) -> None:
    assert planned_summary(nothing_there, STAGES).startswith("template to be built")
    assert planned_summary(nothing_there, STAGES).endswith("1 clone to be made")


def test_clones_that_are_left_out_are_not_planned(nothing_there: TemplateSurvey) -> None:
    chosen = STAGES[:-1]

    assert "clone" not in planned_summary(nothing_there, chosen)
    assert "c1-" not in plan_markdown(nothing_there, chosen)


def test_stages_of_the_template_that_are_left_out_are_not_planned(
    nothing_there: TemplateSurvey,
) -> None:
    summary = planned_summary(nothing_there, ("image", "create"))

    assert summary.startswith("template to be built, but only image, create")


def test_a_number_that_somebody_else_has_is_counted(golden: Golden) -> None:
    golden.place.strange(1)
    with golden.opened(golden.recipe(golden.clone(1))) as here:
        seen = survey_template(here, date(2026, 7, 6))

    assert planned_summary(seen, STAGES).endswith("1 number taken")
