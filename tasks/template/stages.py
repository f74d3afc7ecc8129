"""What a template's run does as a whole: survey, preflight, and making the result known."""

from __future__ import annotations

from datetime import UTC, datetime

from blocks.manifest.recipe import Recipe
from blocks.proxmox.inventory import read_inventory
from tasks.findings import Finding, refuse
from tasks.session import session
from tasks.stage import Outcome, RunRef, done, stage, unchanged
from tasks.template.alias import switch_alias
from tasks.template.generations import find_generations
from tasks.template.preflight import check_template
from tasks.template.retire import retire
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


def is_published(recipe: Recipe) -> bool:
    """Whether a new generation is to be made known, or makes an older one superfluous."""
    return recipe.rebuild.when != "never" or recipe.alias != type(recipe.alias)()


@stage("publish", retries=3)
def publish(run: RunRef, node: str) -> Outcome:
    """Give the alias to the finished template and retire older generations; last of all.

    An older generation that something still needs stays, which is said in a warning.
    """
    here = session(run)
    guest = here.guest(node)
    moves = switch_alias(here, guest)
    generations = find_generations(
        here.client, read_inventory(here.client), here.everyone or here.environment
    )
    old = retire(here, generations, guest)
    did = (*moves.done, *(f"{name} retired" for name in old.removed))
    warnings = (*moves.warnings, *old.kept)
    return done(", ".join(did), warnings=warnings) if did else unchanged(warnings=warnings)
