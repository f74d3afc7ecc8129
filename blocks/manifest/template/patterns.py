"""Patterns of a counted clone: ``web{n:02}``, ``10.0.0.{n+10}/24``. Nothing is evaluated."""

from __future__ import annotations

import re

_BRACES = re.compile(r"(?<!\$)\{([^{}]*)\}")
_PATTERN = re.compile(r"n(?P<shift>[+-]\d{1,9})?(?::0?(?P<width>[1-9]))?")

FORMS = "{n}, {n:02} or {n+10}"


def fill(text: str, number: int) -> str:
    """The text of the clone of that number, counted from 1.

    Raises ValueError for braces that are none of ``FORMS``, and where a number falls below zero.
    """

    def value(found: re.Match[str]) -> str:
        pattern = _PATTERN.fullmatch(found[1].replace(" ", ""))
        if pattern is None:
            raise ValueError(f"has {found[0]}, which is no pattern; write {FORMS}")
        result = number + int(pattern["shift"] or 0)
        if result < 0:
            raise ValueError(f"{found[0]} falls below zero for clone {number}; write {FORMS}")
        return str(result).zfill(int(pattern["width"] or 1))

    return _BRACES.sub(value, text)


def counts(text: str) -> bool:
    """Whether a text differs from clone to clone."""
    return bool(_BRACES.search(text))
