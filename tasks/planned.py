"""Stage plan: the survey of a run, on record in Prefect."""

from __future__ import annotations

from tasks.session import session
from tasks.stage import RunRef
from tasks.survey import Survey, survey
from tasks.whole import whole


@whole("plan")
def planned(run: RunRef) -> Survey:
    """The survey of a run's guests, as a task of its own; stages then need not read again."""
    here = session(run)
    seen = survey(here.client, here.environment, cluster=here.connection.name)
    for label, live in seen.lives.items():
        here.remember(seen.environment.guest(label), live)
    return seen
