"""The table of options in docs/running.md is what the command lines take."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from cyclopts import App

RUNNING = Path(__file__).parents[2] / "docs" / "running.md"
COMMANDS = ("plan", "up", "status", "verify", "down", "rollback", "template", "manifest", "iso")


def taken() -> set[tuple[str, str]]:
    """Each command, such as ``template build``, with each option that it takes."""
    found = set()
    for name in COMMANDS:
        app: App = importlib.import_module(f"flows.{name}").app
        parts = [key for key in app if not key.startswith("-")]
        for words, part in [(f"{name} {key}", app[key]) for key in parts] or [(name, app)]:
            for argument in part.assemble_argument_collection(parse_docstring=False):
                if argument.field_info.kind is argument.field_info.KEYWORD_ONLY:
                    found |= {(words, option) for option in argument.names}
    return found


def documented() -> set[tuple[str, str]]:
    """The same, of the table."""
    text = RUNNING.read_text()
    table = text[text.index("| option | of | meaning |") : text.index("## Exit codes")]
    found = set()
    for row in table.splitlines()[2:]:
        if row.startswith("|"):
            options, commands = (cell.strip() for cell in row.split("|")[1:3])
            names = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", options)
            found |= {(each, name) for each in commands.split(", ") for name in names}
    return found


def test_the_table_of_options_names_each_option_of_each_command_and_no_other() -> None:
    assert documented() == taken()


def test_the_table_of_commands_names_each_command() -> None:
    text = RUNNING.read_text()
    table = text[text.index("| command | does |") : text.index("| option | of | meaning |")]
    said = {
        f"{name} {part}"
        for name, parts in re.findall(r"`python -m flows\.(\w+) ([\w\\|]+)", table)
        for part in parts.split("\\|")
    }

    assert {words for words, _ in taken() if " " in words} <= said
    assert {words for words, _ in taken() if " " not in words} <= {w.split()[0] for w in said}
