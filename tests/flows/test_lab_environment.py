"""The environment of ``make demo``: nothing to say against it, on the lab as that starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.planning import plan_findings
from tasks.preflight import find
from tasks.survey import survey
from tests.environments import opened

MANIFEST = Path(__file__).parents[2] / "deployments" / "environments" / "lab" / "env.yaml"


@pytest.mark.usefixtures("place")
def test_plan_and_preflight_on_a_new_lab_warn_of_nothing() -> None:
    with opened(MANIFEST) as here:
        seen = survey(here.client, here.environment)
        guests = here.environment.guests

        planned = plan_findings(seen)
        ahead = find(here.client, here.connection, guests, seen.inventory)

    assert seen.building() == guests
    assert [*here.environment.notices, *here.client.notices] == []
    assert [str(finding) for finding in (*planned, *ahead)] == []
