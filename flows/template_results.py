"""What a run of ``template`` says in the end, and how it looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from rich.markup import escape
from rich.table import Table

from blocks.manifest.guest import Guest
from blocks.model import Model
from blocks.words import count
from flows.markdown import folded
from flows.results import GuestResult, guest_result
from flows.template_stages import STAGES
from flows.terminal import STATE_COLOURS
from tasks.fleet import FleetResult, NodeResult
from tasks.template.seen import Standing

Status = Literal["done", "unchanged", "skipped", "failed", "cancelled"]
NOT_ASKED: Final = "not asked for"
"""Detail of a stage that was left out on purpose."""


_KINDS = {"template": "green", "virtual machine": "dim", "not there": "dim"}


class StageLine(Model):
    """How one of the six stages ended; ``seconds`` is wall time."""

    name: str
    status: Status
    seconds: float = 0.0
    detail: str = ""


class TemplateResult(Model):
    """What a run did: its stages in order, the template it is about, and every clone."""

    env: str
    run_id: str
    ok: bool
    name: str
    vmid: int
    node: str
    kind: Literal["template", "virtual machine", "not there"] = "template"
    stages: tuple[StageLine, ...] = ()
    clones: tuple[GuestResult, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    api_calls: int = 0

    @property
    def summary(self) -> str:
        """``4 stages done, 1 skipped; 2 clones done, 1 failed``."""
        words = _counted([line.status for line in self.stages], "stage")
        clones = _counted([clone.state for clone in self.clones], "clone")
        return "; ".join(filter(None, (words, clones))) or "nothing to do"


def template_result(
    env: str,
    run_id: str,
    template: Guest,
    clones: Sequence[Guest],
    fleet: FleetResult,
    *,
    chosen: Sequence[str],
    preflight: StageLine,
    standing: Standing,
    clone_seconds: float,
    errors: Iterable[str] = (),
    warnings: Iterable[str] = (),
    api_calls: int = 0,
) -> TemplateResult:
    """Put together what the stages said.

    ``standing``: of the template before the run. ``clone_seconds``: wall time of all clones.
    """
    nodes = {node.node: node for node in fleet.nodes}
    own = nodes.get(template.label)
    results = tuple(
        guest_result(clone, way, [way] if way else [])
        for clone in (clones if "clones" in chosen else ())
        for way in (nodes.get(clone.label),)
    )
    lines = []
    for name in STAGES:
        if name not in chosen:
            lines.append(StageLine(name=name, status="skipped", detail=NOT_ASKED))
        elif name == "preflight":
            lines.append(preflight)
        elif name == "clones":
            lines.append(_clones_line(results, clone_seconds))
        else:
            lines.append(_line(name, own))
    said = [
        f"{label}: {stage}: {text}"
        for label, node in nodes.items()
        for stage, outcome in node.outcomes.items()
        for text in outcome.warnings
    ]
    failures = tuple(map(str, fleet.failures))
    return TemplateResult(
        env=env,
        run_id=run_id,
        ok=fleet.ok and not (errors := tuple(errors)),
        name=template.name,
        vmid=template.vmid,
        node=template.node,
        kind=_kind(lines, standing),
        stages=tuple(lines),
        clones=results,
        errors=(*failures, *errors),
        warnings=(*warnings, *said),
        api_calls=api_calls,
    )


def _line(name: str, node: NodeResult | None) -> StageLine:
    if node is None:
        return StageLine(name=name, status="unchanged", detail="the template is there")
    if name in node.outcomes:
        outcome = node.outcomes[name]
        return StageLine(
            name=name,
            status=outcome.status,
            seconds=round(outcome.seconds, 3),
            detail=outcome.detail,
        )
    if node.failure is not None and node.failure.stage == name:
        return StageLine(name=name, status="failed", detail=node.failure.words)
    return StageLine(name=name, status="cancelled", detail="a stage before it failed")


def _clones_line(clones: Sequence[GuestResult], seconds: float) -> StageLine:
    if not clones:
        return StageLine(name="clones", status="skipped", detail="none are declared")
    states = [clone.state for clone in clones]
    order: tuple[Status, ...] = ("failed", "cancelled", "done", "unchanged")
    status = next(state for state in order if state in states)
    return StageLine(
        name="clones",
        status=status,
        seconds=0.0 if status == "unchanged" else round(seconds, 3),
        detail=_counted(states, ""),
    )


def _counted(states: Sequence[str], noun: str) -> str:
    found = [(states.count(state), state) for state in STATE_COLOURS]
    parts = [f"{number} {state}" for number, state in found if number]
    if parts and noun:
        first, _, rest = parts[0].partition(" ")
        parts[0] = f"{count(int(first), noun)} {rest}"
    return ", ".join(parts)


def stage_table(result: TemplateResult) -> Table:
    """One row a stage: how it ended and how long it took."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in ("stage", "result", "time", "what"):
        table.add_column(column, justify="right" if column == "time" else "left")
    for line in result.stages:
        coloured = f"[{STATE_COLOURS[line.status]}]{line.status}[/]"
        words = escape(line.detail.partition("\n")[0])
        table.add_row(line.name, coloured, _seconds(line.seconds), words)
    return table


def machine_table(result: TemplateResult) -> Table:
    """One row for the template and for each clone."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in ("guest", "vmid", "node", "address", "result", "time"):
        table.add_column(column, justify="right" if column == "time" else "left")
    table.add_row(
        escape(result.name),
        str(result.vmid),
        result.node,
        "",
        f"[{_KINDS[result.kind]}]{result.kind}[/]",
        "",
    )
    for clone in result.clones:
        colour = STATE_COLOURS.get(clone.state, "green")
        table.add_row(
            escape(clone.label),
            str(clone.vmid),
            clone.node,
            clone.address or "",
            f"[{colour}]{_ending(clone)}[/]",
            _seconds(clone.seconds),
        )
    return table


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.05 else ""


def _ending(clone: GuestResult) -> str:
    return f"failed in {clone.failed_stage}" if clone.failed_stage else clone.state


def _kind(
    lines: Sequence[StageLine], standing: Standing
) -> Literal["template", "virtual machine", "not there"]:
    """What stands under the template's number when the stages have ended."""
    well = {line.name for line in lines if line.status in {"done", "unchanged"}}
    if standing == "ready" or "template" in well:
        return "template"
    return "virtual machine" if standing == "unfinished" or "create" in well else "not there"


def result_markdown(result: TemplateResult) -> str:
    """The result as a Prefect artifact."""
    lines = [
        f"### {result.env}, run {result.run_id}: {result.summary}",
        "",
        "| stage | result | seconds | what |",
        "|---|---|---|---|",
        *(
            f"| {line.name} | {line.status} | {line.seconds:.1f} | {folded(line.detail)} |"
            for line in result.stages
        ),
        "",
        "| guest | vmid | node | address | result | seconds |",
        "|---|---|---|---|---|---|",
        f"| {result.name} | {result.vmid} | {result.node} | | {result.kind} | |",
        *(
            f"| {c.label} | {c.vmid} | {c.node} | {c.address or ''} | {_ending(c)} "
            f"| {c.seconds:.1f} |"
            for c in result.clones
        ),
    ]
    for title, texts in (("Errors", result.errors), ("Warnings", result.warnings)):
        if texts:
            lines += ["", f"#### {title}", "", *(f"- {_flat(text)}" for text in texts)]
    return "\n".join(lines)


def _flat(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
