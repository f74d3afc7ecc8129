"""Texts in the tables of Markdown artifacts."""

from __future__ import annotations

import textwrap
from typing import Final

# Prefect's pages never wrap a cell: what is longer is cut off at the edge of the table.
_COLUMNS: Final = 80


def folded(text: str) -> str:
    """A text as a table's cell, with line breaks where it would be too long to be seen."""
    lines = [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(line, _COLUMNS, break_long_words=False, break_on_hyphens=False)
    ]
    return "<br>".join(lines).replace("|", "\\|")
