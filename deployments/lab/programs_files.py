"""Programs that work on files and folders."""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable

from deployments.lab.guestfs import FileTree, GuestFileError
from deployments.lab.programs import PROGRAMS, Process, account, program, split_flags


@program("pwd")
def _pwd(process: Process, _args: list[str]) -> int:
    process.say(process.cwd)
    return 0


@program("basename")
def _basename(process: Process, args: list[str]) -> int:
    process.say(posixpath.basename(args[0].rstrip("/")) if args else "")
    return 0


@program("dirname")
def _dirname(process: Process, args: list[str]) -> int:
    process.say(posixpath.dirname(args[0].rstrip("/")) or "." if args else ".")
    return 0


def _each(process: Process, name: str, files: list[str], action: Callable[[str], None]) -> int:
    code = 0
    for file in files:
        try:
            action(process.path(file))
        except GuestFileError as error:
            code = process.complain(f"{name} '{file}': {error}")
    return code


@program("mkdir")
def _mkdir(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args, "m")
    mode = int(flags["m"], 8) if flags.get("m") else 0o755
    tree = process.machine.tree
    name = "mkdir: cannot create directory"
    return _each(
        process, name, files, lambda path: tree.mkdir(path, parents="p" in flags, mode=mode)
    )


@program("touch")
def _touch(process: Process, args: list[str]) -> int:
    tree = process.machine.tree
    name = "touch: cannot touch"
    return _each(process, name, args, lambda path: tree.write(path, b"", append=True))


@program("rm")
def _rm(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args)
    tree = process.machine.tree

    def remove(path: str) -> None:
        if "f" in flags and tree.entry(path) is None:
            return
        tree.remove(path, recursive=bool({"r", "R"} & set(flags)))

    return _each(process, "rm: cannot remove", files, remove)


@program("chmod")
def _chmod(process: Process, args: list[str]) -> int:
    words = [word for word in args if word not in ("-R", "-f")]
    if len(words) < 2:
        return process.complain("chmod: missing operand")
    tree = process.machine.tree

    def change(path: str) -> None:
        found = tree.entry(path)
        tree.chmod(path, _mode(words[0], found.mode if found else 0))

    try:
        return _each(process, "chmod: cannot access", words[1:], change)
    except ValueError:
        return process.complain(f"chmod: invalid mode: '{words[0]}'")


def _mode(text: str, before: int) -> int:
    if re.fullmatch(r"[0-7]{1,4}", text):
        return int(text, 8)
    for part in text.split(","):
        match = re.fullmatch(r"([ugoa]*)([+=-])([rwx]*)", part)
        if match is None:
            raise ValueError(text)
        who, sign, what = match.groups()
        bits = sum({"r": 4, "w": 2, "x": 1}[letter] for letter in set(what))
        for letter in "ugo" if not who or "a" in who else who:
            shift = {"u": 6, "g": 3, "o": 0}[letter]
            if sign == "=":
                before &= ~(7 << shift)
            before = before & ~(bits << shift) if sign == "-" else before | bits << shift
    return before


@program("chown")
def _chown(process: Process, args: list[str]) -> int:
    words = [word for word in args if not word.startswith("-")]
    if len(words) < 2:
        return process.complain("chown: missing operand")
    owner = words[0].partition(":")[0]
    if account(process.machine.tree, owner) is None:
        return process.complain(f"chown: invalid user: '{words[0]}'")
    tree = process.machine.tree
    return _each(process, "chown: cannot access", words[1:], lambda path: tree.chown(path, owner))


@program("ls")
def _ls(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args)
    tree, code = process.machine.tree, 0
    for file in files or ["."]:
        path = process.path(file)
        if tree.entry(path) is None:
            process.complain(f"ls: cannot access '{file}': No such file or directory")
            code = 2
            continue
        folder = tree.is_dir(path) and "d" not in flags
        names = tree.children(path) if folder else [file]
        for name in names:
            if name.startswith(".") and folder and not {"a", "A"} & set(flags):
                continue
            full = posixpath.join(path, name) if folder else path
            process.say(_long_line(tree, full, name) if "l" in flags else name)
    return code


def _long_line(tree: FileTree, path: str, name: str) -> str:
    entry = tree.entry(path)
    assert entry is not None
    letters = "".join(
        letter if entry.mode >> shift & 1 else "-"
        for shift, letter in zip(range(8, -1, -1), "rwxrwxrwx", strict=True)
    )
    kind = "d" if tree.is_dir(path) else "-"
    stamp = time.strftime("%b %d %H:%M", time.gmtime(entry.mtime))
    return f"{kind}{letters} 1 {entry.owner} {entry.owner} {entry.size} {stamp} {name}"


@program("stat")
def _stat(process: Process, args: list[str]) -> int:
    flags, files = split_flags(args, "c")
    code = 0
    for file in files:
        entry = process.machine.tree.entry(process.path(file))
        if entry is None:
            code = process.complain(f"stat: cannot statx '{file}': No such file or directory")
            continue
        facts = {"a": f"{entry.mode:o}", "s": str(entry.size), "U": entry.owner, "n": file}
        form = flags.get("c") or "%n"
        for letter, fact in facts.items():
            form = form.replace(f"%{letter}", fact)
        process.say(form)
    return code


@program("cp", "mv")
def _cp(process: Process, args: list[str]) -> int:
    return _transfer(process, "cp", args)


def _mv(process: Process, args: list[str]) -> int:
    return _transfer(process, "mv", args)


PROGRAMS["mv"] = _mv


def _transfer(process: Process, name: str, args: list[str]) -> int:
    _, files = split_flags(args)
    if len(files) < 2:
        return process.complain(f"{name}: missing destination file operand")
    tree = process.machine.tree
    target = process.path(files[-1])

    def carry(path: str) -> None:
        inside = tree.is_dir(target)
        goal = posixpath.join(target, posixpath.basename(path)) if inside else target
        entry = tree.entry(path)
        tree.write(goal, tree.read(path), mode=entry.mode if entry else None)
        if name == "mv":
            tree.remove(path)

    return _each(process, f"{name}: cannot stat", files[:-1], carry)


@program("test", "[")
def _test(process: Process, args: list[str]) -> int:  # noqa: PLR0911 - a case for each form
    words = [word for word in args if word != "]"]
    if words[:1] == ["!"]:
        return int(not _test(process, words[1:]))
    tree = process.machine.tree
    if len(words) == 3:
        left, operator, right = words
        if operator in ("=", "==", "!="):
            return int((left == right) != (operator != "!="))
        compare = {"-eq": 0, "-ne": 0, "-gt": 1, "-lt": -1, "-ge": 1, "-le": -1}
        if operator in compare:
            order = (int(left) > int(right)) - (int(left) < int(right))
            equal = operator in ("-eq", "-ge", "-le")
            met = (order == 0 and equal) or (order != 0 and order == compare[operator])
            return int(not (order != 0 if operator == "-ne" else met))
    if len(words) == 2:
        flag, operand = words
        if flag in ("-n", "-z"):
            return int(bool(operand) != (flag == "-n"))
        entry = tree.entry(process.path(operand))
        if entry is None:
            return 1
        folder = tree.is_dir(process.path(operand))
        return int(
            not {
                "-d": folder,
                "-f": not folder,
                "-s": entry.size > 0,
                "-x": bool(entry.mode & 0o111),
            }.get(flag, True)
        )
    return int(not (words and words[0]))
