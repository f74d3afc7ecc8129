"""What a preflight finds: errors that forbid to begin, and warnings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from blocks.model import Model


class Finding(Model):
    """One thing that does not fit between the manifest and the cluster.

    ``guest`` is None for what concerns all of them. ``remedy`` says what would be right.
    """

    severity: Literal["error", "warning"]
    guest: str | None = None
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        """One line: guest, problem, remedy."""
        where = f"{self.guest}: " if self.guest else ""
        return f"{where}{self.problem}" + (f"; {self.remedy}" if self.remedy else "")


def error(problem: str, remedy: str = "", *, guest: str | None = None) -> Finding:
    """A finding that forbids to begin."""
    return Finding(severity="error", guest=guest, problem=problem, remedy=remedy)


def warning(problem: str, remedy: str = "", *, guest: str | None = None) -> Finding:
    """A finding to know about."""
    return Finding(severity="warning", guest=guest, problem=problem, remedy=remedy)


class PreflightFailed(Exception):
    """The cluster cannot take what the manifest asks for; nothing was changed.

    ``findings``: all of them, warnings included.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        """Keep the findings; the text lists the errors."""
        self.findings = tuple(findings)
        errors = [f for f in self.findings if f.severity == "error"]
        super().__init__("\n".join(map(str, errors)))

    def __reduce__(self) -> tuple[type[PreflightFailed], tuple[tuple[Finding, ...]]]:
        """Pickle with the findings, not with the text."""
        return PreflightFailed, (self.findings,)


def forbids(findings: Iterable[Finding]) -> bool:
    """Whether there is an error among them."""
    return any(finding.severity == "error" for finding in findings)


def refuse(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Raise PreflightFailed if there is an error among them; else give them back."""
    found = tuple(findings)
    if forbids(found):
        raise PreflightFailed(found)
    return found
