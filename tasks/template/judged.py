"""A survey of a template's guests that tells the same differences as a build and a verification."""

from __future__ import annotations

from dataclasses import replace

from blocks.manifest.guest import Guest
from blocks.manifest.plans import Action, Change, GuestPlan
from blocks.manifest.recipe import TEMPLATE
from tasks.errors import StageError
from tasks.live import Live
from tasks.session import Session
from tasks.survey import Survey
from tasks.template.configure import template_changes
from tasks.template.convert import is_template
from tasks.template.reconcile import AT_BOOT, differences
from tasks.template.unmarked import lost_its_mark, what_is_lost


def judged(here: Session, seen: Survey) -> Survey:
    """The survey with what differs as templates and clones are compared. No call.

    Clones lie where their clone call puts them, and cloud-init counts; a finished template is
    changed by nobody. ``here.environment``: with the generation in use, clones' template included.
    """
    guests = tuple(_plan(here, seen, plan) for plan in seen.plan.guests)
    return replace(seen, plan=seen.plan.model_copy(update={"guests": guests}))


def _plan(here: Session, seen: Survey, plan: GuestPlan) -> GuestPlan:
    guest, live = here.guest(plan.label), seen.lives.get(plan.label)
    if live is None:
        return plan
    if plan.action is Action.FOREIGN and lost_its_mark(guest, live.config):
        text = f"{what_is_lost(guest)}; `verify` tells how to have it back"
        return plan.model_copy(update={"reason": text})
    if not live.ready or plan.action is Action.FOREIGN:
        return plan
    try:
        changes = _changes(here, guest, live)
    except (StageError, ValueError):
        # What cannot be read was told by the plan.
        return plan
    changes = _folded(changes)
    action = Action.UPDATE if changes else Action.UNCHANGED
    return plan.model_copy(update={"changes": changes, "action": action, "reason": ""})


def _folded(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Several things that cloud-init is told otherwise are one difference to look at."""
    told = [change for change in changes if change.note == AT_BOOT]
    if len(told) < 2:
        return changes
    keys = ", ".join(change.target for change in told)
    one = Change(kind="change", target="cloud-init", before="other", after="as declared", note=keys)
    return (*(change for change in changes if change.note != AT_BOOT), one)


def _changes(here: Session, guest: Guest, live: Live) -> tuple[Change, ...]:
    if guest.label == TEMPLATE:
        return template_changes(here, guest, live) if is_template(live) else ()
    return differences(here, guest, live)
