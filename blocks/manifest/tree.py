"""YAML content that still knows where each part of it was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from blocks.manifest.faults import Fault, show_path

Scalar = str | int | float | bool | None

_MAX_DIGITS = 40


@dataclass(slots=True, eq=False)
class Item:
    """A mapping, a list or a scalar, with its place.

    ``line`` counts from 1 and is that of the key, where there is one. ``key`` is the dotted path in
    the environment, so an item of a layer in its own file starts with ``spec.``. ``masked`` is what
    may be shown in place of a value that came from a secret. ``broken`` marks what has a fault
    already, so that nothing is said twice.
    """

    value: dict[str, Item] | list[Item] | Scalar
    file: Path
    line: int
    key: str
    masked: str | None = None
    broken: bool = False

    def fault(self, problem: str, remedy: str = "", *, below: str = "") -> Fault:
        """A fault at this place, or at a missing key ``below`` it."""
        key = join(self.key, below) if below else self.key
        return Fault(
            file=show_path(self.file), line=self.line, key=key, problem=problem, remedy=remedy
        )

    @property
    def place(self) -> str:
        """``hypervisor.yaml:12``."""
        return f"{show_path(self.file)}:{self.line}"

    def get(self, *path: str | int) -> Item | None:
        """The item below, or None where there is none or where it is null."""
        found: Item | None = self
        for step in path:
            if found is None:
                return None
            value = found.value
            if isinstance(value, dict) and isinstance(step, str):
                found = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
                found = value[step]
            else:
                return None
        return None if found is None or (found.value is None and not found.broken) else found

    def entries(self, *path: str | int) -> dict[str, Item]:
        """The entries of the mapping below that are not null; none where it is no mapping."""
        found = self.get(*path)
        if found is None or not isinstance(found.value, dict):
            return {}
        return {key: item for key, item in found.value.items() if item.value is not None}

    def elements(self, *path: str | int) -> list[Item]:
        """The elements of the list below; none where it is no list."""
        found = self.get(*path)
        return found.value if found is not None and isinstance(found.value, list) else []

    def text(self, *path: str | int) -> str | None:
        """The text below, or None where there is none."""
        found = self.get(*path)
        return found.value if found is not None and isinstance(found.value, str) else None

    def number(self, *path: str | int) -> int | None:
        """The whole number below, also where it is written as text."""
        found = self.get(*path)
        value = None if found is None else found.value
        if isinstance(value, str) and value.strip().isdecimal():
            # No number here has that many digits, and int() refuses 4,300 of them.
            return int(value) if len(value) <= _MAX_DIGITS else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, *path: str | int) -> bool:
        """Whether the switch below is on."""
        found = self.get(*path)
        return found is not None and found.value in (True, "true", "yes", "on")


def join(prefix: str, step: str | int) -> str:
    """A dotted key with one more step: ``nodes`` and 0 give ``nodes[0]``."""
    if isinstance(step, int):
        return f"{prefix}[{step}]"
    return f"{prefix}.{step}" if prefix else step


def plain(item: Item) -> Any:
    """The content without places. Null entries of mappings are left out: they mean "unset"."""
    if isinstance(item.value, dict):
        return {key: plain(child) for key, child in item.value.items() if child.value is not None}
    if isinstance(item.value, list):
        return [plain(child) for child in item.value]
    return item.value


def scalars(item: Item) -> Iterator[Item]:
    """Every scalar of a tree, in the order in which it was written."""
    if isinstance(item.value, dict):
        for child in item.value.values():
            yield from scalars(child)
    elif isinstance(item.value, list):
        for child in item.value:
            yield from scalars(child)
    else:
        yield item


def merge(winner: Item, base: Item) -> Item:
    """Both, mapping by mapping; where they differ the winner's value stands, lists whole.

    An explicit null of the winner removes what the base has. Neither argument is changed.
    """
    if not isinstance(winner.value, dict) or not isinstance(base.value, dict):
        return winner
    merged = {
        key: merge(item, base.value[key]) if key in base.value else item
        for key, item in winner.value.items()
        if item.value is not None or item.broken or key not in base.value
    }
    merged.update({key: item for key, item in base.value.items() if key not in winner.value})
    return replace(winner, value=merged)
