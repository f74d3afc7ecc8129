"""What must hold between the parts of a template.

The checks read the tree, not the models, so that they also run where a model was refused: all that
is wrong is said at once. A value of the wrong type is passed over here; the models name it.
"""

from __future__ import annotations

from collections.abc import Iterator

from blocks.manifest.faults import Fault, nearest
from blocks.manifest.fields import name_trouble
from blocks.manifest.layers import size_of
from blocks.manifest.recipe import TEMPLATE
from blocks.manifest.template.addresses import check_addresses
from blocks.manifest.template.catalogue import Catalogue
from blocks.manifest.template.fields import id_range
from blocks.manifest.template.shorthand import clones_of, cloud_inits
from blocks.manifest.template.told import check_cloud_init
from blocks.manifest.tree import Item, plain

GENERATION_SUFFIX = len("-20261130-01234567")
_LONGEST_NAME = 63
DEFAULT_GENERATIONS = 10


def check(root: Item, catalogue: Catalogue) -> Iterator[Fault]:
    """Everything that does not fit together."""
    spec = root.get("spec")
    if spec is None or not isinstance(spec.value, dict):
        return
    clones = clones_of(root)
    yield from check_image(spec, catalogue)
    yield from check_names(root, clones)
    yield from check_ids(spec, clones)
    yield from check_disks(spec, clones)
    yield from check_firmware(spec)
    for owner in (spec, *clones):
        yield from check_pci(spec, owner)
    yield from check_macs(spec, clones)
    yield from check_alias(root, spec, clones)
    yield from check_addresses(spec, clones)
    for part in cloud_inits(root):
        yield from check_cloud_init(part, spec)
    for clone in clones:
        if clone.text("mode") == "linked" and (storage := clone.get("storage")) is not None:
            yield storage.fault(
                "a linked clone stays on the storage of the template",
                "remove it, or write 'mode: full'",
            )


def check_image(spec: Item, catalogue: Catalogue) -> Iterator[Fault]:
    """One origin, and something to check the image by."""
    image = spec.get("image")
    if image is None or image.broken or not isinstance(image.value, dict):
        return
    name, url, path = (image.get(key) for key in ("name", "url", "path"))
    entry = None
    if url is not None and path is not None:
        yield path.fault("stands beside 'url'", "name one place to take the image from")
        return
    if url is None and path is None:
        if name is None:
            yield image.fault(
                "says no image", "write a name of the catalogue, 'url: https://...' or 'path: ...'"
            )
            return
        found = catalogue.find(name.text() or "")
        if found is None:
            text = name.text()
            if text is not None and not name.broken:
                close = nearest(text, catalogue.names)
                meant = f"did you mean {close!r}? " if close else "choose a known one "
                known = ", ".join(sorted(catalogue.images))
                yield name.fault(f"unknown image {text!r}", f"{meant}(images: {known})")
            return
        entry = found[1]
    elif name is not None and (trouble := name_trouble((name.text() or "x").replace(".", "-"))):
        yield name.fault(f"the name {trouble}", "use letters, digits, dashes and dots")
    given, listed = image.get("checksum"), image.get("checksums")
    if url is not None and given is None and listed is None:
        yield url.fault(
            "has no checksum", "add 'checksum: sha256:HEX', or 'checksums: URL' of a list of them"
        )
    if path is not None and listed is not None:
        yield listed.fault("is for images by URL", "write 'checksum: sha256:HEX', or remove it")
    has_list = listed is not None or (entry is not None and entry.checksums is not None)
    for key in ("signature", "keyring"):
        item = image.get(key)
        if item is not None and path is None and not has_list:
            yield item.fault(
                "is for a list of checksums, and there is none", "add 'checksums: URL'"
            )
        elif item is not None and path is not None:
            yield item.fault("is for images by URL", "remove it")


def check_names(root: Item, clones: list[Item]) -> Iterator[Fault]:
    """Each name is there once, and the names of generations fit."""
    own = root.get("metadata", "name")
    seen: dict[str, Item] = {}
    if own is not None and (text := own.text()):
        seen[text.lower()] = own
        if _rebuilds(root) and len(text) + GENERATION_SUFFIX > _LONGEST_NAME:
            yield own.fault(
                f"is too long for the names of generations ({text}-YYYYMMDD-DIGEST)",
                f"use at most {_LONGEST_NAME - GENERATION_SUFFIX} characters, or 'rebuild: never'",
            )
    for clone in clones:
        name = clone.get("name")
        text = name.text() if name is not None else None
        if name is None or not text:
            continue
        if text.lower() == TEMPLATE:
            yield name.fault(f"the name {text!r} is kept for the template", "choose another one")
        first = seen.setdefault(text.lower(), name)
        if first is not name:
            yield name.fault(
                f"the name {text!r} is taken at {first.place} ({first.key})", "choose another one"
            )


def _rebuilds(root: Item) -> bool:
    return root.text("spec", "rebuild", "when") not in (None, "never")


def check_ids(spec: Item, clones: list[Item]) -> Iterator[Fault]:
    """Each number is there once, and generations have enough of them for themselves."""
    own, number = spec.get("vm_id"), spec.number("vm_id")
    first, last = _generations(spec)
    rebuild = spec.get("rebuild")
    kept = spec.get("rebuild", "vm_ids") or rebuild
    if number is not None and first is not None and last is not None and rebuild is not None:
        keep = spec.number("rebuild", "keep")
        wanted = (2 if keep is None else keep) + 1
        if own is not None and not first <= number <= last:
            yield own.fault(
                f"the number {number} is not one of rebuild.vm_ids ({first}-{last})",
                "choose a number in that range, or another range",
            )
        elif kept is not None and last - first + 1 < wanted:
            yield kept.fault(
                f"{first}-{last} has {last - first + 1} numbers",
                f"give at least {wanted}: the generations that are kept, and the new one",
            )
    seen: dict[int, Item] = {number: own} if own is not None and number is not None else {}
    for clone in clones:
        item, value = clone.get("vm_id"), clone.number("vm_id")
        if item is None or value is None:
            continue
        taken = seen.setdefault(value, item)
        if taken is not item:
            yield item.fault(
                f"the number {value} is taken at {taken.place} ({taken.key})",
                "give each guest its own",
            )
        elif first is not None and last is not None and first <= value <= last:
            yield item.fault(
                f"the number {value} is kept for generations of the template ({first}-{last})",
                "choose another number, or set rebuild.vm_ids",
            )


def _generations(spec: Item) -> tuple[int | None, int | None]:
    """The numbers that generations may take; none where the template is never rebuilt."""
    if spec.text("rebuild", "when") in (None, "never") and spec.get("rebuild", "vm_ids") is None:
        return None, None
    given = spec.get("rebuild", "vm_ids")
    number = spec.number("vm_id")
    if given is None:
        return (None, None) if number is None else (number, number + DEFAULT_GENERATIONS - 1)
    value = plain(given)
    try:
        return id_range(value)
    except ValueError:
        return None, None


def check_disks(spec: Item, clones: list[Item]) -> Iterator[Fault]:
    """Each slot is there once, and no clone has a smaller disk."""
    slots: dict[str, Item] = {spec.text("disk", "slot") or "scsi0": spec.get("disk") or spec}
    drive = spec.get("cloud_init", "slot")
    for disk in spec.elements("disks"):
        slot, item = disk.text("slot"), disk.get("slot")
        if slot and item and slots.setdefault(slot, item) is not item:
            yield item.fault(f"the slot {slot} is taken at {slots[slot].place}", "choose another")
    given = spec.text("cloud_init", "slot")
    for text in (given,) if given else ("ide2", "scsi30"):
        if text in slots:
            yield (drive or slots[text]).fault(
                f"the slot {text} is the cloud-init drive's and a disk's", "choose another one"
            )
    for clone in clones:
        size, item = clone.text("disk", "size"), clone.get("disk", "size")
        wanted, least = size_of(size), size_of(spec.text("disk", "size") or "20G")
        if item is not None and wanted is not None and least is not None and wanted < least:
            yield item.fault(
                f"{size} is smaller than the disk of the template "
                f"({spec.text('disk', 'size') or '20G'}); disks only grow",
                "choose a larger size, or make the template's smaller",
            )


def check_firmware(spec: Item) -> Iterator[Fault]:
    """What needs UEFI has it."""
    if spec.text("firmware", "bios") == "seabios":
        for key in ("secure_boot", "efi_storage"):
            item = spec.get("firmware", key)
            if item is not None and (key != "secure_boot" or spec.flag("firmware", key)):
                yield item.fault("needs UEFI, but bios is seabios", "write 'bios: ovmf'")
    tpm, storage = spec.get("firmware", "tpm"), spec.get("firmware", "tpm_storage")
    if tpm is not None and tpm.value is False and storage is not None:
        yield storage.fault("names a storage for the TPM, but tpm is false", "remove one of them")


def check_pci(spec: Item, owner: Item) -> Iterator[Fault]:
    """Each device is named in one way, once, and the machine type can take it."""
    machine = spec.text("firmware", "machine")
    primary: Item | None = None
    seen: dict[str, Item] = {}
    for device in owner.elements("pci"):
        if not isinstance(device.value, dict):
            continue
        mapping, raw = device.get("mapping"), device.get("device")
        if (mapping is None) == (raw is None):
            yield device.fault(
                "needs a mapping or a device, one of them",
                "write 'mapping: NAME' (Datacenter, Resource Mappings), or 'device: 0000:01:00.0'",
            )
        text = device.text("device")
        if raw is not None and text and seen.setdefault(text.lower(), raw) is not raw:
            yield raw.fault(
                f"the device {text} is there twice (also at {seen[text.lower()].place})",
                "remove one of them",
            )
        if device.flag("primary"):
            if primary is not None:
                yield device.fault(
                    f"is primary, as the one at {primary.place} is", "let one of them be primary"
                )
            primary = primary or device
        pcie = device.get("pcie")
        if pcie is not None and device.flag("pcie") and machine and "q35" not in machine:
            yield pcie.fault(f"needs machine q35, not {machine}", "write 'machine: q35'")


def check_macs(spec: Item, clones: list[Item]) -> Iterator[Fault]:
    """Each MAC address is there once."""
    seen: dict[str, Item] = {}
    for owner in (spec, *clones):
        for nic in owner.elements("nics"):
            item, mac = nic.get("mac"), nic.text("mac")
            if item is None or not mac or mac.lower() == "auto":
                continue
            first = seen.setdefault(mac.upper().replace("-", ":"), item)
            if first is not item:
                yield item.fault(
                    f"the MAC address {mac} is taken at {first.place} ({first.key})",
                    "give each guest its own",
                )


def check_alias(root: Item, spec: Item, clones: list[Item]) -> Iterator[Fault]:
    """The tag of the newest generation is nobody else's."""
    tag = spec.text("alias", "tag")
    if not tag:
        return
    for owner in (root.get("metadata"), *clones):
        tags = owner.get("tags") if owner is not None else None
        if tags is None:
            continue
        entries = tags.elements() or [tags]
        for entry in entries:
            if (entry.text() or "").lower() == tag.lower():
                yield entry.fault(
                    f"the tag {tag!r} marks the newest generation (alias.tag)",
                    "choose another one",
                )
