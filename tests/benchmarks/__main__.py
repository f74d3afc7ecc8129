"""Print what Proxflow costs: ``python -m tests.benchmarks [NAME...]``.

Ratios and counts say something on any machine, seconds only about this one when it is quiet.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from tests.benchmarks.figures import Figure, machine, show

NAMES = {
    "seeds": "render and build of seed ISOs",
    "iso": "rewriting a large ISO beside cp and xorriso; a hundred seeds",
    "calls": "calls to the cluster",
    "overhead": "cost of a stage",
    "startup": "commands as processes, with a Prefect server and without",
    "lab": "start of the lab, lists of two thousand guests, an upload beside other calls",
    "uploads": "a large upload beside curl",
    "templates": "a second build beside the first; twenty clones (two minutes)",
    "makespan": "a fleet beside its critical path (a minute and a half)",
}
Benchmark = Callable[[Path], Iterator[Figure]]


def main() -> None:
    """Run the benchmarks that were asked for and print one table."""
    about = "\n".join(f"  {name:<10} {text}" for name, text in NAMES.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=f"{__doc__}\n\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="what to measure (default: everything)")
    asked = parser.parse_args().name
    unknown = sorted(set(asked) - NAMES.keys())
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    print(machine(), flush=True)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="proxflow-bench-") as folder:
        _quiet(Path(folder))
        for name in asked or NAMES:
            for figure in _benchmark(name)(_made(Path(folder) / name)):
                print(f"{name}: {figure.name}: {figure.value}", flush=True)
                figures.append(figure)
    show(figures)


def _quiet(folder: Path) -> None:
    """Nothing of this machine's Prefect is used or touched; the environment is read at import."""
    for name in [name for name in os.environ if name.startswith("PREFECT")]:
        del os.environ[name]
    os.environ["PREFECT_HOME"] = str(folder / "prefect")
    os.environ["PREFECT_LOGGING_LEVEL"] = "WARNING"
    logging.getLogger("prefect").setLevel(logging.WARNING)


def _benchmark(name: str) -> Benchmark:
    found: Benchmark = getattr(import_module(f"tests.benchmarks.{name}"), name)
    return found


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
