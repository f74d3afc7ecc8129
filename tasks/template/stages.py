"""What a template's run does as a whole: survey, preflight, and making the result known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from blocks.manifest.guest import Guest
from blocks.manifest.mark import marked
from blocks.manifest.recipe import Alias, Recipe
from blocks.proxmox.inventory import read_inventory
from tasks.findings import Finding, refuse
from tasks.live import Live, config_path, unless_changed
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, stage, unchanged
from tasks.template.alias import switch_alias
from tasks.template.generations import find_generations
from tasks.template.preflight import check_template
from tasks.template.retire import retire
from tasks.template.seen import BUILDING, TemplateSurvey, require_recipe, survey_template
from tasks.template.takeover import refuse_busy_guests
from tasks.whole import whole


@whole("plan")
def surveyed(run: RunRef, stages: Sequence[str] = BUILDING) -> TemplateSurvey:
    """The survey of a run's template; the run's session is about that generation from now on."""
    here = session(run)
    seen = survey_template(here, datetime.now(UTC).date(), stages)
    here.environment = seen.environment
    here.everyone = seen.environment
    for guest in seen.environment.guests:
        if guest.label in seen.lives or guest.label not in seen.rows:
            here.remember(guest, seen.lives.get(guest.label))
    return seen


@whole("others")
def leave_others_alone(run: RunRef, seen: TemplateSurvey, pending: frozenset[str]) -> None:
    """Refuse to begin while another run is at work on what this one would finish.

    Raises StageError.
    """
    refuse_others(session(run), seen, pending)


def refuse_others(here: Session, seen: TemplateSurvey, pending: frozenset[str]) -> None:
    """The same, not as a task. At most one call for each guest that another run began."""
    template = (seen.template,) if pending & {"create", "configure", "template"} else ()
    clones = seen.clones if "clones" in pending else ()
    refuse_busy_guests(here, (*template, *clones), seen.lives)


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
    return recipe.rebuild.when != "never" or recipe.alias != Alias()


@stage("publish", retries=3)
def publish(run: RunRef, node: str) -> Outcome:
    """Give the alias to the finished template and retire older generations; last of all.

    An older generation that something still needs stays, which is said in a warning.
    """
    here = session(run)
    guest = here.guest(node)
    set_published(here, guest)
    moves = switch_alias(here, guest)
    generations = find_generations(
        here.client, read_inventory(here.client), here.everyone or here.environment
    )
    old = retire(here, generations, guest)
    did = (*moves.done, *(f"{name} retired" for name in old.removed))
    warnings = (*moves.warnings, *old.kept)
    return done(", ".join(did), warnings=warnings) if did else unchanged(warnings=warnings)


def set_published(here: Session, guest: Guest) -> None:
    """Say in a new generation's mark that older ones make room for it; a rollback keeps it then.

    Before any of them loses the alias or goes: a run that is broken off meanwhile must not leave
    neither. Two calls, none where it says so already. Raises ProxmoxError.
    """
    known = here.live(guest)
    if require_recipe(here.environment).rebuild.when == "never" or _is_published(known):
        return
    live = here.require(guest)
    if live.mark is None or _is_published(live):
        return
    text = marked(live.mark.model_copy(update={"published": True}), live.description)
    here.client.put(config_path(guest), description=text, **unless_changed(live.config))


def _is_published(live: Live | None) -> bool:
    return live is not None and live.mark is not None and live.mark.published
