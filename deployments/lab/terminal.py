"""A guest's terminal line: login dialogue, line editing, and the shell behind it.

The line lives as long as the guest runs; whoever connects finds it as the last one left it.
Nothing here was recorded; it follows the ways of agetty, login and a Debian root shell.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deployments.lab.accounts import check_password, shadow_hash
from deployments.lab.programs import KERNEL_RELEASE, KERNEL_VERSION, account
from deployments.lab.shell import PATHS, Shell

if TYPE_CHECKING:
    from deployments.lab.cluster import Lab
    from deployments.lab.guestos import Run

_LIMIT_BYTES = 64 << 10
_INTERRUPT, _END, _ERASE, _KILL = 0x03, 0x04, (0x08, 0x7F), 0x15


@dataclass
class Line:
    """One terminal line of a guest. ``output`` waits for a reader; ``changed`` tells of more."""

    lab: Lab
    vmid: int
    began: float
    tty: str
    columns: int = 80
    rows: int = 24
    output: bytearray = field(default_factory=bytearray)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: bool = False
    _typed: bytearray = field(default_factory=bytearray)
    _user: str = ""
    _state: str = ""
    _shell: Shell | None = None
    _login: dict[str, Any] | None = None
    _last: int = 0
    _busy: asyncio.Task[None] | None = None
    _queue: bytearray = field(default_factory=bytearray)

    # -- output ------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        self.output += data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        del self.output[: max(0, len(self.output) - _LIMIT_BYTES)]
        self.changed.set()

    def read(self) -> bytes:
        """What has been printed since the last look."""
        data = bytes(self.output)
        self.output.clear()
        self.changed.clear()
        return data

    # -- states ------------------------------------------------------------------------------

    def open(self) -> None:
        """The guest's getty begins to listen."""
        self._shell, self._user = None, ""
        run = self._run()
        if run is None:
            return
        name = self._release(run)
        self._write(f"\n{name} {self._host(run)} {self.tty}\n\n".encode())
        self._ask_name()

    def open_shell(self) -> None:
        """A root shell without a login, as ``lxc-attach`` gives it."""
        self._start_shell("root")

    def _run(self) -> Run | None:
        run = self.lab.life.running(self.vmid)
        return run if run is not None and run.booted == self.began else None

    def _host(self, run: Run) -> str:
        tree = self.lab.life.disks.open(run)
        return tree.read("/etc/hostname").decode(errors="replace").strip().partition(".")[0]

    def _release(self, run: Run) -> str:
        text = self.lab.life.disks.open(run).read("/etc/os-release").decode(errors="replace")
        pairs = dict(line.partition("=")[::2] for line in text.splitlines())
        return pairs.get("PRETTY_NAME", "Linux").strip('"')

    def _ask_name(self) -> None:
        run = self._run()
        self._state = "name"
        if run is not None:
            self._write(f"{self._host(run)} login: ".encode())

    def _ask_password(self) -> None:
        self._state = "password"
        self._write(b"Password: ")

    def _start_shell(self, user: str) -> None:
        run = self._run()
        if run is None:
            return
        machine = self.lab.life.disks.machine(run)
        fields = account(machine.tree, user)
        home = fields[5] if fields else "/"
        env = {"HOME": home, "USER": user, "PATH": ":".join(PATHS), "TERM": "linux"}
        self._shell = Shell(machine, user, home, env, name="-bash")
        self._login = self.lab.life.note_login(self.vmid, user)
        self._user, self._state = user, "shell"
        self._prompt()

    def _prompt(self) -> None:
        run = self._run()
        if run is None or self._shell is None:
            return
        home = self._shell.env.get("HOME", "/")
        cwd = self._shell.cwd
        shown = "~" + cwd[len(home) :] if cwd == home or cwd.startswith(f"{home}/") else cwd
        mark = "#" if self._user == "root" else "$"
        self._write(f"{self._user}@{self._host(run)}:{shown}{mark} ".encode())

    # -- input -------------------------------------------------------------------------------

    def type(self, data: bytes) -> None:
        """Keys pressed by whoever is connected."""
        self._queue += data
        self._drain()

    def _drain(self) -> None:
        while self._queue and (self._busy is None or self._busy.done()):
            self._key(self._queue.pop(0))

    def _key(self, key: int) -> None:
        if key in (0x0D, 0x0A):
            # A newline behind a return is the same key to a terminal that sends both.
            if key == 0x0A and self._last == 0x0D:
                self._last = 0
                return
            self._last = key
            line = bytes(self._typed).decode(errors="replace")
            self._typed.clear()
            self._write(b"\n")
            self._enter(line)
            return
        self._last = key
        if key == _INTERRUPT:
            self._typed.clear()
            self._write(b"^C\n")
            self._again()
        elif key == _END:
            if not self._typed:
                self._enter("logout" if self._state == "shell" else "")
        elif key in _ERASE:
            if self._typed:
                self._typed.pop()
                self._echo(b"\b \b")
        elif key == _KILL:
            self._echo(b"\b \b" * len(self._typed))
            self._typed.clear()
        elif key >= 0x20 or key == 0x09:
            self._typed.append(key)
            self._echo(bytes([key]))

    def _echo(self, data: bytes) -> None:
        if self._state != "password":
            self.output += data
            self.changed.set()

    def _again(self) -> None:
        if self._state == "shell":
            self._prompt()
        else:
            self._ask_name()

    def _enter(self, line: str) -> None:
        if self._state == "name":
            self._user = line.strip()
            if self._user:
                self._ask_password()
            else:
                self._ask_name()
        elif self._state == "password":
            self._busy = asyncio.create_task(self._check(self._user, line))
        elif self._state == "shell":
            self._execute(line)

    async def _check(self, user: str, password: str) -> None:
        run = self._run()
        if run is None:
            return
        stored = shadow_hash(self.lab.life.disks.open(run), user)
        if stored and check_password(stored, password):
            self._write(
                f"Linux {self._host(run)} {KERNEL_RELEASE} {KERNEL_VERSION} x86_64\n".encode()
            )
            self._start_shell(user)
        else:
            await self.lab.clock.work("login")
            self._write(b"\nLogin incorrect\n")
            self._ask_name()
        asyncio.get_running_loop().call_soon(self._drain)

    def _execute(self, line: str) -> None:
        run = self._run()
        shell = self._shell
        if run is None or shell is None:
            return
        shell.machine = self.lab.life.disks.machine(run)
        result = shell.run(line)
        self.lab.life.disks.close(run, shell.machine.tree)
        self._write(result.out + result.err)
        if shell.machine.power:
            self.lab.life.power_from_inside(run, shell.machine.power)
        if shell.ended:
            self._log_out()
        else:
            self._prompt()

    def _log_out(self) -> None:
        if self._login is not None:
            self.lab.life.note_logout(self.vmid, self._login)
            self._login = None
        if self.tty == "shell":
            self.hung_up = True
            self.changed.set()
        else:
            self._write(b"logout\n")
            self.open()


class Lines:
    """The terminal lines of all guests that run."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._known: dict[tuple[int, str], Line] = {}

    def get(self, run: Run, tty: str) -> Line:
        """A line of a running guest; opened when somebody looks for the first time."""
        line = self._known.get((run.vmid, tty))
        if line is None or line.began != run.booted:
            line = Line(self._lab, run.vmid, run.booted, tty)
            self._known[run.vmid, tty] = line
            line.open()
        return line

    def shell(self, run: Run) -> Line:
        """A line of its own with a root shell."""
        line = Line(self._lab, run.vmid, run.booted, "shell")
        line.open_shell()
        return line
