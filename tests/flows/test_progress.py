"""The board: what it says stays readable, however many threads speak at once."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from flows import progress
from flows.progress import Board
from tasks.stage import Event

HEIGHT = 50
_PIECE = re.compile(r"\x1b\[(?P<number>[0-9;?]*)(?P<verb>[A-Za-z])|(?P<text>[^\x1b])")


def shown(written: str) -> list[str]:
    """The lines that a terminal shows in the end, with those that scrolled away."""
    lines, row, column = [""], 0, 0
    for piece in _PIECE.finditer(written):
        verb, text = piece["verb"], piece["text"]
        if verb == "A":
            row = max(0, len(lines) - HEIGHT, row - int(piece["number"] or 1))
        elif verb == "K":
            lines[row] = ""
        elif text == "\r":
            column = 0
        elif text == "\n":
            row, column = row + 1, 0
            lines.extend([""] * (row + 1 - len(lines)))
        elif text:
            lines[row] = f"{lines[row][:column]:<{column}}{text}{lines[row][column + 1 :]}"
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


def terminal() -> Console:
    """A console that believes in its terminal."""
    return Console(
        file=StringIO(), force_terminal=True, width=100, height=HEIGHT, highlight=False, _environ={}
    )


def written(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.fixture
def hasty_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads take turns as often as they can: what may come between comes between."""
    monkeypatch.setattr(progress, "_REFRESH", 0.002)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty_threads")
def test_no_line_is_lost_where_many_threads_end_stages_beside_the_live_table() -> None:
    console = terminal()
    nodes = [f"n{number}" for number in range(8)]
    stages = [f"s{number}" for number in range(25)]

    def work(node: str) -> None:
        for stage in stages:
            board(Event(node=node, stage=stage, state="started"))
            board(Event(node=node, stage=stage, state="done"))

    with Board(console) as board:
        threads = [threading.Thread(target=work, args=(node,)) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    told = [tuple(line.split()[1:4]) for line in shown(written(console))]
    assert sorted(told) == sorted((node, stage, "done") for node in nodes for stage in stages)


def test_rows_of_what_did_not_end_are_erased_when_the_board_closes() -> None:
    console = terminal()

    with Board(console) as board:
        for number in range(60):
            board(Event(node=f"n{number}", stage="wait", state="started"))
        board(Event(node="n0", stage="wait", state="failed", detail="too late"))

    lines = shown(written(console))
    assert len(lines) == 1
    assert lines[0].endswith("too late")
