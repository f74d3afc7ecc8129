"""Writes the short forms of a template out, in the tree, so that every part keeps its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from ipaddress import ip_interface

from blocks.manifest.faults import Fault
from blocks.manifest.template.counted import expand_counts
from blocks.manifest.tree import Item

_SINGLE = {"disk": "size", "firmware": "bios", "rebuild": "when", "alias": "tag"}
_LISTS = ("ssh_keys", "dns", "search", "packages", "commands")
_WORDS = {
    "dhcp": ("address", "dhcp"),
    "dhcp4": ("address", "dhcp"),
    "none": ("address", "none"),
    "manual": ("address", "none"),
    "dhcp6": ("address6", "dhcp"),
    "auto": ("address6", "auto"),
    "auto6": ("address6", "auto"),
    "slaac": ("address6", "auto"),
}


def write_out(root: Item, faults: list[Fault]) -> None:
    """Write out what is short under ``spec``; counted clones become one entry each."""
    spec = root.get("spec")
    if spec is None or not isinstance(spec.value, dict):
        return
    _change(spec, "image", _image)
    for key, inner in _SINGLE.items():
        _change(spec, key, partial(_wrapped, key=inner))
    for key, each in (("pci", _pci), ("nics", _nic), ("disks", _data_disk)):
        _change(spec, key, partial(_listed, each=each))
    _cloud_init(spec)
    if "clones" in spec.value and spec.value["clones"].value is not None:
        spec.value["clones"] = expand_counts(_listed(spec.value["clones"]), _ip_list, faults)
    for clone in clones_of(root):
        _change(clone, "disk", partial(_wrapped, key="size"))
        _change(clone, "nics", partial(_listed, each=_nic))
        _change(clone, "pci", partial(_listed, each=_pci))
        _change(clone, "ip", _ip_list)
        _cloud_init(clone)


def clones_of(root: Item) -> list[Item]:
    """The entries of ``spec.clones`` that are mappings."""
    return [item for item in root.elements("spec", "clones") if isinstance(item.value, dict)]


def cloud_inits(root: Item) -> Iterator[Item]:
    """Every ``cloud_init`` part: the template's, then those of the clones."""
    spec = root.get("spec")
    for owner in ([spec] if spec is not None else []) + clones_of(root):
        part = owner.get("cloud_init")
        if part is not None and isinstance(part.value, dict):
            yield part


def _change(owner: Item, key: str, form: Callable[[Item], Item]) -> None:
    if isinstance(owner.value, dict):
        item = owner.value.get(key)
        if item is not None and item.value is not None and not item.broken:
            owner.value[key] = form(item)


def _wrapped(item: Item, key: str) -> Item:
    """A word that stands for a mapping with that one key. A list stays, and is refused later."""
    if isinstance(item.value, dict | list):
        return item
    return Item({key: item}, item.file, item.line, item.key)


def _listed(item: Item, each: Callable[[Item], Item] | None = None) -> Item:
    """A single entry that stands for a list of one."""
    entries = item.value if isinstance(item.value, list) else [item]
    if each is not None:
        entries = [entry if entry.broken else each(entry) for entry in entries]
    return Item(entries, item.file, item.line, item.key)


def _image(item: Item) -> Item:
    if not isinstance(item.value, str):
        return item
    if "://" in item.value:
        return _wrapped(item, "url")
    named = "/" not in item.value and not item.value.startswith(("~", "."))
    return _wrapped(item, "name" if named else "path")


def _pci(item: Item) -> Item:
    is_id = isinstance(item.value, str) and ":" in item.value
    return _wrapped(item, "device" if is_id else "mapping")


def _nic(item: Item) -> Item:
    return _wrapped(item, "bridge")


def _data_disk(item: Item) -> Item:
    return _wrapped(item, "size")


def _cloud_init(owner: Item) -> None:
    part = owner.get("cloud_init")
    if part is None or not isinstance(part.value, dict):
        return
    _change(part, "snippets", partial(_wrapped, key="storage"))
    _change(part, "ip", _ip_list)
    for key in _LISTS:
        _change(part, key, _listed)


def _ip_list(item: Item) -> Item:
    return _listed(item, _ip)


def _ip(item: Item) -> Item:
    """``dhcp``, ``auto6`` or an address as the mapping that it stands for."""
    if not isinstance(item.value, str):
        return item
    word = item.value.strip().lower()
    if word in _WORDS:
        key, value = _WORDS[word]
        return Item({key: replace(item, value=value)}, item.file, item.line, item.key)
    return _wrapped(item, "address6" if _is_v6(word) else "address")


def _is_v6(text: str) -> bool:
    try:
        return ip_interface(text).version == 6
    except ValueError:
        return ":" in text
