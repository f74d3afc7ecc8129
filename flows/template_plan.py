"""The plan of a template as text: for the terminal, for Prefect artifacts, for programs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from blocks.manifest.guest import Guest
from blocks.manifest.recipe import TEMPLATE
from blocks.words import count
from flows.markdown import folded
from tasks.findings import Finding
from tasks.template.seen import BUILDING, TemplateSurvey

_SIGNS = {
    "absent": ("+", "green"),
    "unfinished": (">", "cyan"),
    "ready": ("=", "dim"),
    "foreign": ("!", "red"),
}


def plan_lines(
    seen: TemplateSurvey, chosen: Sequence[str], *, reconcile: bool = False
) -> RenderableType:
    """The plan: a line a guest, differences below, and a last line that counts."""
    lines: list[RenderableType] = []
    for guest in _touched(seen, chosen):
        sign, colour = _SIGNS[seen.standing(guest)]
        head = f"[{colour}]{sign} {escape(guest.name)}[/]"
        where = f"[dim]{guest.vmid} on {escape(guest.node)}[/]"
        lines.append(Text.from_markup(f"{head}  {where}  {escape(_said(seen, guest, chosen))}"))
        lines += [Padding(Text(text), (0, 0, 0, 4)) for text in _details(seen, guest)]
    lines.append(Text(""))
    summary = planned_summary(seen, chosen, reconcile=reconcile)
    lines.append(Text.from_markup(f"[bold]Plan:[/] {summary}"))
    return Group(*lines)


def planned_summary(seen: TemplateSurvey, chosen: Sequence[str], *, reconcile: bool = False) -> str:
    """``template to be built, 3 clones to be made, 1 clone there``, of what is asked for."""
    parts = [f"template {_template_words(seen, chosen)}"]
    if "clones" in chosen:
        states = [seen.standing(clone) for clone in seen.clones]
        made = states.count("absent") + states.count("unfinished")
        if made:
            parts.append(f"{count(made, 'clone')} to be made")
        if ready := states.count("ready"):
            parts.append(f"{count(ready, 'clone')} there")
        if differing := sum(map(seen.deviates, seen.clones)):
            what = "to be set right" if reconcile else "not as declared (--reconcile sets it right)"
            parts.append(f"{differing} of them {what}")
        if foreign := states.count("foreign"):
            parts.append(f"{count(foreign, 'number')} taken")
    return ", ".join(parts)


def plan_markdown(seen: TemplateSurvey, chosen: Sequence[str], *, reconcile: bool = False) -> str:
    """The plan as a Prefect artifact."""
    lines = [
        f"### {seen.environment.name}: {planned_summary(seen, chosen, reconcile=reconcile)}",
        "",
        f"Stages: {', '.join(chosen)}",
        "",
        "| guest | vmid | node | plan |",
        "|---|---|---|---|",
    ]
    for guest in _touched(seen, chosen):
        details = folded("\n".join([_said(seen, guest, chosen), *_details(seen, guest)]))
        lines.append(f"| {guest.name} | {guest.vmid} | {guest.node} | {details} |")
    return "\n".join(lines)


def plan_document(
    seen: TemplateSurvey, pending: Collection[str], findings: Sequence[Finding]
) -> dict[str, Any]:
    """The plan for programs, with what was found against it."""
    return {
        "env": seen.environment.name,
        "reason": seen.reason,
        "differs": [*seen.renewed, *seen.outdated],
        "pending": sorted(pending),
        "guests": [
            {
                "label": guest.label,
                "name": guest.name,
                "vmid": guest.vmid,
                "node": guest.node,
                "standing": seen.standing(guest),
                "to_start": seen.is_idle(guest),
                "changes": [
                    change.model_dump(mode="json") for change in seen.changes.get(guest.label, ())
                ],
            }
            for guest in seen.environment.guests
        ],
        "findings": [finding.model_dump(mode="json") for finding in findings],
    }


def _touched(seen: TemplateSurvey, chosen: Sequence[str]) -> Iterator[Guest]:
    yield seen.template
    if "clones" in chosen:
        yield from seen.clones


def _said(seen: TemplateSurvey, guest: Guest, chosen: Sequence[str]) -> str:
    if guest.label == TEMPLATE:
        return f"template, {_template_words(seen, chosen)}"
    match seen.standing(guest):
        case "absent":
            kind = "full" if guest.clone is not None and guest.clone.full else "linked"
            return f"{kind} clone, to be made"
        case "unfinished":
            return "clone, to be finished"
        case "foreign":
            return "the number is taken by somebody else's guest"
        case _:
            differs = ["differs"] if seen.changes.get(guest.label) else []
            idle = ["does not run"] if seen.is_idle(guest) else []
            return f"clone, {' and '.join(differs + idle) or 'as declared'}"


def _template_words(seen: TemplateSurvey, chosen: Sequence[str]) -> str:
    reason = "" if seen.reason == "as declared" else f" ({seen.reason})"
    match seen.standing(seen.template):
        case "absent":
            return f"to be built{_only(chosen)}{reason}"
        case "unfinished":
            return f"to be finished{_only(chosen)}{reason}"
        case "foreign":
            return "cannot be built: the number is taken by somebody else's guest"
        case _:
            rest = ", alias and older generations to be settled" if seen.unpublished else ""
            return f"there{reason}{rest}"


def _only(chosen: Sequence[str]) -> str:
    """Which stages of the template are asked for, where it is not all of them."""
    asked = [stage for stage in BUILDING if stage in chosen]
    if len(asked) == len(BUILDING):
        return ""
    return f", but only {', '.join(asked)}" if asked else ", but not now"


def _details(seen: TemplateSurvey, guest: Guest) -> list[str]:
    if guest.label == TEMPLATE:
        image = guest.image
        absent = seen.standing(guest) == "absent"
        made_of = [f"image {image.name} on {image.storage}"] if absent and image is not None else []
        return [*made_of, *seen.renewed, *seen.outdated]
    changes = seen.changes.get(guest.label, ())
    return [f"{change}" for change in changes]
