"""The terminal: where things are said, how faults are shown, which exit code they mean."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, TextIO

from cyclopts import App
from rich.console import Console

from blocks.manifest.environment import UnknownGuest
from blocks.manifest.faults import ManifestError
from blocks.proxmox.errors import BadSettings, ProxmoxError
from tasks.findings import Finding, PreflightFailed
from tasks.masking import masked

# Results go to standard output, everything said on the way to standard error.
# Where no terminal says how wide it is, nothing is folded: programs read it, or an editor shows it.
_ENDLESS = 100_000
# Help is text for people wherever it goes, in frames as wide as this.
_HELP = 160
# Narrower tables have no room for anything but dots.
_NARROW = 40
_TRAILING = re.compile(r" +\n")


class Plain(Console):
    """What is no terminal gets no blanks at the end of a line, which tables are filled up with."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(_TRAILING.sub("\n", captured.get()))
        self.file.flush()


class Results(Plain):
    """Standard output. Where it takes nothing more, the command says so and fails."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints. Exits 1."""
        try:
            super().print(*objects, **options)
        except OSError as error:
            _unwritable(error)


class Talk(Plain):
    """Standard error. Where it takes nothing more, a run goes on without it."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints."""
        with suppress(OSError):
            super().print(*objects, **options)


def _open_stream(stream: TextIO | None) -> TextIO:
    """A stream that never fails on a character; one that the caller has closed takes everything."""
    if stream is None:
        return Path(os.devnull).open("w")
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _width(stream: TextIO, elsewhere: int = _ENDLESS) -> int | None:
    """Columns, None for those of the terminal; ``elsewhere`` where there is none."""
    if not stream.isatty() and "COLUMNS" not in os.environ:
        return elsewhere
    return _NARROW if Console(file=stream).width < _NARROW else None


sys.stdout, sys.stderr = _open_stream(sys.stdout), _open_stream(sys.stderr)
out = Results(highlight=False, width=_width(sys.stdout))
err = Talk(stderr=True, highlight=False, width=_width(sys.stderr))

# How the states of stages and guests look, in this order where they are counted.
STATE_COLOURS = {
    "done": "green",
    "unchanged": "dim",
    "skipped": "dim",
    "failed": "red",
    "cancelled": "yellow",
    "waiting": "cyan",
    "working": "cyan",
}

POLICY = "PROXFLOW_CONFIRM"
ADVICE = "PROXFLOW_ADVICE"


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    DRIFT = 3


def say(text: str) -> None:
    """A line of progress or advice."""
    err.print(text, soft_wrap=True, markup=False)


def command_line(name: str, doc: str | None) -> App:
    """The command line of ``python -m flows.NAME``; its help goes where results go."""
    return App(
        name=f"python -m flows.{name}",
        help=doc,
        help_format="plaintext",
        version_flags=[],
        console=Results(highlight=False, width=_width(sys.stdout, _HELP)),
        error_console=Talk(stderr=True, highlight=False, width=_width(sys.stderr, _HELP)),
    )


def advise(*lines: str) -> None:
    """What to do next, to be copied: never wrapped, nothing in it is markup.

    With ``PROXFLOW_ADVICE=never`` nothing is said: what calls the command knows better what to do.
    """
    if os.environ.get(ADVICE) == "never":
        return
    for number, line in enumerate(lines):
        head = "        " if number else "  next: "
        out.print(head + line, soft_wrap=True, markup=False)


def command(name: str, manifest: object, cluster: str | None) -> str:
    """A command of ours to be copied: for the same manifest on the same cluster."""
    chosen = f" --cluster {shlex.quote(cluster)}" if cluster else ""
    return f"python -m flows.{name} {shlex.quote(str(manifest))}{chosen}"


def fail(message: str, advice: str | None = None, *, code: Exit = Exit.FAILED) -> NoReturn:
    """Say what went wrong and what to do, and leave."""
    err.print("[red]error:[/] ", end="")
    err.print(message, soft_wrap=True, markup=False)
    if advice:
        err.print(f"  next: {advice}", soft_wrap=True, markup=False)
    raise SystemExit(int(code))


def show_notices(notices: Sequence[str]) -> None:
    """What the operator should know about manifest and connection, one line each."""
    for notice in notices:
        err.print("[yellow]warning:[/] ", end="")
        err.print(notice, soft_wrap=True, markup=False)


def show_findings(findings: Sequence[Finding]) -> None:
    """Findings, one line each, errors in red and warnings in yellow.

    What is found of more than three guests in the same words is one line.
    """
    _shown.update(map(str, findings))
    alike: dict[Finding, list[str | None]] = {}
    for finding in findings:
        alike.setdefault(finding.model_copy(update={"guest": None}), []).append(finding.guest)
    for finding, guests in alike.items():
        more = f"{guests[0]}, {guests[1]} and {len(guests) - 2} more" if len(guests) > 3 else ""
        few = [more] if more else guests
        for guest in few:
            colour = "red" if finding.severity == "error" else "yellow"
            err.print(f"[{colour}]{finding.severity}:[/] ", end="")
            said = finding.model_copy(update={"guest": guest})
            err.print(masked(str(said)), soft_wrap=True, markup=False)


def show_new_findings(findings: Sequence[Finding]) -> None:
    """The findings that the command line around this flow has not shown before its question."""
    show_findings([finding for finding in findings if str(finding) not in _shown])


_shown: set[str] = set()


@contextmanager
def faults_shown() -> Iterator[None]:
    """Turn what an operator can put right into a message and an exit code; no traceback."""
    _shown.clear()
    try:
        yield
    except ManifestError as error:
        count = len(error.faults)
        for fault in error.faults:
            say(str(fault))
        fail(f"{count} fault{'s' if count != 1 else ''} in the manifest", code=Exit.BAD_INPUT)
    except UnknownGuest as error:
        fail(str(error), code=Exit.BAD_INPUT)
    except PreflightFailed as error:
        show_findings(error.findings)
        fail("what is declared cannot be had here; nothing was changed", code=Exit.BAD_INPUT)
    except BadSettings as error:
        fail(error.message, error.advice, code=Exit.BAD_INPUT)
    except ProxmoxError as error:
        fail(error.message, error.advice)
    except KeyboardInterrupt:
        fail("interrupted", code=Exit.FAILED)


def will_ask(*, yes: bool) -> bool:
    """Whether :func:`confirm` asks."""
    return not yes and os.environ.get(POLICY) != "never"


def confirm(question: str, *, yes: bool, ask: Callable[[str], str] = input) -> None:
    """Go on only with a yes, from the terminal, the command line or the policy.

    Without a terminal nobody can be asked: that is refused, unless ``PROXFLOW_CONFIRM=never``
    says that this place needs no asking. Exits 2 on refusal and 1 on a no.
    """
    if not will_ask(yes=yes):
        return
    if not sys.stdin.isatty():
        fail(
            f"{question} There is no terminal to ask.",
            f"say --yes, or set {POLICY}=never where nobody is ever to be asked",
            code=Exit.BAD_INPUT,
        )
    err.print(f"{question} [bold]\\[y/N][/] ", end="")
    try:
        answer = ask("")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in {"y", "yes"}:
        fail("not confirmed; nothing was changed")


def print_json(document: Any) -> None:
    """A result for programs, on standard output. Exits 1 where that takes nothing more."""
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    print_text(json.dumps(document, indent=2, ensure_ascii=plain) + "\n")


def print_text(text: str) -> None:
    """A document on standard output, as it is. Exits 1 where that takes nothing more."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _unwritable(error)


def _unwritable(error: OSError) -> NoReturn:
    # What is still in the buffer goes nowhere, or the interpreter fails on it once more.
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    fail(f"cannot write to standard output: {error.strerror or error}")
