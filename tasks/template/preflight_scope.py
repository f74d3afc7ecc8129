"""What the stages asked for will make or change, judged by what is there already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from blocks.manifest.environment import Environment
from blocks.manifest.guest import CloneSource, Guest, ImageSource
from blocks.manifest.recipe import TEMPLATE, Recipe
from tasks.found import FoundGuest

VM_STAGES = frozenset({"create", "configure", "template"})


@dataclass(frozen=True)
class Scope:
    """A recipe beside the guests of the cluster that carry its mark.

    ``folder``: of the manifest.
    ``ours``: label to the guest that exists under the declared number, whichever run made it.
    ``marked``: every guest of this recipe, older generations and clones of other numbers included.
    """

    env: str
    folder: Path
    recipe: Recipe
    stages: frozenset[str]
    reconcile: bool
    ours: Mapping[str, FoundGuest]
    marked: tuple[FoundGuest, ...]

    @property
    def template(self) -> Guest:
        """The template as it is declared."""
        return self.recipe.template

    @property
    def finished(self) -> bool:
        """Whether the template is one already."""
        there = self.ours.get(TEMPLATE)
        return there is not None and there.row.template

    @property
    def image(self) -> ImageSource | None:
        """The image, if a stage is to fetch it."""
        return self.template.image if "image" in self.stages else None

    @property
    def creating(self) -> bool:
        """Whether the template's machine is to be made."""
        return "create" in self.stages and TEMPLATE not in self.ours

    @property
    def configuring(self) -> bool:
        """Whether the template is to get its disks and devices."""
        return "configure" in self.stages and not self.finished

    @property
    def converting(self) -> bool:
        """Whether the template's machine is to become one."""
        return "template" in self.stages and not self.finished

    @property
    def missing(self) -> tuple[Guest, ...]:
        """The clones that are to be made."""
        if "clones" not in self.stages:
            return ()
        return tuple(clone for clone in self.recipe.clones if clone.label not in self.ours)

    @property
    def clones(self) -> tuple[Guest, ...]:
        """The clones that are to be made, finished or set right."""
        if "clones" not in self.stages:
            return ()
        return tuple(
            clone
            for clone in self.recipe.clones
            if (there := self.ours.get(clone.label)) is None
            or self.reconcile
            or there.mark is None
            or not there.mark.ready
        )

    @property
    def making(self) -> tuple[Guest, ...]:
        """The guests that do not exist yet and are to be made, the template first."""
        return ((self.template,) if self.creating else ()) + self.missing

    @property
    def touching(self) -> tuple[Guest, ...]:
        """The guests that are to be made or changed, the template first."""
        template = self.creating or self.configuring or self.converting
        return ((self.template,) if template else ()) + self.clones


def scope(
    environment: Environment,
    found: Iterable[FoundGuest],
    stages: frozenset[str],
    *,
    reconcile: bool = False,
) -> Scope:
    """The scope of a run. Raises ValueError where the environment declares no template.

    The environment's guests count, not the recipe's: a run is about one generation.
    """
    if environment.recipe is None:
        raise ValueError(f"{environment.name} declares no template")
    template = environment.guest(TEMPLATE)
    clones = tuple(guest for guest in environment.guests if guest.label != TEMPLATE)
    recipe = environment.recipe.model_copy(update={"template": template, "clones": clones})
    marked = tuple(
        guest for guest in found if guest.mark is not None and guest.mark.env == environment.name
    )
    declared = {guest.vmid: guest.label for guest in environment.guests}
    ours = {
        guest.mark.guest: guest
        for guest in marked
        if guest.mark is not None and declared.get(guest.row.vmid) == guest.mark.guest
    }
    folder = environment.path.parent
    return Scope(environment.name, folder, recipe, stages, reconcile, ours, marked)


def source_of(clone: Guest) -> CloneSource:
    """How a clone is made; a full one of the template where it does not say."""
    return clone.clone or CloneSource(template=TEMPLATE)


def disk_places(guest: Guest) -> tuple[tuple[str, str], ...]:
    """Slot and storage of everything that is to be a disk: EFI variables and TPM state too."""
    firmware = (
        ("efidisk0", guest.firmware.efi_storage),
        ("tpmstate0", guest.firmware.tpm_storage),
    )
    return tuple((disk.slot, disk.storage) for disk in guest.disks) + tuple(
        (slot, storage) for slot, storage in firmware if storage is not None
    )


def clone_places(scope: Scope, clone: Guest) -> tuple[tuple[str, str], ...]:
    """Slot and storage of a clone's disks: of its own where it is full and says so."""
    source = source_of(clone)
    places = disk_places(scope.template)
    if source.full and source.storage is not None:
        places = tuple((slot, str(source.storage)) for slot, _ in places)
    known = {slot for slot, _ in places}
    own = ((disk.slot, disk.storage) for disk in clone.disks if disk.slot not in known)
    return (*places, *own)
