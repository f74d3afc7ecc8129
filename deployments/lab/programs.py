"""Programs of a simulated guest: what a shell script of an installer or an operator calls.

Each takes a process and its arguments and returns an exit code. What is not here does not exist in
a guest: the shell answers "not found".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from deployments.lab.guestfs import FileTree

KERNEL_RELEASE = "6.1.0-lab"
KERNEL_VERSION = "#1 SMP PREEMPT_DYNAMIC"


@dataclass
class Machine:
    """The system that a process runs on. ``power`` is set to ``off`` or ``reboot`` by programs."""

    tree: FileTree
    hostname: str
    addresses: list[str] = field(default_factory=list)
    power: str = ""


@dataclass
class Process:
    """One running program: where it is, who runs it, and its streams."""

    machine: Machine
    cwd: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    stdin: bytes = b""
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)

    def path(self, text: str) -> str:
        """An absolute path."""
        return posixpath.normpath(posixpath.join(self.cwd, text))

    def say(self, text: str) -> None:
        """Print one line."""
        self.out += text.encode() + b"\n"

    def complain(self, text: str) -> int:
        """Print one line to the error stream; 1."""
        self.err += text.encode() + b"\n"
        return 1


Program = Callable[[Process, list[str]], int]
PROGRAMS: dict[str, Program] = {}


def program(*names: str) -> Callable[[Program], Program]:
    """Make a function known under some names."""

    def register(function: Program) -> Program:
        PROGRAMS.update(dict.fromkeys(names, function))
        return function

    return register


def split_flags(args: list[str], valued: str = "") -> tuple[dict[str, str], list[str]]:
    """Short options (``valued`` ones take an argument) and the rest."""
    flags: dict[str, str] = {}
    rest = list(args)
    while rest and re.fullmatch(r"-[A-Za-z0-9].*", rest[0]):
        word = rest.pop(0)[1:]
        while word:
            flag, word = word[0], word[1:]
            if flag in valued:
                flags[flag] = word or (rest.pop(0) if rest else "")
                word = ""
            else:
                flags[flag] = ""
    if rest and rest[0] == "--":
        rest.pop(0)
    return flags, rest


def account(tree: FileTree, name: str) -> list[str] | None:
    """The fields of a user in ``/etc/passwd``."""
    for line in tree.read("/etc/passwd").decode(errors="replace").splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) == 7:
            return fields
    return None
