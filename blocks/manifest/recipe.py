"""A golden template, as ``kind: Template`` declares it: its image, its machine and its clones."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from blocks.manifest.guest import Guest
from blocks.model import Model

TEMPLATE: Final = "template"
"""Label of the template itself, in marks and in progress; no clone may have it."""


class Rebuild(Model):
    """When a new generation is made beside the old one, and how many are kept.

    ``vmids`` are the first and the last number that generations may take. ``keep``: generations
    that stay, the newest included; one that a linked clone depends on stays in any case.
    """

    when: Literal["never", "weekly", "on-new-image"] = "never"
    keep: int = Field(default=2, ge=1)
    vmids: tuple[int, int]


class Alias(Model):
    """How others find the newest generation: a tag that it alone carries, a pool it alone is in."""

    tag: str | None = None
    pool: str | None = None


class Recipe(Model):
    """A template and its clones.

    ``template`` has the number and name of the first generation; with ``rebuild`` each generation
    gets its own number and the name ``NAME-YYYYMMDD-DIGEST``. Each clone is a whole guest with
    source ``clone``.
    """

    template: Guest
    clones: tuple[Guest, ...] = ()
    rebuild: Rebuild
    alias: Alias = Alias()

    def candidates(self) -> tuple[Guest, ...]:
        """The template under each number that it may have, the declared one first."""
        if self.rebuild.when == "never":
            return (self.template,)
        first, last = self.rebuild.vmids
        numbers = dict.fromkeys((self.template.vmid, *range(first, last + 1)))
        return tuple(self.template.model_copy(update={"vmid": number}) for number in numbers)
