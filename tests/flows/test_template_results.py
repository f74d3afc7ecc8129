"""What a template's run says in the end: tables on the terminal and in Prefect's artifacts."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from flows.markdown import folded
from flows.results import GuestResult
from flows.template_results import (
    StageLine,
    TemplateResult,
    machine_table,
    result_markdown,
    stage_table,
)

FAILED = "web2: start failed: no memory\n  next: give the node more"
LONG = ", ".join(f"setting{number}" for number in range(20))


def result() -> TemplateResult:
    return TemplateResult(
        env="golden",
        run_id="0123abcd",
        ok=False,
        name="golden-1",
        vmid=9000,
        node="pve1",
        stages=(
            StageLine(name="image", status="unchanged"),
            StageLine(name="configure", status="done", seconds=4.46, detail=LONG),
            StageLine(name="clones", status="failed", seconds=3, detail="1 unchanged, 1 failed"),
        ),
        clones=(
            GuestResult(label="web1", vmid=9101, node="pve1", state="unchanged"),
            GuestResult(
                label="web2",
                vmid=9102,
                node="pve1",
                state="failed",
                failed_stage="start",
                error=FAILED,
                seconds=2,
            ),
        ),
        errors=(FAILED,),
    )


def shown(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_table_of_guests_names_the_stage_in_which_a_clone_failed() -> None:
    lines = shown(machine_table(result()))

    assert lines[-1].split() == ["web2", "9102", "pve1", "failed", "in", "start", "2.0", "s"]


def test_what_took_no_time_has_no_time_in_the_tables() -> None:
    assert "0.0 s" not in "\n".join(
        [*shown(machine_table(result())), *shown(stage_table(result()))]
    )


def test_long_words_are_folded_in_the_artifact_so_that_all_can_be_seen() -> None:
    row = next(line for line in result_markdown(result()).splitlines() if "| configure" in line)

    cell = row.split(" | ")[-1].removesuffix(" |")
    assert max(map(len, cell.split("<br>"))) <= 80
    assert cell.replace("<br>", " ") == LONG


def test_the_artifact_says_every_error_on_one_line() -> None:
    assert "- web2: start failed: no memory   next: give the node more" in result_markdown(result())


def test_a_cell_keeps_its_lines_and_ends_no_column() -> None:
    assert folded("one\n  two | three") == r"one<br>  two \| three"
