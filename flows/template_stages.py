"""Which of a template's stages a run is to do: ``--stages``, ``--skip``, ``--from``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from blocks.manifest.faults import suggestion
from blocks.manifest.recipe import Recipe
from blocks.proxmox.errors import BadSettings
from tasks.template.seen import BUILDING

STAGES: Final = ("preflight", "image", "create", "configure", "template", "clones")
GROUPS: Final = {"vm": ("create", "configure"), "all": STAGES}


def select(
    stages: Sequence[str] | None = None,
    skip: Sequence[str] | None = None,
    start: str | None = None,
) -> tuple[str, ...]:
    """The stages to do, in their order.

    ``stages``: only these; ``skip``: not these; ``start``: this one and those after it. Words may
    be lists themselves (``image,create``) and name groups. Raises BadSettings for a word that
    names no stage, with all such words, and where nothing is left.
    """
    faults: list[str] = []
    only = _named(stages, "--stages", faults)
    without = _named(skip, "--skip", faults)
    first = _named(None if start is None else (start,), "--from", faults)
    if faults:
        raise BadSettings(faults)
    begin = min(map(STAGES.index, first), default=0)
    chosen = tuple(
        name
        for number, name in enumerate(STAGES)
        if number >= begin and (not only or name in only) and name not in without
    )
    if not chosen:
        raise BadSettings(
            ["no stage is left to do"],
            advice=f"the stages are {', '.join(STAGES)}; look at --stages, --skip and --from",
        )
    return chosen


def refuse_rebuild(recipe: Recipe, chosen: Sequence[str]) -> None:
    """Refuse ``--rebuild`` where no new generation could come of it. Raises BadSettings."""
    name = recipe.template.name
    if recipe.rebuild.when == "never":
        raise BadSettings(
            [f"--rebuild: {name} has no generations, there is one template under one number"],
            advice="declare `rebuild: weekly` or `rebuild: on-new-image` under `spec` (with a "
            "pinned image, on-new-image makes none by itself); or remove the template and build "
            "it again",
        )
    without = [stage for stage in BUILDING if stage not in chosen]
    if without:
        raise BadSettings(
            [
                f"--rebuild makes a whole generation, but these stages are left out: "
                f"{', '.join(without)}"
            ],
            advice="leave out --rebuild to do single stages, or let it have image, create, "
            "configure and template",
        )


def _named(words: Iterable[str] | None, option: str, faults: list[str]) -> frozenset[str]:
    found: set[str] = set()
    asked = [part.strip() for text in words or () for part in text.split(",")]
    if asked and not any(asked):
        # A variable that is empty in a script must not turn a few stages into all of them.
        faults.append(f"{option}: names no stage; leave it out, or name some: {', '.join(STAGES)}")
    for word in asked:
        if word in STAGES:
            found.add(word)
        elif word in GROUPS:
            found.update(GROUPS[word])
        elif word:
            known = suggestion(word, (*STAGES, *GROUPS), "stages and groups")
            faults.append(f"{option}: there is no stage {word!r}; {known}")
    return frozenset(found)
