"""From the tree of a ``kind: Template`` to a recipe: short forms, files, checks, guests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from blocks.manifest.faults import Fault
from blocks.manifest.guest import Guest
from blocks.manifest.recipe import Recipe
from blocks.manifest.sshkeys import expand_list, is_whole
from blocks.manifest.template.catalogue import Catalogue, load_catalogue
from blocks.manifest.template.checks import check
from blocks.manifest.template.compile import compile_recipe, image_entry
from blocks.manifest.template.document import Template
from blocks.manifest.template.shorthand import cloud_inits, write_out
from blocks.manifest.template.texts import expand_documents
from blocks.manifest.tree import Item
from blocks.manifest.validation import validate
from blocks.paths import named_path

KIND = "Template"


@dataclass(frozen=True)
class Checked:
    """A template document that passed its model, with the catalogue that it was read with."""

    document: Template
    catalogue: Catalogue

    def recipe(self) -> Recipe:
        """The guests. Only to be asked for where no fault was found."""
        return compile_recipe(self.document, self.catalogue)

    def notices(self, recipe: Recipe) -> Iterator[str]:
        """What is allowed, but probably not what was wanted."""
        yield from _login_notices(recipe)
        yield from _rebuild_notices(recipe)
        yield from _firmware_notices(self, recipe.template)
        yield from _clone_notices(recipe)


def prepare(
    root: Item, master: Path, env: Mapping[str, str], faults: list[Fault], files: list[Path]
) -> Checked | None:
    """Check a template, secrets in place. What is wrong is added to ``faults``, read files to
    ``files``; None where the document cannot be understood.
    """
    catalogue = load_catalogue(master.parent, env, faults, files)
    write_out(root, faults)
    for part in cloud_inits(root):
        keys = part.get("ssh_keys")
        if keys is not None:
            expand_list(keys, faults, files)
        expand_documents(part, faults, files)
    _absolute(root, faults)
    document = validate(Template, root, faults)
    faults += check(root, catalogue)
    return Checked(document, catalogue) if document is not None else None


def _absolute(root: Item, faults: list[Fault]) -> None:
    """Make the paths of image and keyring absolute, from the folder of the file that names them.

    Whether the files are there is asked when they are needed: a manifest may be checked anywhere.
    """
    for key in ("path", "keyring"):
        item = root.get("spec", "image", key)
        if item is None or item.broken or not isinstance(item.value, str) or "://" in item.value:
            continue
        try:
            path = named_path(item.value.strip(), item.file.parent)
        except OSError as error:
            item.broken = True
            faults.append(item.fault(f"names no file: {error.strerror}", "write a path"))
        else:
            item.value = str(path.absolute())


def _login_notices(recipe: Recipe) -> Iterator[str]:
    for guest in recipe.clones or (recipe.template,):
        told = guest.cloud_init
        if told is None or told.user_data is not None:
            continue
        if not told.ssh_keys and told.password is None and told.password_hash is None:
            yield f"{guest.label}: nobody can log in; add cloud_init.ssh_keys"
        if not all(is_whole(key) for key in told.ssh_keys):
            yield f"{guest.label}: an SSH key is cut short; SSH will not accept it"
        if not guest.nics:
            yield f"{guest.label}: has no network card (nics), so nobody can reach it"


def _rebuild_notices(recipe: Recipe) -> Iterator[str]:
    image = recipe.template.image
    if recipe.rebuild.when == "on-new-image" and image is not None and image.checksum is not None:
        yield (
            f"{recipe.template.name}: the checksum pins the image to one version, so that there is"
            " never a new one (rebuild: on-new-image)"
        )


def _firmware_notices(checked: Checked, template: Guest) -> Iterator[str]:
    entry = image_entry(checked.document.spec.image, checked.catalogue)
    if entry is None:
        return
    bios = template.firmware.bios
    if bios not in entry.firmware:
        yield f"{template.name}: {entry.title} is made for {entry.firmware[0]}, not for {bios}"
    if template.firmware.secure_boot and not entry.secure_boot:
        yield (
            f"{template.name}: {entry.title} is not known to boot with Secure Boot; "
            "without a signed loader it will not start"
        )
    if template.pci and entry.notes and "passed-through" in entry.notes:
        yield f"{template.name}: {entry.title}: {entry.notes}"


def _clone_notices(recipe: Recipe) -> Iterator[str]:
    holders: dict[tuple[str, str], str] = {}
    for clone in recipe.clones:
        for device in clone.pci:
            if device.device is None or not clone.autostart:
                continue
            first = holders.setdefault((clone.node, device.device), clone.label)
            if first != clone.label:
                yield (
                    f"{clone.label}: {device.device} of {clone.node} is also {first}'s; "
                    "only one of them can run"
                )
