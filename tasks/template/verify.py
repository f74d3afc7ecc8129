"""Stage verify of a recipe's guests: is the template one, are its clones what is declared?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from blocks.manifest.guest import Guest
from blocks.manifest.recipe import TEMPLATE, Recipe
from blocks.proxmox.properties import parse_tags
from tasks.live import Live
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, stage
from tasks.template.configure import differing
from tasks.template.convert import is_template
from tasks.template.reconcile import differences
from tasks.template.seen import require_recipe
from tasks.template.unmarked import how_to_adopt, lost_its_mark, what_is_lost
from tasks.verify import Answers, Deviates, Deviation, checked, deviation

ADVICE = "`template build --dry-run` shows what a build would do; --reconcile changes clones"


@stage("verify", retries=2)
def verify_built(run: RunRef, node: str) -> Outcome:
    """Check the template or one of its clones. Raises Deviates with all that is wrong with it."""
    here = session(run)
    guest = here.guest(node)
    found, said = _checked(here, guest)
    if found:
        raise Deviates(found, advice=ADVICE)
    return done("config, is a template" if guest.label == TEMPLATE else str(said))


def deviations(here: Session, guest: Guest) -> tuple[Deviation, ...]:
    """Everything in which the guest is not as declared. Raises ProxmoxError, StageError."""
    return _checked(here, guest)[0]


def _checked(here: Session, guest: Guest) -> tuple[tuple[Deviation, ...], Answers]:
    found, said = checked(here, guest, partial(_differing, here, guest))
    if [each.kind for each in found] == ["foreign"]:
        live = here.live(guest)
        if live is not None and lost_its_mark(guest, live.config):
            text = f"{what_is_lost(guest)}; {how_to_adopt(here.environment.name, guest)}"
            found = (deviation(guest, "foreign", text),)
    return found, said


def _differing(here: Session, guest: Guest, live: Live) -> Iterator[Deviation]:
    if guest.label == TEMPLATE:
        yield from _of_template(here, guest, live)
        return
    for change in differences(here, guest, live):
        yield deviation(guest, "config", str(change))


def _of_template(here: Session, guest: Guest, live: Live) -> Iterator[Deviation]:
    if not is_template(live):
        yield deviation(guest, "template", f"VM {guest.vmid} on {guest.node} is no template yet")
        return
    for text in differing(here, guest, live):
        yield deviation(guest, "config", text)
    for tag in _lacking(require_recipe(here.environment), live):
        yield deviation(guest, "template", f"lacks the alias tag {tag}")


def _lacking(recipe: Recipe, live: Live) -> list[str]:
    """The alias's tags that the newest generation does not have: it was not published."""
    found = parse_tags(str(live.config.get("tags", "")))
    return [tag for tag in parse_tags(recipe.alias.tag or "") if tag not in found]
