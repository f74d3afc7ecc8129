"""What a template's run does as a whole: survey, preflight, and making the result known."""

from __future__ import annotations

from datetime import UTC, datetime

from tasks.findings import Finding, refuse
from tasks.session import session
from tasks.stage import RunRef
from tasks.template.preflight import check_template
from tasks.template.seen import TemplateSurvey, survey_template
from tasks.whole import whole


@whole("plan")
def surveyed(run: RunRef) -> TemplateSurvey:
    """The survey of a run's template; the run's session is about that generation from now on."""
    here = session(run)
    seen = survey_template(here, datetime.now(UTC).date())
    here.environment = seen.environment
    here.everyone = seen.environment
    for guest in seen.environment.guests:
        if guest.label in seen.lives or guest.label not in seen.rows:
            here.remember(guest, seen.lives.get(guest.label))
    return seen


@whole("preflight")
def template_preflight(
    run: RunRef, seen: TemplateSurvey, pending: frozenset[str], reconcile: bool
) -> tuple[Finding, ...]:
    """The warnings about what is to be made. Raises PreflightFailed with all findings."""
    here = session(run)
    return refuse(
        check_template(
            here.client,
            here.connection,
            seen.environment,
            seen.inventory,
            stages=pending,
            reconcile=reconcile,
        )
    )
