"""Public SSH keys, as text or from files."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from pathlib import Path

from blocks.manifest.faults import Fault
from blocks.manifest.tree import Item
from blocks.paths import named_path, read_small
from blocks.units import MIB

_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_KEY = re.compile(rf"(?:^|\s)(?P<type>{'|'.join(map(re.escape, _TYPES))})\s+(?P<data>\S+)")
_LOOKS_LIKE_KEY = re.compile(r"(?:^|\s)(?:ssh-|ecdsa-|sk-)\S+\s+AAAA")
_PRIVATE = re.compile(r"BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File")
PRIVATE_ADVICE = "name its public half, which ends in .pub; and take the private one out of here"


def key_trouble(line: str) -> str | None:
    """What is wrong with one line of a public key file, or None. Never repeats the line."""
    found = _KEY.search(line)
    if found is None:
        return f"is no public key of a known type ({', '.join(_TYPES[:3])} and others)"
    try:
        blob = base64.b64decode(found["data"], validate=True)
    except (binascii.Error, ValueError):
        return "is a damaged public key: its second part is no base64"
    name = found["type"].encode()
    if blob[: 4 + len(name)] != len(name).to_bytes(4, "big") + name:
        return f"is a damaged public key: its data is not of type {found['type']}"
    return None


def is_whole(line: str) -> bool:
    """Whether the data of a public key ends where its own lengths say that it ends."""
    found = _KEY.search(line)
    if found is None:
        return False
    blob = base64.b64decode(found["data"])
    at = parts = 0
    while at + 4 <= len(blob):
        at += 4 + int.from_bytes(blob[at : at + 4], "big")
        parts += 1
    return at == len(blob) and parts > 1


def expand_keys(hypervisor: Item, faults: list[Fault], files: list[Path]) -> None:
    """Replace paths of public key files by the keys in them, in every kickstart of a document."""
    nodes = hypervisor.entries("nodes").values()
    kickstarts = [hypervisor.get("kickstart"), *(node.get("kickstart") for node in nodes)]
    seen: set[int] = set()
    for kickstart in kickstarts:
        if kickstart is None:
            continue
        lists = list(kickstart.entries("ssh_keys").values())
        for user in kickstart.elements("additional_users"):
            lists += [item for item in (user.get("ssh_keys"),) if item is not None]
            single = user.get("ssh_key")
            if single is not None and id(single) not in seen:
                seen.add(id(single))
                keys = _keys(single, faults, files)
                single.value = keys[0].value if keys else None
                single.broken = single.broken or not keys
                if len(keys) > 1:
                    faults.append(
                        single.fault("names a file with several keys", "list it under ssh_keys")
                    )
        for item in lists:
            if id(item) not in seen:
                seen.add(id(item))
                expand_list(item, faults, files)


def expand_list(item: Item, faults: list[Fault], files: list[Path]) -> None:
    """Replace paths in a list of keys by the keys in these files."""
    if isinstance(item.value, list):
        item.value = [key for each in item.value for key in _keys(each, faults, files)]


def _keys(item: Item, faults: list[Fault], files: list[Path]) -> list[Item]:
    """The keys of one entry: its own text, or the lines of the file that it names."""
    if item.broken or not isinstance(item.value, str):
        return [item]
    try:
        return [replace(item, value=line) for line in _lines(item, item.value.strip(), files)]
    except _Refused as refused:
        faults.append(item.fault(refused.problem, refused.remedy))
        return []


class _Refused(Exception):
    """An entry is no key: what is wrong, and what would be right."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


def _lines(item: Item, text: str, files: list[Path]) -> list[str]:
    if _PRIVATE.search(text):
        raise _Refused("is a private key", PRIVATE_ADVICE)
    where = ""
    if not (_KEY.search(text) or _LOOKS_LIKE_KEY.search(text)):
        shown = item.masked or text
        text = _content(item, text, shown, files)
        where = f"the key file {shown} "
        if _PRIVATE.search(text):
            raise _Refused(f"{where}is a private key", PRIVATE_ADVICE)
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise _Refused(f"{where}has no key in it")
    for line in lines:
        trouble = key_trouble(line)
        if trouble:
            raise _Refused(f"{where}{trouble}", "copy the whole line of the .pub file")
    return lines


def _content(item: Item, text: str, shown: str, files: list[Path]) -> str:
    """The text of the key file that an entry names."""
    is_path = text.startswith(("/", "~", ".")) or not re.search(r"\s", text)
    if not text or "\n" in text or not is_path:
        raise _Refused(
            "is neither a public key nor the path of a public key file",
            "write 'ssh-ed25519 AAAA...' or a path such as ~/.ssh/id_ed25519.pub",
        )
    try:
        path = named_path(text, item.file.parent)
        content = read_small(path, MIB)
    except UnicodeDecodeError:
        raise _Refused(f"the key file {shown} is no text") from None
    except OSError as error:
        raise _Refused(
            f"the key file {shown} cannot be read: {error.strerror}",
            "name an existing public key file, or write the key itself",
        ) from None
    if path not in files:
        files.append(path)
    return content
