"""An environment that was loaded, checked and compiled to guests."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from blocks.manifest.cluster import ClusterType
from blocks.manifest.faults import suggestion
from blocks.manifest.guest import Guest
from blocks.manifest.hooks import Hooks
from blocks.manifest.recipe import Recipe
from blocks.manifest.storage import StorageClass
from blocks.model import Model


class UnknownGuest(LookupError):
    """No guest of the environment has that name. The text lists those that it has."""


class Environment(Model):
    """What an operator wants to exist.

    ``guests`` are in the order of the manifest. ``source_files`` are all files that were read for
    it, the master file first. ``notices`` are remarks that stop nothing.
    """

    name: str
    domain: str | None = None
    description: str = ""
    path: Path
    context: str | None = Field(default=None, description="Connection where none is named")
    tags: tuple[str, ...] = ()
    cluster_type: ClusterType | None = None
    storage_classes: dict[str, StorageClass] = Field(default={})
    guests: tuple[Guest, ...] = ()
    hooks: Hooks = Hooks()
    source_files: tuple[Path, ...] = ()
    notices: tuple[str, ...] = ()
    recipe: Recipe | None = Field(
        default=None,
        description="Of a `kind: Template`; its guests are in `guests`, template first",
    )

    def possible_guests(self) -> tuple[Guest, ...]:
        """The guests, and the template under every number that a generation of it may have."""
        return (*self.guests, *(self.recipe.candidates()[1:] if self.recipe else ()))

    def guest(self, label: str) -> Guest:
        """The guest of that label, name or number. Raises UnknownGuest with the known ones."""
        for guest in self.guests:
            if label == guest.label:
                return guest
        for guest in self.guests:
            if label in (guest.name, str(guest.vmid)):
                return guest
        labels = [guest.label for guest in self.guests]
        raise UnknownGuest(
            f"{self.name} has no node {label!r}; {suggestion(label, labels, 'nodes')}"
        )
