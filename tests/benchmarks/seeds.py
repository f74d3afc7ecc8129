"""Rendering and building seed ISOs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from blocks.manifest.loader import load_environment
from tasks.iso.build import build_seed
from tasks.iso.render import render
from tests.benchmarks.figures import Figure, at_most
from tests.benchmarks.places import environment

GUESTS = 32


def seeds(folder: Path) -> Iterator[Figure]:
    """Render and build the seed ISO of each of 32 guests, one after the other."""
    loaded = load_environment(environment(folder / "seeds", GUESTS))
    took = []
    for guest in loaded.guests:
        began = time.perf_counter()
        build_seed(render(guest, env=loaded.name), folder / f"{guest.label}.iso")
        took.append((time.perf_counter() - began) * 1000)
    yield at_most(
        "seed ISO, render and build, a guest",
        median(took),
        50,
        "ms",
        f"the first one, which loads the templates: {took[0]:.0f} ms; slowest of the others "
        f"{max(took[1:]):.0f} ms",
    )
