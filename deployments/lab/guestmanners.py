"""How guests behave when asked to power off: at once, after a while, or never.

Ordered through the control interface and kept on disk; without an order a guest that is up takes
the duration ``acpi``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deployments.lab.files import read_json, write_json


@dataclass(frozen=True)
class Manner:
    """``never`` ignores the request; ``seconds`` (of a real cluster) None means as usual."""

    never: bool = False
    seconds: float | None = None


class AcpiManners:
    """The manners of all guests."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = {int(k): Manner(**v) for k, v in read_json(file, {}).items()}

    def of(self, vmid: int) -> Manner:
        """How a guest behaves."""
        return self._known.get(vmid, Manner())

    def set(self, vmid: int, manner: Manner) -> None:
        """Order a manner."""
        self._known[vmid] = manner
        write_json(self._file, {str(k): vars(v) for k, v in self._known.items()})
