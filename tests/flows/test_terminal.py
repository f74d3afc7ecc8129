"""What is said reaches whoever listens, whatever became of the streams."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from flows.terminal import show_findings
from tasks.findings import error
from tests.flows.processes import ROOT

RESULT = "from flows.terminal import print_json; print_json({'name': 'caf\\xe9'})"
TABLE = "from flows.terminal import out; out.print('caf\\xe9', soft_wrap=True)"
WIDTH = "from flows.terminal import out, err; print(out.width, err.width)"


def shell(line: str, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program of a few words, with the streams that the shell's line gives it."""
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


HELP = "from flows.plan import app; app(['--help'])"


@pytest.mark.parametrize("program", [RESULT, TABLE, HELP])
def test_a_full_disk_under_standard_output_is_told_in_one_line(program: str) -> None:
    said = shell('exec "$@" >/dev/full', program)

    assert said.returncode == 1
    assert said.stderr == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full"])
def test_closed_streams_take_everything(closed: str) -> None:
    program = f"{RESULT}; from flows.terminal import say; say('on the way')"
    said = shell(f'exec "$@" {closed}', program)

    assert said.returncode == 0
    assert "Traceback" not in said.stderr


def test_letters_that_the_terminal_does_not_know_are_spelt_out() -> None:
    result = shell('exec "$@"', RESULT, PYTHONIOENCODING="ascii")
    line = shell('exec "$@"', TABLE, PYTHONIOENCODING="ascii")

    assert (result.returncode, line.returncode) == (0, 0)
    assert json.loads(result.stdout) == {"name": "café"}
    assert line.stdout == "caf\\xe9\n"


@pytest.mark.parametrize(("asked", "given"), [("10", "40"), ("100", "100"), ("0", "40")])
def test_a_terminal_is_taken_to_be_at_least_40_columns_wide(asked: str, given: str) -> None:
    assert shell('exec "$@"', WIDTH, COLUMNS=asked).stdout.split() == [given, given]


def test_a_table_in_a_pipe_is_neither_folded_nor_filled_up_with_blanks() -> None:
    program = (
        "from flows.terminal import out; from rich.table import Table\n"
        "table = Table('name', 'words', box=None, pad_edge=False)\n"
        "table.add_row('n1', 'long ' * 99 + 'end'); table.add_row('n2', 'short')\n"
        "out.print(table); out.print('half ', end=''); out.print('a line')"
    )
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)

    assert said.stdout.splitlines() == [
        "name  words",
        f"n1    {'long ' * 99}end",
        "n2    short",
        "half a line",
    ]


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_that_are_not_there_are_told_before_prefect_stumbles(name: str) -> None:
    said = shell('exec "$@"', "import flows.plan", **{name: "/nowhere/at-all"})

    assert said.returncode == 2
    assert said.stderr == (
        f"error: {name} is '/nowhere/at-all', which is not there\n"
        f"  next: correct it, or unset {name}\n"
    )


def test_a_file_without_certificates_is_told_before_prefect_stumbles() -> None:
    said = shell('exec "$@"', "import flows.plan", SSL_CERT_FILE=__file__)

    assert said.returncode == 2
    assert said.stderr == (
        f"error: SSL_CERT_FILE is {__file__!r}, which holds no certificates in PEM form\n"
        "  next: name a file of CA certificates in PEM form, or unset SSL_CERT_FILE\n"
    )


def test_a_python_without_the_packages_says_what_to_do() -> None:
    # -S leaves the installed packages out.
    command = [sys.executable, "-S", "-m", "flows.up", "env.yaml"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert said.returncode == 2
    assert said.stderr == (
        f"error: {sys.executable} does not have Proxflow's packages\n"
        "  next: `. .venv/bin/activate` in the clone's folder, after `make setup`\n"
    )


def test_whoever_watches_is_told_which_file_is_read_before_anything_is_imported() -> None:
    ours, theirs = pty.openpty()
    # There is no such command: what is said was said before it was looked for.
    command = [sys.executable, "-m", "flows.none_such", "--yes", __file__]
    subprocess.run(command, cwd=ROOT, stderr=theirs, check=False)
    piped = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    watched = os.read(ours, 1 << 16).decode()
    os.close(ours)
    os.close(theirs)

    assert watched.splitlines()[0] == f"reading {__file__}"
    assert "reading" not in piped.stderr


def test_what_is_found_of_many_guests_in_the_same_words_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = [error("no bridge vmbr9", "did you mean vmbr0?", guest=f"web{n}") for n in range(1, 21)]

    show_findings([*many, error("no bridge vmbr8", guest="db")])

    assert capsys.readouterr().err.splitlines() == [
        "error: web1, web2 and 18 more: no bridge vmbr9; did you mean vmbr0?",
        "error: db: no bridge vmbr8",
    ]
