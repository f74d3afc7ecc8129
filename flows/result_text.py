"""Results as text: for the terminal (rich) and for Prefect artifacts (Markdown)."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from flows.results import GuestResult, UpResult
from flows.terminal import STATE_COLOURS


def result_table(result: UpResult) -> Table:
    """One row a guest: where it is, how to reach it, how each stage ended."""
    table = Table(title=None, header_style="bold", box=None, pad_edge=False)
    for column in ("guest", "vmid", "node", "address", "result", "time", "stages"):
        table.add_column(column, justify="right" if column == "time" else "left")
    for guest in result.guests:
        colour = STATE_COLOURS.get(guest.state, "green")
        table.add_row(
            guest.label,
            str(guest.vmid),
            guest.node,
            guest.address or "",
            f"[{colour}]{guest.state}[/]",
            f"{guest.seconds:.1f} s",
            escape(stage_words(guest)),
        )
    return table


def stage_words(guest: GuestResult) -> str:
    """The stages that did something, or how the guest's way ended."""
    if guest.failed_stage:
        return f"failed in {guest.failed_stage}"
    busy = [stage.name for stage in guest.stages if stage.status == "done"]
    return ", ".join(busy) if busy else "nothing to do"


def result_markdown(result: UpResult) -> str:
    """The result as a Prefect artifact."""
    lines = [
        f"### {result.env}, run {result.run_id}: {result.summary}",
        "",
        "| guest | vmid | node | address | result | seconds | stages |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {g.label} | {g.vmid} | {g.node} | {g.address or ''} | {g.state} | {g.seconds:.1f} "
        f"| {stage_words(g)} |"
        for g in result.guests
    ]
    for title, texts in (
        ("Errors", result.errors),
        ("Warnings", result.warnings),
    ):
        if texts:
            lines += ["", f"#### {title}", "", *(f"- {_flat(text)}" for text in texts)]
    return "\n".join(lines)


def _flat(text: str) -> str:
    return text.replace("\n", " ")
