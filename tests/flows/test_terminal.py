"""What is said reaches whoever listens, whatever became of the streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_that_are_not_there_are_told_before_prefect_stumbles(name: str) -> None:
    said = shell('exec "$@"', "import flows.plan", **{name: "/nowhere/at-all"})

    assert said.returncode == 2
    assert said.stderr == (
        f"error: {name} is '/nowhere/at-all', which is not there\n"
        f"  next: correct it, or unset {name}\n"
    )
