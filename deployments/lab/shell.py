"""A small POSIX shell for simulated guests: lists, pipes, redirections, ``if``, ``for``, functions.

Anything else of the language is a syntax error with exit code 2, never silently skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from deployments.lab import programs_files, programs_system, programs_text
from deployments.lab.guestfs import GuestFileError
from deployments.lab.programs import PROGRAMS, Machine, Process
from deployments.lab.shellcursor import REDIRECTIONS, Cursor
from deployments.lab.shellwords import Lexer, Segment, ShellSyntaxError, Token

# Importing these modules makes their programs known.
_SHELVES = (programs_files, programs_system, programs_text)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_UNMODELLED = ("while", "until", "case", "select", "[[", "trap", "eval", "exec")
_SHELLS = ("sh", "bash", "dash")
PATHS = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin")
_DEPTH = 40


class _Exit(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Result:
    """How a command ended and what it printed."""

    code: int
    out: bytes
    err: bytes


@dataclass
class Shell:
    """A shell that keeps its folder and variables from command to command."""

    machine: Machine
    user: str = "root"
    cwd: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    status: int = 0
    ended: bool = False
    name: str = "sh"
    functions: dict[str, list[Token]] = field(default_factory=dict)
    strict: bool = False
    lenient: bool = False
    depth: int = 0

    def run(self, script: str, stdin: bytes = b"") -> Result:
        """Run a script; ``exit`` sets ``ended``."""
        process = Process(self.machine, self.cwd, self.env, self.user, stdin)
        try:
            self.status = self._list(Cursor(Lexer(script).tokens()), process)
        except ShellSyntaxError as error:
            process.err += f"{self.name}: 1: Syntax error: {error}\n".encode()
            self.status = 2
        except _Exit as left:
            self.status, self.ended = left.code, True
        return Result(self.status, bytes(process.out), bytes(process.err))

    # -- grammar -----------------------------------------------------------------------------

    def _list(self, cursor: Cursor, process: Process, until: tuple[str, ...] = ()) -> int:
        code = self.status
        while True:
            cursor.skip(";", "\n", "&")
            if cursor.done or cursor.word in until or (cursor.operator == ")" and ")" in until):
                return code
            if cursor.operator and cursor.operator not in ("(", *REDIRECTIONS):
                raise ShellSyntaxError(f'"{cursor.operator}" unexpected')
            code = self.status = self._and_or(cursor, process)

    def _and_or(self, cursor: Cursor, process: Process) -> int:
        code = self._pipeline(cursor, process, run=True)
        chained = False
        while cursor.operator in ("&&", "||"):
            chained = True
            wanted = (code == 0) == (cursor.take().operator == "&&")
            cursor.skip("\n")
            done = self._pipeline(cursor, process, run=wanted)
            code = self.status = done if wanted else code
        if code and self.strict and not chained:
            raise _Exit(code)
        return code

    def _pipeline(self, cursor: Cursor, process: Process, *, run: bool) -> int:
        negate = False
        if cursor.word == "!":
            cursor.take()
            negate = True
        stdin, code = process.stdin, 0
        while True:
            inner = Process(self.machine, self.cwd, self.env, self.user, stdin)
            code = self._command(cursor, inner, run=run)
            process.err += inner.err
            if cursor.operator != "|":
                process.out += inner.out
                return int(not code) if negate else code
            cursor.take()
            cursor.skip("\n")
            stdin = bytes(inner.out)

    def _command(self, cursor: Cursor, process: Process, *, run: bool) -> int:
        word = cursor.word
        if word in _UNMODELLED:
            raise ShellSyntaxError(f'"{word}" is not modelled by the lab')
        if cursor.operator == "(" or word == "{":
            closing = ")" if cursor.operator == "(" else "}"
            cursor.take()
            body = cursor.until_closing(closing)
            return self._group(cursor, body, process, run=run, own=closing == ")")
        if word == "if":
            return self._if(cursor, process, run=run)
        if word == "for":
            return self._for(cursor, process, run=run)
        if cursor.is_function():
            name = cursor.take_function()
            if run:
                self.functions[name] = cursor.until_closing("}")
            else:
                cursor.until_closing("}")
            return 0
        return self._simple(cursor, process, run=run)

    def _group(
        self, cursor: Cursor, body: list[Token], process: Process, *, run: bool, own: bool
    ) -> int:
        redirections = cursor.redirections()
        if not run:
            return 0
        shell = replace(self, env=dict(self.env), depth=self.depth + 1) if own else self
        inner = Process(self.machine, self.cwd, shell.env, self.user, process.stdin)
        try:
            code = shell._list(Cursor(body), inner)
        except _Exit as left:
            if not own:
                raise
            code = left.code
        return self._redirect(redirections, inner, process, code)

    def _if(self, cursor: Cursor, process: Process, *, run: bool) -> int:
        code, chosen = 0, False
        while cursor.word in ("if", "elif", "else"):
            kind = cursor.take().plain
            met = True
            if kind != "else":
                condition = cursor.until_word("then")
                if run and not chosen:
                    quiet = replace(self, strict=False)
                    met = quiet._list(Cursor(condition), process) == 0
            body = cursor.until_word("elif", "else", "fi", keep=True)
            if run and met and not chosen:
                chosen = True
                code = self._list(Cursor(body), process)
        if cursor.word != "fi":
            raise ShellSyntaxError('end of file unexpected (expecting "fi")')
        cursor.take()
        return code

    def _for(self, cursor: Cursor, process: Process, *, run: bool) -> int:
        cursor.take()
        name = cursor.take().plain or ""
        values = list(self.arguments)
        if cursor.word == "in":
            cursor.take()
            values = []
            while not cursor.done and not cursor.operator:
                token = cursor.take()
                values += self._expand(token.segments, process) if run else []
        cursor.skip(";", "\n")
        if cursor.word != "do":
            raise ShellSyntaxError('"do" expected')
        cursor.take()
        body = cursor.until_word("done")
        code = 0
        for value in values if run else []:
            self.env[name] = value
            code = self._list(Cursor(body), process)
        return code

    def _simple(self, cursor: Cursor, process: Process, *, run: bool) -> int:
        words: list[Token] = []
        redirections: list[Token] = []
        while not cursor.done:
            if cursor.operator in REDIRECTIONS:
                redirections += cursor.redirections()
            elif cursor.operator:
                break
            else:
                words.append(cursor.take())
        if not words and not redirections:
            raise ShellSyntaxError(f'"{cursor.operator or "newline"}" unexpected')
        if not run:
            return 0
        assigned: dict[str, str] = {}
        while words and (match := _assignment(words[0])):
            name, token = match
            words.pop(0)
            assigned[name] = "".join(self._expand(token, process, split=False))
        arguments = [text for token in words for text in self._expand(token.segments, process)]
        if not arguments:
            self.env.update(assigned)
            return self._redirect(redirections, process, process, 0)
        inner = Process(self.machine, self.cwd, {**self.env, **assigned}, self.user, process.stdin)
        try:
            self._input(redirections, inner)
        except GuestFileError as error:
            process.err += f"{self.name}: 1: cannot open file: {error}\n".encode()
            return 2
        code = self.execute(arguments, inner)
        return self._redirect(redirections, inner, process, code)

    # -- words and files ---------------------------------------------------------------------

    def _expand(
        self, segments: list[Segment], process: Process, *, split: bool = True
    ) -> list[str]:
        fields: list[str] = [""]
        started = False
        for segment in segments:
            if segment.kind == "variable" and segment.text == "@" and segment.quoted:
                for index, value in enumerate(self.arguments):
                    if index:
                        fields.append("")
                    fields[-1] += value
                started = started or bool(self.arguments)
                continue
            value = self._value(segment, process)
            if segment.quoted or segment.kind == "text" or not split:
                fields[-1] += value
                started = started or segment.quoted or bool(value)
                continue
            parts = value.split()
            if value[:1].isspace() and fields[-1]:
                fields.append("")
            for index, part in enumerate(parts):
                if index:
                    fields.append("")
                fields[-1] += part
                started = True
            if parts and value[-1:].isspace():
                fields.append("")
        if split and fields[-1] == "" and (len(fields) > 1 or not started):
            fields.pop()
        return fields

    def _value(self, segment: Segment, process: Process) -> str:
        if segment.kind == "text":
            return segment.text
        if segment.kind == "script":
            if self.depth > _DEPTH:
                raise ShellSyntaxError("too many nested substitutions")
            inner = replace(self, env=dict(self.env), depth=self.depth + 1, strict=False)
            result = inner.run(segment.text)
            self.status = result.code
            process.err += result.err
            return result.out.decode(errors="replace").rstrip("\n")
        special = {"?": str(self.status), "#": str(len(self.arguments)), "$": "1000"}
        special |= {"@": " ".join(self.arguments), "*": " ".join(self.arguments), "0": self.name}
        special |= {str(n): text for n, text in enumerate(self.arguments, 1)}
        return special.get(segment.text) or self.env.get(segment.text) or segment.default

    def _input(self, redirections: list[Token], process: Process) -> None:
        for token in redirections:
            if token.operator in ("<<", "<<-"):
                text = "".join(self._expand(token.document, process, split=False))
                process.stdin = text.encode()
            elif token.operator == "<":
                name = "".join(self._expand(token.segments, process))
                process.stdin = self.machine.tree.read(process.path(name))

    def _redirect(
        self, redirections: list[Token], inner: Process, outer: Process, code: int
    ) -> int:
        out, err = bytes(inner.out), bytes(inner.err)
        if inner is outer:
            inner.out.clear()
            inner.err.clear()
        for token in redirections:
            name = "".join(self._expand(token.segments, outer)) if token.segments else ""
            if token.operator in (">", ">>", "&>"):
                data = out + (err if token.operator == "&>" else b"")
                err = b"" if token.operator == "&>" else err
                out = b""
                code = self._store(name, data, token.operator == ">>", outer) or code
            elif token.operator in ("2>", "2>>"):
                data, err = err, b""
                if name == "&1":
                    out += data
                else:
                    code = self._store(name, data, token.operator == "2>>", outer) or code
            elif token.operator == ">&":
                err, out = (err + out, b"") if name == "2" else (err, out)
        outer.out += out
        outer.err += err
        return code

    def _store(self, name: str, data: bytes, append: bool, process: Process) -> int:
        if name == "/dev/null":
            return 0
        path = Process(self.machine, self.cwd).path(name)
        try:
            self.machine.tree.write(path, data, append=append)
        except GuestFileError as error:
            text = str(error).replace("No such file or directory", "Directory nonexistent")
            process.err += f"{self.name}: 1: cannot create {name}: {text}\n".encode()
            return 2
        return 0

    # -- commands ----------------------------------------------------------------------------

    def execute(  # noqa: PLR0911 - one branch for each of the shell's own commands
        self, arguments: list[str], process: Process
    ) -> int:
        """Run one command by name: a shell's own, a function, or a program."""
        name, rest = arguments[0], arguments[1:]
        if name in self.functions:
            before, self.arguments = self.arguments, rest
            try:
                return self._list(Cursor(self.functions[name]), process)
            finally:
                self.arguments = before
        if name in ("exit", "return", "logout"):
            raise _Exit(int(rest[0]) if rest and rest[0].isdigit() else self.status)
        if name == "cd":
            return self._cd(rest, process)
        if name == "export":
            pairs = (word.partition("=") for word in rest if "=" in word)
            self.env.update((name, value) for name, _, value in pairs)
            return 0
        if name == "set":
            self.strict = any(re.fullmatch(r"-[a-z]*e[a-z]*", word) for word in rest)
            return 0
        if name in ("command", "type", "which") and rest:
            wanted = [word for word in rest if not word.startswith("-")]
            if name == "command" and not {"-v", "-V"} & set(rest):
                return self.execute(wanted, process)
            return self._which(wanted, process)
        return self._program(name, rest, process)

    def _cd(self, rest: list[str], process: Process) -> int:
        path = process.path(rest[0] if rest else self.env.get("HOME", "/"))
        if not self.machine.tree.is_dir(path):
            process.complain(f"{self.name}: 1: cd: can't cd to {path}")
            return 2
        self.cwd = path
        return 0

    def _which(self, names: list[str], process: Process) -> int:
        for name in names:
            if name not in PROGRAMS and name not in _SHELLS:
                return 127
            process.say(f"/usr/bin/{name}")
        return 0

    def _program(self, name: str, rest: list[str], process: Process) -> int:
        plain = program_name(name)
        if plain in _SHELLS:
            return self._subshell(rest, process)
        if plain == "env":
            assigned = [word.split("=", 1) for word in rest if "=" in word]
            return self.execute(rest[len(assigned) :] or ["true"], process)
        if plain in ("curtin", "in-target", "chroot"):
            words = rest[rest.index("--") + 1 :] if "--" in rest else rest
            words = [word for word in words if word != "/target"]
            return self.execute(words or ["true"], process)
        if plain in ("sudo", "nohup"):
            words = [word for word in rest if not word.startswith("-")]
            return self.execute(words or ["true"], process)
        known = PROGRAMS.get(plain or "")
        if known is None:
            return self._script_file(name, rest, process)
        return known(process, rest)

    def _subshell(self, rest: list[str], process: Process) -> int:
        words = list(rest)
        inner = Shell(
            self.machine,
            self.user,
            self.cwd,
            dict(process.env),
            depth=self.depth + 1,
            lenient=self.lenient,
        )
        while words and words[0].startswith("-"):
            flag = words.pop(0)
            inner.strict = inner.strict or "e" in flag
            if "c" in flag:
                script = words.pop(0) if words else ""
                inner.name, inner.arguments = words[0] if words else "sh", words[1:]
                break
        else:
            script = process.stdin.decode(errors="replace")
            if words:
                try:
                    script = self.machine.tree.read(process.path(words[0])).decode()
                except GuestFileError as error:
                    process.complain(f"{self.name}: 0: cannot open {words[0]}: {error}")
                    return 127
                inner.arguments = words[1:]
        result = inner.run(script, process.stdin)
        process.out += result.out
        process.err += result.err
        return result.code

    def _script_file(self, name: str, rest: list[str], process: Process) -> int:
        entry = self.machine.tree.entry(process.path(name)) if "/" in name else None
        if entry is None and self.lenient:
            return 0
        if entry is None:
            process.complain(f"{self.name}: 1: {name}: not found")
            return 127
        if not entry.mode & 0o111:
            process.complain(f"{self.name}: 1: {name}: Permission denied")
            return 126
        return self._subshell([name, *rest], process)


def program_name(name: str) -> str | None:
    """The bare name of a program given by name or by one of the usual paths."""
    folder, slash, bare = name.rpartition("/")
    return bare if not slash or folder in PATHS else None


def is_program(machine: Machine, name: str) -> bool:
    """Whether something of that name can be executed."""
    bare = program_name(name)
    if bare in PROGRAMS or bare in (*_SHELLS, "env", "sudo", "nohup"):
        return True
    entry = machine.tree.entry(name) if name.startswith("/") else None
    return entry is not None and bool(entry.mode & 0o111)


def run_program(machine: Machine, arguments: list[str], stdin: bytes = b"") -> Result:
    """Run one program with its arguments, without a shell around it."""
    shell = Shell(machine, env={"HOME": "/root", "PATH": ":".join(PATHS)})
    process = Process(machine, "/", shell.env, "root", stdin)
    try:
        code = shell._program(arguments[0], arguments[1:], process)
    except _Exit as left:
        code = left.code
    return Result(code, bytes(process.out), bytes(process.err))


def _assignment(token: Token) -> tuple[str, list[Segment]] | None:
    first = token.segments[0] if token.segments else None
    if first is None or first.kind != "text" or first.quoted:
        return None
    match = _ASSIGNMENT.match(first.text)
    if match is None:
        return None
    rest = Segment("text", first.text[match.end() :], False)
    return match.group(1), [rest, *token.segments[1:]]
