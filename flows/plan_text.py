"""Plans as text: for the terminal (rich) and for Prefect artifacts (Markdown)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from blocks.manifest.plans import Action, Creation, GuestPlan
from tasks.findings import Finding
from tasks.survey import Survey

_SIGNS = {
    Action.CREATE: ("+", "green"),
    Action.RESUME: (">", "cyan"),
    Action.UPDATE: ("~", "yellow"),
    Action.UNCHANGED: ("=", "dim"),
    Action.IMPOSSIBLE: ("!", "red"),
    Action.FOREIGN: ("!", "red"),
    Action.DELETE: ("-", "red"),
}


def plan_lines(survey: Survey) -> RenderableType:
    """The plan: a line a guest, its details below, and a last line that counts."""
    lines: list[RenderableType] = []
    for guest in survey.plan.guests:
        sign, colour = _SIGNS[guest.action]
        head = f"[{colour}]{sign} {escape(guest.label)}[/]"
        where = f"[dim]{guest.vmid} on {escape(guest.node)}[/]"
        lines.append(Text.from_markup(f"{head}  {where}  {escape(said(survey, guest))}"))
        lines += [Text("    " + text) for text in details(guest)]
    lines.append(Text(""))
    lines.append(Text.from_markup(f"[bold]Plan:[/] {counted(survey)}"))
    return Group(*lines)


def plan_document(survey: Survey, findings: Sequence[Finding]) -> dict[str, Any]:
    """The plan for programs, with what was found against it."""
    document: dict[str, Any] = json.loads(survey.plan.to_json())
    return document | {"findings": [finding.model_dump(mode="json") for finding in findings]}


def said(survey: Survey, guest: GuestPlan) -> str:
    """What is to be done with the guest, in words."""
    start = survey.to_start(guest.label)
    match guest.action:
        case Action.CREATE:
            return "to be created"
        case Action.RESUME:
            return f"to be finished: {guest.reason}"
        case Action.UPDATE:
            return "to be changed, then started" if start else "to be changed"
        case Action.UNCHANGED:
            return "to be started" if start else "as declared"
        case _:
            return f"refused: {guest.reason}"


def details(guest: GuestPlan) -> Iterator[str]:
    """The lines below a guest's line."""
    if guest.creation is not None:
        yield from _creation(guest.creation)
    for change in guest.changes:
        yield str(change)


def _creation(new: Creation) -> Iterator[str]:
    cores = "1 core" if new.cores == 1 else f"{new.cores} cores"
    yield f"{cores}, {new.memory} MiB, {new.firmware}"
    yield from new.disks
    yield from new.nics
    if new.iso:
        yield f"installed from {new.iso}, seed ISO on {new.seed}"
    if new.medium:
        yield f"install ISO: {new.medium}"


def counted(survey: Survey, *, differing: str = "to change") -> str:
    """``3 to create, 1 to change, 2 as declared``; ``nothing to do`` where that is so.

    ``differing``: what is said of guests that are not as declared.
    """
    if survey.nothing_to_do:
        count = len(survey.plan.guests)
        return f"nothing to do, {count} guest{'s' if count != 1 else ''} as declared"
    counts = survey.plan.counts
    starts = sum(
        survey.to_start(g.label) for g in survey.plan.guests if g.action is Action.UNCHANGED
    )
    words = [
        (counts[Action.CREATE], "to create"),
        (counts[Action.RESUME], "to finish"),
        (counts[Action.UPDATE], differing),
        (starts, "to start"),
        (counts[Action.UNCHANGED] - starts, "as declared"),
        (len(survey.plan.refused), "refused"),
    ]
    return ", ".join(f"{number} {word}" for number, word in words if number)


def plan_markdown(survey: Survey) -> str:
    """The plan as a Prefect artifact."""
    rows = [
        f"| {g.label} | {g.vmid} | {g.node} | {said(survey, g)} | {'<br>'.join(details(g))} |"
        for g in survey.plan.guests
    ]
    return "\n".join(
        [
            f"### Plan for {survey.plan.env}: {counted(survey)}",
            "",
            "| guest | vmid | node | what | details |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )
