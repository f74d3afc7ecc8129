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
    seen = survey(here.client, here.environment, cluster=here.connection.label)
    for guest in seen.environment.guests:
        # One that exists but could not be read, on a node that is offline, is not remembered.
        if guest.label in seen.lives or guest.label not in seen.rows:
            here.remember(guest, seen.lives.get(guest.label))
    return seen
