"""What must hold between disks, storage classes and the layers that refer to disks."""

from __future__ import annotations

from collections.abc import Iterator

from blocks.manifest.faults import Fault, suggestion
from blocks.manifest.layers import Layers, size_of
from blocks.manifest.tree import Item


def check_disks(env: Layers, node: Item) -> Iterator[Fault]:
    """Storage classes exist; ids and slots are there once."""
    ids: dict[int, Item] = {}
    slots: dict[str, Item] = {}
    for disk in node.elements("disks"):
        number, slot = disk.number("id"), disk.text("interface")
        if number is not None and ids.setdefault(number, disk) is not disk:
            yield disk.fault(
                f"the disk id {number} is there twice (also at {ids[number].place})",
                "choose another id",
            )
        if slot and slots.setdefault(slot, disk) is not disk:
            yield (disk.get("interface") or disk).fault(
                f"the slot {slot} is taken at {slots[slot].place}", "choose another one"
            )
        name, item = disk.text("storage_class"), disk.get("storage_class")
        if name is None and disk.get("storage") is None and item is None:
            classes = ", ".join(sorted(env.classes)) or "none yet"
            yield disk.fault(
                "the disk is on no storage", f"add 'storage_class: ...' (classes: {classes})"
            )
        elif name and item and env.storage_classes is not None and name not in env.classes:
            yield item.fault(
                f"unknown storage class {name!r}", suggestion(name, env.classes, "storage classes")
            )


def check_shared_disks(env: Layers) -> Iterator[Fault]:
    """Disks that are one volume agree in size and storage, and that storage is shared."""
    first: dict[int, tuple[Item, Item]] = {}
    for node in env.nodes.values():
        root = root_disk(node)
        for disk in node.elements("disks"):
            number = disk.number("id")
            if not disk.flag("shared") or number is None:
                continue
            flag = disk.get("shared") or disk
            if disk is root:
                yield flag.fault(
                    "the disk to install on cannot be shared", "give each node its own root disk"
                )
                continue
            backend, shared = _backend(env, disk)
            if env.storage_classes is not None and backend is not None and not shared:
                yield flag.fault(
                    f"the disk is shared, but its storage {backend!r} is not",
                    "use a storage class with 'shared: true'",
                )
            owner, original = first.setdefault(number, (node, disk))
            if owner is node or original is disk:
                continue
            other, _ = _backend(env, original)
            if backend is not None and other is not None and backend != other:
                yield disk.fault(
                    f"the shared disk {number} is on {backend!r} here, but on {other!r} at "
                    f"{original.place}",
                    "put both on one storage",
                )
            here, there = size_of(disk.text("size")), size_of(original.text("size"))
            if here is not None and there is not None and here != there:
                yield (disk.get("size") or disk).fault(
                    f"the shared disk {number} has another size at {original.place}",
                    f"write {original.text('size')} in both places",
                )


def root_disk(node: Item) -> Item | None:
    """The disk to install on: the one of role root, else that on scsi0, else the first."""
    disks = node.elements("disks")
    for wanted in (("role", "root"), ("interface", "scsi0")):
        for disk in disks:
            if disk.text(wanted[0]) == wanted[1]:
                return disk
    return disks[0] if disks else None


def _backend(env: Layers, disk: Item) -> tuple[str | None, bool]:
    """The storage of a disk, and whether a class says that it is shared."""
    literal, name = disk.text("storage"), disk.text("storage_class")
    if literal is not None:
        named = [each for each in env.classes.values() if each.text("backend") == literal]
        return literal, any(each.flag("shared") for each in named)
    found = env.classes.get(name or "")
    return (found.text("backend"), found.flag("shared")) if found is not None else (None, False)


def check_disk_tags(env: Layers) -> Iterator[Fault]:
    """Tags that other layers refer to are on a disk."""
    if env.hypervisor is None:
        return
    known = {
        tag
        for node in env.nodes.values()
        for disk in node.elements("disks")
        if (tag := disk.text("tag"))
    }
    spec = env.root.get("spec")
    readers = [spec.get("linux"), *spec.elements("databases")] if spec is not None else []
    for reader in readers:
        for entry in reader.elements("disk_layout", "additional") if reader is not None else []:
            item, tag = entry.get("tag"), entry.text("tag")
            if item is not None and tag and tag not in known and "${" not in tag:
                yield item.fault(
                    f"no disk has the tag {tag!r}", suggestion(tag, known, "disk tags")
                )
