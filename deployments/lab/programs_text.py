"""Programs that read and print text."""

from __future__ import annotations

import hashlib
import re

from deployments.lab.guestfs import GuestFileError
from deployments.lab.programs import PROGRAMS, Process, program, split_flags


def _contents(process: Process, name: str, files: list[str]) -> tuple[bytes, int]:
    """The joined content of files, or of the input where none is named."""
    joined, code = b"", 0
    for file in files or ["-"]:
        try:
            tree = process.machine.tree
            joined += process.stdin if file == "-" else tree.read(process.path(file))
        except GuestFileError as error:
            code = process.complain(f"{name}: {file}: {error}")
    return joined, code


@program("true", ":", "sync", "sleep", "restorecon", "udevadm", "export", "umask", "set")
def _true(_process: Process, _args: list[str]) -> int:
    return 0


@program("false")
def _false(_process: Process, _args: list[str]) -> int:
    return 1


@program("echo")
def _echo(process: Process, args: list[str]) -> int:
    newline, escapes = True, False
    while args and re.fullmatch(r"-[neE]+", args[0]):
        newline, escapes = newline and "n" not in args[0], escapes or "e" in args[0]
        args = args[1:]
    text = " ".join(args)
    process.out += (_unescape(text) if escapes else text).encode() + (b"\n" if newline else b"")
    return 0


def _unescape(text: str) -> str:
    known = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "0": "\0"}
    return re.sub(r"\\([ntra\\0])", lambda m: known[m.group(1)], text)


@program("printf")
def _printf(process: Process, args: list[str]) -> int:
    if not args:
        process.complain("printf: usage: printf format [arguments]")
        return 2
    form, values = _unescape(args[0]), args[1:]
    first = True
    while first or values:
        first = False
        before = len(values)

        def take(match: re.Match[str]) -> str:
            if match.group(0) == "%%":
                return "%"
            value = values.pop(0) if values else ""
            return str(int(value or "0")) if match.group(1) == "d" else value

        process.out += re.sub(r"%(?:%|([sd]))", take, form).encode()
        if len(values) == before:
            break
    return 0


@program("cat")
def _cat(process: Process, args: list[str]) -> int:
    data, code = _contents(process, "cat", args)
    process.out += data
    return code


@program("head", "tail")
def _head(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args, "n")
    data, code = _contents(process, "head", files)
    lines = data.splitlines(keepends=True)
    process.out += b"".join(lines[: int(flags.get("n") or 10)])
    return code


def _tail(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args, "n")
    data, code = _contents(process, "tail", files)
    process.out += b"".join(data.splitlines(keepends=True)[-int(flags.get("n") or 10) :])
    return code


PROGRAMS["tail"] = _tail


@program("wc")
def _wc(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args)
    data, code = _contents(process, "wc", files)
    counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data)}
    wanted = [counts[key] for key in "lwc" if key in flags] or list(counts.values())
    process.say(" ".join(str(one) for one in [*wanted, *files]))
    return code


@program("cut")
def _cut(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args, "df")
    data, code = _contents(process, "cut", files)
    for line in data.decode(errors="replace").splitlines():
        parts = line.split(flags.get("d") or "\t")
        fields = [int(number) for number in flags.get("f", "1").split(",")]
        process.say((flags.get("d") or "\t").join(parts[n - 1] for n in fields if n <= len(parts)))
    return code


@program("grep")
def _grep(process: Process, args: list[str]) -> int:
    flags, rest = split_flags(args, "e")
    pattern = flags["e"] if "e" in flags else rest.pop(0) if rest else ""
    data, code = _contents(process, "grep", rest)
    expression = re.escape(pattern) if "F" in flags else pattern
    matcher = re.compile(expression, re.IGNORECASE if "i" in flags else 0)
    test = matcher.fullmatch if "x" in flags else matcher.search
    lines = data.decode(errors="replace").splitlines()
    found = [line for line in lines if bool(test(line)) != ("v" in flags)]
    if "c" in flags:
        process.say(str(len(found)))
    elif "q" not in flags:
        for line in found:
            process.say(line)
    return 2 if code and "s" not in flags and not found else int(not found)


@program("sort")
def _sort(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args)
    data, code = _contents(process, "sort", files)
    lines = sorted(data.splitlines(), reverse="r" in flags)
    lines = list(dict.fromkeys(lines)) if "u" in flags else lines
    process.out += b"".join(line + b"\n" for line in lines)
    return code


@program("tee")
def _tee(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args)
    process.out += process.stdin
    for file in files:
        try:
            process.machine.tree.write(process.path(file), process.stdin, append="a" in flags)
        except GuestFileError as error:
            return process.complain(f"tee: {file}: {error}")
    return 0


@program("base64")
def _base64(process: Process, args: list[str]) -> int:
    import base64

    flags, files = split_flags(args, "w")
    data, code = _contents(process, "base64", files)
    process.out += base64.b64decode(data) if "d" in flags else base64.b64encode(data) + b"\n"
    return code


@program("sha256sum")
def _sha256sum(process: Process, args: list[str]) -> int:
    code = 0
    for file in args or ["-"]:
        data, failed = _contents(process, "sha256sum", [file])
        if not failed:
            process.say(f"{hashlib.sha256(data).hexdigest()}  {file}")
        code |= failed
    return code
