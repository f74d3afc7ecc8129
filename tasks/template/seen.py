"""What a recipe declares against what is there: the template, its generations, its clones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Guest
from blocks.manifest.plans import Change
from blocks.manifest.recipe import TEMPLATE, Recipe
from blocks.proxmox.client import Client
from blocks.proxmox.inventory import GuestRow, Inventory, read_inventory
from blocks.proxmox.properties import parse_tags
from tasks.errors import StageError
from tasks.findings import Finding
from tasks.found import FoundGuest
from tasks.image import image_digest
from tasks.live import Live, read_live
from tasks.session import Session
from tasks.survey import read_declared
from tasks.template.configure import differing
from tasks.template.configure import outdated as outdated_template
from tasks.template.generations import (
    Generation,
    decide,
    find_generations,
    newest_first,
    out_of_reach,
)
from tasks.template.preflight import standing_findings
from tasks.template.reconcile import differences
from tasks.template.retire import superfluous

Standing = Literal["absent", "unfinished", "ready", "foreign"]
"""``foreign``: somebody else's guest has the number, or it cannot be read."""

BUILDING = ("image", "create", "configure", "template")
"""The stages that make the template."""


@dataclass(frozen=True)
class TemplateSurvey:
    """A recipe beside the cluster that is to hold it.

    ``environment`` has the template under the number and name of the generation that the run is
    about; ``reason`` says why that one. ``lives`` and ``rows`` have the guests that exist, by
    label. ``changes``: how finished clones differ from what is declared, ``outdated``: how a
    finished template does, in words. ``generations``: what there is of one that is rebuilt;
    ``renewed``: how the newest of them differs, where the run is to make another.
    """

    environment: Environment
    inventory: Inventory
    reason: str
    lives: dict[str, Live]
    rows: dict[str, GuestRow]
    changes: dict[str, tuple[Change, ...]]
    generations: tuple[Generation, ...] = ()
    outdated: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()

    def differing(self) -> tuple[str, ...]:
        """What a run without ``reconcile`` leaves as it is although it differs, a line each."""
        clones = tuple(
            f"{label} differs from the manifest and stays as it is; --reconcile changes it"
            for label, changes in self.changes.items()
            if changes
        )
        idle = tuple(
            f"{clone.label} does not run, and is declared to; --reconcile starts it"
            for clone in self.clones
            if self.is_idle(clone)
        )
        return (*self.outdated, *clones, *idle)

    @property
    def template(self) -> Guest:
        """The generation that the run is about."""
        return self.environment.guest(TEMPLATE)

    @property
    def clones(self) -> tuple[Guest, ...]:
        """The declared clones."""
        return tuple(guest for guest in self.environment.guests if guest.label != TEMPLATE)

    def standing(self, guest: Guest) -> Standing:
        """How far the guest is."""
        if guest.label not in self.rows:
            return "absent"
        live = self.lives.get(guest.label)
        if live is None or live.mark is None:
            return "foreign"
        mark = live.mark
        if (mark.env, mark.guest, mark.vmid) != (self.environment.name, guest.label, guest.vmid):
            return "foreign"
        if guest.label == TEMPLATE and not int(live.config.get("template", 0)):
            return "unfinished"
        return "ready" if mark.ready else "unfinished"

    def pending(self, chosen: Iterable[str], *, reconcile: bool = False) -> frozenset[str]:
        """Those of the chosen stages that have something to do, as far as can be told."""
        stages = set(chosen)
        work: set[str] = set()
        if self.standing(self.template) != "ready":
            work |= stages & set(BUILDING)
        elif not stages & {"create", "configure", "template"}:
            work |= stages & {"image"}
        if "clones" in stages and any(self.to_do(guest, reconcile) for guest in self.clones):
            work.add("clones")
        if work:
            work |= stages & {"preflight"}
        return frozenset(work)

    def checking(self, chosen: Iterable[str], *, reconcile: bool = False) -> frozenset[str]:
        """The stages that preflight looks at; none where it is left out, or nothing is to be done.

        Preflight alone is about everything that a build would do.
        """
        stages = set(chosen)
        if stages == {"preflight"}:
            stages |= {*BUILDING, "clones"}
        pending = self.pending(stages, reconcile=reconcile)
        return pending if "preflight" in pending else frozenset()

    @property
    def unpublished(self) -> bool:
        """Whether the finished template lacks its alias, or older generations are to go."""
        if self.standing(self.template) != "ready":
            return False
        recipe, row = require_recipe(self.environment), self.rows[TEMPLATE]
        alias, older = recipe.alias, {each.vmid for each in self.generations} - {row.vmid}
        others = [other for other in self.inventory.guests if other.vmid in older]
        tags = set(parse_tags(alias.tag or ""))
        return (
            not tags <= set(row.tags)
            or any(tags & set(other.tags) for other in others)
            or (alias.pool is not None and row.pool != alias.pool)
            or any(alias.pool is not None and other.pool == alias.pool for other in others)
            or bool(superfluous(recipe, self.generations, self.template))
        )

    def to_do(self, clone: Guest, reconcile: bool) -> bool:
        """Whether a clone is to be made, finished or changed."""
        if self.standing(clone) != "ready":
            return True
        return reconcile and self.deviates(clone)

    def is_idle(self, clone: Guest) -> bool:
        """Whether a finished clone does not run although it is declared to."""
        runs = clone.label in self.rows and self.rows[clone.label].status == "running"
        return clone.autostart and not runs and self.standing(clone) == "ready"

    def deviates(self, clone: Guest) -> bool:
        """Whether a finished clone differs from what is declared, or does not run."""
        return bool(self.changes.get(clone.label)) or self.is_idle(clone)

    def findings(self, chosen: Iterable[str]) -> tuple[Finding, ...]:
        """What forbids to begin, from what was read already. No call."""
        found = [FoundGuest(self.rows[label], live) for label, live in self.lives.items()]
        return standing_findings(self.environment, self.inventory, found, frozenset(chosen))


def survey_template(here: Session, today: date, stages: Iterable[str] = BUILDING) -> TemplateSurvey:
    """Read the cluster and decide which generation the run is about.

    The run's option ``rebuild`` asks for a new one; where none of ``stages`` makes a template, it
    is the newest that is finished. One call, and one for each declared guest that exists; with
    ``rebuild: on-new-image`` also the publisher's list of checksums. Raises ProxmoxError,
    StageError: also where generations are out of reach and another would be made.
    """
    recipe = require_recipe(here.environment)
    inventory = read_inventory(here.client)
    rebuilt = recipe.rebuild.when != "never"
    reason, template = "as declared", recipe.template
    generations: tuple[Generation, ...] = ()
    renewed: tuple[str, ...] = ()
    if rebuilt:
        generations = find_generations(here.client, inventory, here.environment)
        digest = image_digest(here, recipe.template)
        taken = {row.vmid for row in inventory.guests}
        asked = bool(here.run.options.get("rebuild"))
        making = set(stages) - {"preflight"}
        building = not making or bool(making & set(BUILDING))
        decision = decide(
            recipe, generations, digest, today, taken=taken, asked=asked, building=building
        )
        reason, template = decision.reason, decision.guest
        if decision.build:
            _refuse_unseen(inventory, recipe)
            renewed = _renewed(here, recipe.template, generations)
    environment = with_template(here.environment, template)
    rows, lives = read_declared(here.client, environment, inventory)
    seen = TemplateSurvey(environment, inventory, reason, lives, rows, {}, generations)
    finished = [clone for clone in seen.clones if seen.standing(clone) == "ready"]
    changes = {clone.label: differences(here, clone, lives[clone.label]) for clone in finished}
    outdated: tuple[str, ...] = ()
    if seen.standing(seen.template) == "ready":
        outdated = outdated_template(here, seen.template, lives[TEMPLATE])
    return replace(seen, changes=changes, outdated=outdated, renewed=renewed)


def _refuse_unseen(inventory: Inventory, recipe: Recipe) -> None:
    """No other generation is made while one may be there that nobody can read."""
    unseen = out_of_reach(inventory, recipe)
    if unseen:
        names = ", ".join(f"VM {row.vmid} on {row.node}" for row in unseen)
        raise StageError(
            f"whether a generation is due cannot be told: {names} cannot be read, the node is "
            "offline",
            advice="bring the node back; or give `rebuild.vm_ids` numbers of generations alone, "
            "if that is none of them",
        )


def _renewed(here: Session, template: Guest, generations: Iterable[Generation]) -> tuple[str, ...]:
    """How the newest finished generation differs from the manifest, in words. At most one call."""
    finished = [each for each in newest_first(tuple(generations)) if each.finished]
    if not finished:
        return ()
    newest = finished[0]
    guest = template.model_copy(
        update={"vmid": newest.vmid, "node": newest.node, "name": newest.name}
    )
    live = read_live(here.client, guest)
    differs = differing(here, guest, live) if live is not None else ()
    return (f"{newest} is not as declared: {'; '.join(differs)}",) if differs else ()


def require_recipe(environment: Environment) -> Recipe:
    """The recipe of a ``kind: Template``. Raises ValueError for another document."""
    if environment.recipe is None:
        raise ValueError(f"{environment.path} is no kind: Template")
    return environment.recipe


def with_template(environment: Environment, template: Guest) -> Environment:
    """The environment with another generation in the template's place."""
    others = tuple(guest for guest in environment.guests if guest.label != TEMPLATE)
    return environment.model_copy(update={"guests": (template, *others)})


def as_it_is(client: Client, inventory: Inventory, environment: Environment) -> Environment:
    """The environment with its newest generation in the template's place, where there is one.

    No call for what is no template, or is never rebuilt.
    """
    recipe = environment.recipe
    if recipe is None or recipe.rebuild.when == "never":
        return environment
    if all(guest.label != TEMPLATE for guest in environment.guests):
        return environment
    generations = find_generations(client, inventory, environment)
    if not generations:
        return environment
    newest = generations[0]
    found = {"vmid": newest.vmid, "node": newest.node, "name": newest.name}
    return with_template(environment, recipe.template.model_copy(update=found))
