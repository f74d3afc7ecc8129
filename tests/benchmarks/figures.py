"""What a benchmark says: a figure, the aim it is held against, and how it came about."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    ``aim`` is what the figure should be, as text, empty where there is none. ``met`` is None where
    there is nothing to compare. A figure is never an assertion: machines differ.
    """

    name: str
    value: str
    aim: str = ""
    met: bool | None = None
    note: str = ""


def at_most(name: str, value: float, aim: float, unit: str = "", note: str = "") -> Figure:
    """A figure that should not be above its aim. Both are in ``unit``."""
    return Figure(name, _text(value, unit), f"<= {_text(aim, unit)}", value <= aim, note)


def plain(name: str, value: float, unit: str = "", note: str = "") -> Figure:
    """A figure without an aim."""
    return Figure(name, _text(value, unit), note=note)


def show(figures: Iterable[Figure]) -> None:
    """Print the table, and what kind of machine the figures are from."""
    console = Console(highlight=False)
    table = Table("figure", "value", "aim", "", "how", box=None, pad_edge=False)
    for column in table.columns[1:3]:
        column.justify = "right"
        column.no_wrap = True
    for figure in figures:
        verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[figure.met]
        table.add_row(figure.name, figure.value, figure.aim, verdict, f"[dim]{figure.note}[/]")
    console.print()
    console.print(table)
    console.print(f"\n{machine()}", soft_wrap=True)


def machine() -> str:
    """Cores, load and Python: what absolute figures depend on."""
    cores = os.cpu_count()
    load = os.getloadavg()[0]
    busy = "; other work was running, times are too high" if cores and load > cores else ""
    python = platform.python_version()
    return f"{cores} cores, load average of the last minute {load:.1f}{busy}; Python {python}"


def _text(value: float, unit: str) -> str:
    digits = 0 if value == int(value) and unit in {"", "MiB"} else 2
    return f"{value:.{digits}f} {unit}".rstrip()
