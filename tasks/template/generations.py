"""Generations of a template: which are there, and which one a run is about."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Digest, Guest
from blocks.manifest.recipe import TEMPLATE, Recipe
from blocks.model import Model
from blocks.proxmox.client import Client
from blocks.proxmox.inventory import GuestRow, Inventory
from tasks.errors import StageError
from tasks.found import look

PREFIX = 8
"""Digits of the image's digest in a generation's name."""

NAME_LENGTH = 63
"""Characters of a DNS label, which the name of a guest is."""

_NAME = re.compile(
    rf"(?P<stem>.+)-(?P<date>\d{{8}})-(?P<prefix>[0-9a-f]{{{PREFIX}}})(?:-(?P<turn>\d{{1,3}}))?"
)
_CREATED = re.compile(r"\bctime=(?P<seconds>\d{1,12})\b")


class Generation(Model):
    """One template of an environment, or what a run began to make into one.

    ``made`` and ``prefix`` (the first digits of the image's digest) are read from its name, None
    where that tells neither. ``created``: when its machine was made, in seconds since 1970, 0 where
    the server does not tell. ``node`` is where it is now.
    """

    vmid: int
    node: str
    name: str
    made: date | None = None
    prefix: str | None = None
    created: int = 0
    ready: bool
    template: bool

    @property
    def finished(self) -> bool:
        """A template that a run brought to its end."""
        return self.template and self.ready

    def __str__(self) -> str:
        """How messages name it."""
        return f"VM {self.vmid} ({self.name}) on {self.node}"


class Decision(Model):
    """Which generation a run is about.

    ``guest``: the template under that generation's number, name and node. ``build``: it is to be
    made or finished; otherwise it is there. ``reason`` says why, in words.
    """

    build: bool
    guest: Guest
    reason: str


def generation_name(name: str, made: date, digest: Digest, turn: int = 1) -> str:
    """``NAME-YYYYMMDD-DIGEST``; of the second one of a day and an image ``...-2``, and so on."""
    plain = f"{name}-{made:%Y%m%d}-{digest.hex[:PREFIX]}"
    return plain if turn == 1 else f"{plain}-{turn}"


def read_name(name: str) -> tuple[date | None, str | None]:
    """Date and digest prefix in a generation's name; None and None for another name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None, None
    try:
        made = datetime.strptime(found["date"], "%Y%m%d").date()
    except ValueError:
        return None, None
    return made, found["prefix"]


def find_generations(
    client: Client, inventory: Inventory, environment: Environment
) -> tuple[Generation, ...]:
    """The environment's templates, finished or not, newest first.

    Told by their marks; only templates and what has a number of the recipe are read, one call
    each. What is on a node that is offline is not among them.
    """
    numbers = _numbers(environment.recipe)
    rows = tuple(row for row in inventory.guests if _may_be_one(row, numbers))
    looked = look(client, inventory.model_copy(update={"guests": rows}))
    found = []
    for guest in looked.guests:
        mark = guest.mark
        if mark is None or (mark.env, mark.guest) != (environment.name, TEMPLATE):
            continue
        config = guest.live.config
        name = str(config.get("name", ""))
        made, prefix = read_name(name)
        found.append(
            Generation(
                vmid=guest.row.vmid,
                node=guest.row.node,
                name=name,
                made=made,
                prefix=prefix,
                created=created(config),
                ready=mark.ready,
                template=bool(int(config.get("template", 0))),
            )
        )
    return newest_first(found)


def out_of_reach(inventory: Inventory, recipe: Recipe) -> tuple[GuestRow, ...]:
    """What has a number of a generation, on a node that is offline. No call."""
    online = inventory.online()
    return tuple(
        row for row in inventory.guests if row.vmid in _numbers(recipe) and row.node not in online
    )


def created(config: Mapping[str, Any]) -> int:
    """When a machine was made, in seconds since 1970; 0 where its configuration does not tell.

    The server writes it into ``meta`` (05-iso-vm-life).
    """
    found = _CREATED.search(str(config.get("meta", "")))
    return int(found["seconds"]) if found else 0


def newest_first(generations: Sequence[Generation]) -> tuple[Generation, ...]:
    """By date; one whose name tells none is older than all that tell.

    Of one day, that whose machine was made last is the newest; numbers break ties.
    """

    def age(each: Generation) -> tuple[date, int, int]:
        return each.made or date.min, each.created, each.vmid

    return tuple(sorted(generations, key=age, reverse=True))


def decide(
    recipe: Recipe,
    generations: Sequence[Generation],
    digest: Digest,
    today: date,
    *,
    taken: Collection[int] = (),
    asked: bool = False,
    building: bool = True,
) -> Decision:
    """The generation that a run is about.

    ``never``: the one under the declared number and name. ``weekly``: a new one where the newest
    is of an earlier calendar week (Monday to Sunday). ``on-new-image``: where the newest was made
    of an image with another digest. What a run began and did not finish is finished first, with
    the image of today. ``taken``: numbers of all guests of the cluster. ``asked``: a new one in any
    case but of ``never``. Not ``building``: the newest finished one, whether another is due or not.

    Raises StageError where no number or name is free.
    """
    ordered = newest_first(generations)
    if recipe.rebuild.when == "never":
        return _declared(recipe, ordered)
    finished = next((each for each in ordered if each.finished), None)
    if finished is not None and not building:
        words = "the newest that is finished, and no stage of this run makes another"
        return Decision(build=False, guest=_under(recipe, finished), reason=words)
    unfinished = next((each for each in ordered if not each.finished), None)
    if unfinished is not None:
        # It is of the day that finishes it: else the next run of a weekly one made another.
        same = unfinished.prefix == digest.hex[:PREFIX]
        keeps = same and unfinished.template
        others = [each for each in ordered if each is not unfinished]
        kept = unfinished.name if keeps else None
        guest = _under(recipe, unfinished, kept or _free_name(recipe, others, today, digest))
        more = "; it becomes the one that is asked for" if asked else ""
        begun = f"{unfinished} was begun and not finished{more}"
        return Decision(build=True, guest=guest, reason=begun)
    newest = ordered[0] if ordered else None
    reason = _why(recipe, newest, digest, today)
    if asked and reason is None:
        reason = f"a new one is asked for, although {newest} is not due for it"
    if newest is not None and reason is None:
        when = f" of {newest.made}" if newest.made else ""
        return Decision(
            build=False, guest=_under(recipe, newest), reason=f"the generation{when} is current"
        )
    name = _free_name(recipe, ordered, today, digest)
    vmid = _free_number(recipe, ordered, taken, today)
    guest = recipe.template.model_copy(update={"vmid": vmid, "name": name})
    return Decision(build=True, guest=guest, reason=reason or "there is no generation yet")


def _declared(recipe: Recipe, ordered: Sequence[Generation]) -> Decision:
    template = recipe.template
    found = next((each for each in ordered if each.vmid == template.vmid), None)
    if found is None:
        return Decision(build=True, guest=template, reason="there is no template yet")
    if not found.finished:
        reason = f"{found} was begun and not finished"
        return Decision(build=True, guest=template, reason=reason)
    return Decision(build=False, guest=template, reason=f"{found} is there")


def _why(recipe: Recipe, newest: Generation | None, digest: Digest, today: date) -> str | None:
    """Why a new generation is due; None where it is not."""
    if newest is None:
        return "there is no generation yet"
    made, prefix = newest.made, newest.prefix
    if made is None or prefix is None:
        return f"the name of {newest} does not tell when it was made, and of which image"
    if recipe.rebuild.when == "weekly":
        earlier = made.isocalendar()[:2] < today.isocalendar()[:2]
        return f"the newest generation is of {made}, an earlier week" if earlier else None
    if prefix != digest.hex[:PREFIX]:
        return f"the image changed: it is {digest.hex[:PREFIX]} now, {newest} was made of {prefix}"
    return None


def _under(recipe: Recipe, generation: Generation, name: str | None = None) -> Guest:
    """The template as that generation."""
    return recipe.template.model_copy(
        update={
            "vmid": generation.vmid,
            "node": generation.node,
            "name": name or generation.name or recipe.template.name,
        }
    )


def _free_name(
    recipe: Recipe, generations: Sequence[Generation], today: date, digest: Digest
) -> str:
    """The name of a generation of that day and image, beside those that there are.

    Raises StageError where it would be too long for a second one.
    """
    stem = recipe.template.name
    plain = generation_name(stem, today, digest)
    turns = [
        int(found["turn"] or 1)
        for each in generations
        if (found := _NAME.fullmatch(each.name))
        and each.name in {plain, f"{plain}-{found['turn']}"}
    ]
    name = generation_name(stem, today, digest, max(turns, default=0) + 1)
    if len(name) > NAME_LENGTH:
        raise StageError(
            f"a second generation of today and of the same image would be called {name}, which "
            f"is longer than the {NAME_LENGTH} characters that a name may have",
            advice="make it tomorrow, or remove the one of today first",
        )
    return name


def _free_number(
    recipe: Recipe, generations: Sequence[Generation], taken: Collection[int], today: date
) -> int:
    """The first free number; of a second generation of one day, one after the first's, if any."""
    used = {each.vmid for each in generations} | set(taken)
    used |= {clone.vmid for clone in recipe.clones}
    first, last = recipe.rebuild.vmids
    free = [guest.vmid for guest in recipe.candidates() if guest.vmid not in used]
    earlier = max((each.vmid for each in generations if each.made == today), default=0)
    if free:
        return next((vmid for vmid in free if vmid > earlier), free[0])
    raise StageError(
        f"no number is free for a new generation: {first} to {last} are all taken",
        advice="widen `rebuild.vm_ids`, keep fewer generations (`rebuild.keep`), or remove guests "
        "that are not needed any more; a generation with linked clones stays until they are gone",
    )


def _numbers(recipe: Recipe | None) -> frozenset[int]:
    if recipe is None:
        return frozenset()
    return frozenset(guest.vmid for guest in recipe.candidates())


def _may_be_one(row: GuestRow, numbers: frozenset[int]) -> bool:
    return row.kind == "qemu" and (row.template or row.vmid in numbers)
