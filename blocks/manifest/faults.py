"""What is wrong with a manifest, said so that it can be put right at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from blocks.model import Model


class Fault(Model):
    """One thing that is wrong: where, what, and what would be right."""

    file: str
    line: int | None = None
    key: str = ""
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        """``env.yaml:14: spec.networks.public.cidr: is no network; write it as 10.0.0.0/24``."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = f"{place}: {self.key}" if self.key else place
        said = f"{self.problem}; {self.remedy}" if self.remedy else self.problem
        return f"{subject}: {said}"


class ManifestError(ValueError):
    """A manifest was refused. ``faults`` has everything that is wrong with it, in file order."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__(faults)
        self.faults = faults

    def __str__(self) -> str:
        """One fault a line."""
        return "\n".join(str(fault) for fault in self.faults)


def show_path(path: Path) -> str:
    """A path as a user wants to read it: relative below the current folder, else absolute."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, or None where nothing is close."""
    lowered = {name.lower(): name for name in sorted(known, reverse=True)}
    close = difflib.get_close_matches(word.lower(), lowered, cutoff=0.6)
    # Swapped letters are the likeliest slip, and get a low ratio in a short word.
    swapped = [name for name in close if sorted(name) == sorted(word.lower())]
    return lowered[(swapped or close)[0]] if close else None


def suggestion(word: str, known: Iterable[str], kind: str) -> str:
    """A remedy for a wrong word: ``did you mean 'public'? (zones: private, public)``."""
    names = sorted(set(known))
    listed = f"({kind}: {', '.join(names)})" if names else f"(there are no {kind})"
    close = nearest(word, names)
    return f"did you mean {close!r}? {listed}" if close else f"choose a known one {listed}"
