"""Config values that are no property strings: tags, SSH keys, descriptions, volume ids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

_OWNER = re.compile(r"(?:vm|base)-(?P<vmid>\d+)-")


def parse_tags(text: str) -> tuple[str, ...]:
    """Tags as the server keeps them: lower case, sorted, each once.

    It takes ``;``, ``,`` and blanks as separators, and keeps no tags as one blank
    (12-hardware-edits).
    """
    return tuple(sorted({tag for tag in re.split(r"[;,\s]+", text.lower()) if tag}))


def format_tags(tags: Iterable[str]) -> str:
    """The ``tags`` parameter, in the server's own spelling."""
    return ";".join(parse_tags(";".join(tags)))


def encode_sshkeys(keys: Iterable[str]) -> str:
    """The ``sshkeys`` parameter: one key a line, percent-encoded, blanks as ``%20``.

    The server wants this encoding inside the value, on top of that of the form
    (06-cloud-image-template).
    """
    return quote("\n".join(key.strip() for key in keys if key.strip()), safe="")


def decode_sshkeys(text: str) -> tuple[str, ...]:
    """The keys of an ``sshkeys`` value."""
    return tuple(line.strip() for line in unquote(text).splitlines() if line.strip())


def normal_description(text: str) -> str:
    """A description without what editors and servers add: carriage returns, newlines at the end.

    Containers' descriptions come back with a newline that nobody wrote (09-lxc-life).
    """
    return text.replace("\r\n", "\n").rstrip("\n")


def storage_of(volid: str) -> str:
    """The storage of a volume id; empty for ``none`` and for paths."""
    storage, colon, _ = volid.partition(":")
    return storage if colon and "/" not in storage else ""


def owner_of(volid: str) -> int | None:
    """The guest whose number a volume's name carries, None where the name tells nothing."""
    found = _OWNER.match(re.split("[:/]", volid)[-1])
    return int(found["vmid"]) if found else None
