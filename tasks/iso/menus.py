"""Boot menus of install ISOs, rewritten so that the installer starts without a key pressed.

Three things change, and nothing else: kernel arguments are added to every entry that boots an
installer, the menu's time-out becomes one second, and an entry that would win by time-out and is
not the installation (Debian's speech synthesis, SUSE's "Boot from Hard Disk") does so no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Literal

from tasks.iso.distros import Family

Loader = Literal["grub", "isolinux"]

# Debian: before anything else is asked, copy the answers from whichever CD drive holds them. The
# command must hold neither quotes nor wildcards: it passes GRUB or isolinux, the kernel, and a
# shell script of the installer, and each has its own idea of those.
_FETCH_SEED = (
    "mkdir -p /proxflow /mnt; modprobe -a sr_mod isofs; "
    "for try in 1 2 3 4 5 6 7 8 9; do "
    "for n in 0 1 2 3; do "
    "mount -t iso9660 -o ro /dev/sr$n /mnt && cp /mnt/preseed.cfg /mnt/setup.sh /proxflow; "
    "umount /mnt; done; "
    "test -f /proxflow/preseed.cfg && break; sleep 2; done"
)
KERNEL_ARGS: dict[Family, tuple[str, ...]] = {
    "subiquity": ("autoinstall",),
    "debian-installer": (
        "auto=true",
        "priority=critical",
        "preseed/file=/proxflow/preseed.cfg",
        f"preseed/early_command={_FETCH_SEED}",
    ),
    # linuxrc looks for the seed by itself, once it is started.
    "autoyast": (),
    # Agama looks for a volume OEMDRV itself.
    "agama": (),
}

_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@-]+")
_GRUB_KERNEL = re.compile(r"^\s*(?:linux|linuxefi)\s+\S*(?:vmlinuz\S*|/loader/linux(?=\s|$))")
_ISOLINUX_KERNEL = re.compile(r"^\s*(?:append\b.*\binitrd=|ontimeout\s+\S*vmlinuz)", re.IGNORECASE)
_SPEECH = re.compile(r"^(\s*ontimeout\b.*?)\s+speakup\.synth=soft\b", re.IGNORECASE)
_GRUB_TIMEOUT = re.compile(r"^(\s*set\s+timeout=)[\"']?-?\d+[\"']?(\s*)$")
_GRUB_DEFAULT = re.compile(r"^(\s*set\s+default=).*$")
_ISOLINUX_TIMEOUT = re.compile(r"^(\s*timeout\s+)\d+(\s*)$", re.IGNORECASE)
_ISOLINUX_DISK = re.compile(r"^(\s*default\s+)harddisk(\s*)$", re.IGNORECASE)
_MENUENTRY = re.compile(r"^(?:menuentry|submenu)\b")
_CHOICE = re.compile(r"^(\s*(?:set\s+)?default=)(\S.*?)([ \t]*)$", re.MULTILINE)
_TIMEOUT = re.compile(r"^(\s*(?:set\s+)?timeout=)(-?\d+)([ \t]*)$", re.MULTILINE)
_TITLE = re.compile(r"^\s*menuentry\s+(?P<title>'[^']+'|\"[^\"$]+\")")


def loader_of(path: str) -> Loader | None:
    """Which boot loader reads the file of that path in the image, if one does."""
    parts = PurePosixPath(path.lower())
    if parts.suffix != ".cfg":
        return None
    folders = parts.parts[:-1]
    if parts.stem in {"isolinux", "syslinux"} or {"isolinux", "syslinux"} & {*folders}:
        return "isolinux"
    return "grub" if {"grub", "grub2", "efi"} & {*folders} else None


def rewrite(text: str, loader: Loader, family: Family, args: tuple[str, ...]) -> str:
    """The menu with the arguments in every entry and a short time-out; the same if it has them."""
    edit = _grub if loader == "grub" else _isolinux
    return edit(text, family, args)


def boots_installer(text: str, loader: Loader) -> bool:
    """Whether a menu has an entry that boots an installer's kernel."""
    pattern = _GRUB_KERNEL if loader == "grub" else _ISOLINUX_KERNEL
    return any(pattern.match(line) for line in text.splitlines())


def rewrite_in_place(text: str) -> str | None:
    """A GRUB menu that starts its installer after a second, in exactly as many characters.

    For menus inside an image of a file system, where nothing may move. None where that cannot be:
    no time-out to shorten, or no line that names another default, or one too short for it.
    """
    entries = [line for line in text.splitlines() if _MENUENTRY.match(line)]
    title = next(iter(_choice(text)), "").partition("=")[2].strip()
    wanted = next((str(at) for at, line in enumerate(entries) if title and title in line), None)
    chosen, waits = _CHOICE.search(text), _TIMEOUT.search(text)
    if wanted is None or waits is None or (chosen is None and wanted != "0"):
        return None
    rewritten = _padded(_TIMEOUT, "1", _padded(_CHOICE, wanted, text))
    return rewritten if len(rewritten) == len(text) else None


def _padded(pattern: re.Pattern[str], value: str, text: str) -> str:
    """Another value in every line of a pattern, with blanks for what is left of the old one."""
    return pattern.sub(lambda line: line[1] + value.ljust(len(line[2] + line[3])), text)


def _grub(text: str, family: Family, args: tuple[str, ...]) -> str:
    if family == "autoyast":
        return _installer_chosen(text)
    if family == "agama":
        return _installer_chosen_last(text)
    added = " ".join(_grub_word(word) for word in args)
    lines = _each_line(text, lambda line: _grub_line(line, family, added))
    body = "".join(lines)
    first = next((at for at, line in enumerate(lines) if _MENUENTRY.match(line)), None)
    if first is not None and not re.search(r"^\s*set\s+timeout=", body, re.MULTILINE):
        # Without a time-out GRUB waits for ever.
        lines.insert(first, "set timeout=1\n")
        body = "".join(lines)
    return body


def _installer_chosen(text: str) -> str:
    """The menu with its first entry that boots an installer as the default, whichever it was.

    Set right before the entries, since menus set default and time-out in more than one way.
    """
    chosen = _choice(text)
    lines = text.splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if _TITLE.match(line)), 0)
    if not chosen or lines[max(0, first - 2) : first] == chosen:
        return text
    return "".join([*lines[:first], *chosen, *lines[first:]])


def _installer_chosen_last(text: str) -> str:
    """The same, said at the very end.

    The first entries of Agama's menu stand inside conditions, which do not hold for all firmware.
    GRUB reads the whole menu before it looks for the default.
    """
    chosen = "".join(_choice(text))
    body = text if text.endswith("\n") else f"{text}\n"
    return text if not chosen or body.endswith(chosen) else body + chosen


def _choice(text: str) -> list[str]:
    """The lines that choose the first entry that boots an installer; none if there is none."""
    title = None
    for line in text.splitlines():
        if (found := _TITLE.match(line)) is not None:
            title = found["title"]
        elif _GRUB_KERNEL.match(line) and title is not None:
            return [f"set default={title}\n", "set timeout=1\n"]
    return []


def _grub_line(line: str, family: Family, added: str) -> str:
    if _GRUB_KERNEL.match(line):
        return _with_args(line, added)
    if family == "debian-installer" and _GRUB_DEFAULT.match(line):
        return _GRUB_DEFAULT.sub(r"\g<1>0", line)
    return _GRUB_TIMEOUT.sub(r"\g<1>1\g<2>", line)


def _isolinux(text: str, family: Family, args: tuple[str, ...]) -> str:
    added = " ".join(_isolinux_word(word) for word in args)
    return "".join(_each_line(text, lambda line: _isolinux_line(line, family, added)))


def _isolinux_line(line: str, family: Family, added: str) -> str:
    if family == "autoyast":
        line = _ISOLINUX_DISK.sub(r"\g<1>linux\g<2>", line)
    if _ISOLINUX_KERNEL.match(line):
        return _with_args(_SPEECH.sub(r"\1", line), added)
    # Tenths of a second; 0 would wait for ever.
    return _ISOLINUX_TIMEOUT.sub(r"\g<1>10\g<2>", line)


def _with_args(line: str, added: str) -> str:
    """Arguments before ``---``: what follows it goes into the installed system's boot loader."""
    if added in line:
        return line
    body, mark, rest = line.partition(" ---")
    return f"{body.rstrip()} {added}{' ---' if mark else ''}{rest}"


def _each_line(text: str, edit: Callable[[str], str]) -> list[str]:
    """Edits the lines without their ends, which stay as they are."""
    edited = []
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        edited.append(edit(bare) + line[len(bare) :])
    return edited


def _grub_word(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else f"'{word}'"


def _isolinux_word(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    name, _, value = word.partition("=")
    return f'{name}="{value}"'
