"""Counted clones: one entry with ``count`` and patterns becomes one entry a clone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address, ip_interface

from blocks.manifest.faults import Fault
from blocks.manifest.template.patterns import FORMS, counts, fill
from blocks.manifest.tree import Item

MOST = 500
# What these hold is shell or a document, where braces mean something else.
_VERBATIM = frozenset({"commands", "user_data", "vendor_data", "network_config", "ssh_keys"})


def expand_counts(clones: Item, written_out: Callable[[Item], Item], faults: list[Fault]) -> Item:
    """The list of clones, counted ones one by one. ``written_out`` makes a list of an ``ip``."""
    entries: list[Item] = []
    for entry in clones.elements():
        counted = isinstance(entry.value, dict) and entry.get("count") is not None
        entries += _counted(entry, written_out, faults) if counted else [entry]
    return replace(clones, value=entries)


def _counted(entry: Item, written_out: Callable[[Item], Item], faults: list[Fault]) -> list[Item]:
    assert isinstance(entry.value, dict)  # noqa: S101 - only called with mappings
    item = entry.value["count"]
    parts = {key: each for key, each in entry.value.items() if key != "count"}
    number = entry.number("count")
    if item.broken or number is None or not 1 <= number <= MOST:
        if not item.broken:
            faults.append(item.fault("is no number of clones", f"write a number from 1 to {MOST}"))
        return []
    if "ip" in parts and parts["ip"].value is not None:
        parts["ip"] = written_out(parts["ip"])
    told = list(_same(parts, entry, number)) if number > 1 else []
    if told:
        faults += told
        return []
    made: list[Item] = []
    for index in range(1, number + 1):
        try:
            made.append(replace(entry, value=_one(parts, index)))
        except _NoPattern as trouble:
            faults.append(trouble.fault)
            return []
    return made


class _NoPattern(Exception):
    """A part of a counted clone cannot be filled in."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def _one(parts: dict[str, Item], index: int) -> dict[str, Item]:
    filled: dict[str, Item] = {}
    for key, item in parts.items():
        if key == "vm_id" and isinstance(item.value, int) and not isinstance(item.value, bool):
            filled[key] = replace(item, value=item.value + index - 1)
        elif key == "node" and isinstance(item.value, list):
            nodes = item.value
            filled[key] = nodes[(index - 1) % len(nodes)] if nodes else item
        else:
            filled[key] = _filled(item, index, verbatim=key in _VERBATIM)
    for entry in parts["ip"].elements() if "ip" in parts else []:
        _check_addresses(entry, index)
    return filled


def _filled(item: Item, index: int, *, verbatim: bool = False) -> Item:
    """A copy; loading changes items in place, so that clones may share none."""
    value = item.value
    if isinstance(value, dict):
        return replace(
            item,
            value={
                key: _filled(each, index, verbatim=verbatim or key in _VERBATIM)
                for key, each in value.items()
            },
        )
    if isinstance(value, list):
        return replace(item, value=[_filled(each, index, verbatim=verbatim) for each in value])
    if verbatim or item.masked is not None or not isinstance(value, str):
        return replace(item)
    try:
        return replace(item, value=fill(value, index))
    except ValueError as error:
        problem, _, remedy = str(error).partition("; ")
        raise _NoPattern(item.fault(problem, remedy)) from None


def _check_addresses(entry: Item, index: int) -> None:
    """A pattern that leaves the range of an address is told with the clone that it hits."""
    for item in entry.entries().values():
        text = item.text()
        if text is None or not counts(text):
            continue
        result = fill(text, index)
        try:
            ip_interface(result) if "/" in result else ip_address(result)
        except ValueError:
            raise _NoPattern(
                item.fault(
                    f"is {result} for clone {index}, which is no address",
                    f"lower the count or the number in the pattern ({FORMS})",
                )
            ) from None


def _same(parts: dict[str, Item], entry: Item, number: int) -> list[Fault]:
    """What would be the same for every clone, and must not be."""
    told: list[Fault] = []
    name = parts.get("name")
    text = name.text() if name is not None else None
    if name is not None and text is not None and not counts(text):
        told.append(
            name.fault(
                f"is the same for all {number} clones", f"write a pattern such as {text}{{n:02}}"
            )
        )
    vmid = parts.get("vm_id")
    given = vmid.text() if vmid is not None else None
    if vmid is not None and given is not None and not counts(given):
        told.append(
            vmid.fault(
                f"is text, and the same for all {number} clones",
                "write a number, which counts up, or a pattern such as 91{n:02}",
            )
        )
    for address in entry_addresses(parts):
        value = address.text() or ""
        if "/" in value and not counts(value):
            told.append(
                address.fault(
                    f"is the same for all {number} clones",
                    "write a pattern such as 10.0.0.{n+10}/24",
                )
            )
    return told


def entry_addresses(parts: dict[str, Item]) -> list[Item]:
    """The addresses of an entry, IPv4 and IPv6."""
    ip = parts.get("ip")
    entries = ip.elements() if ip is not None else []
    found = [entry.get(key) for entry in entries for key in ("address", "address6")]
    return [item for item in found if item is not None]
