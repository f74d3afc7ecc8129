"""Guest configurations in the text format of Proxmox VE.

Description lines first (``#`` and percent-encoding), then ``key: value`` lines, then sections:
``[PENDING]`` for changes that wait for a stop, ``[name]`` for each snapshot.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from sys import intern
from urllib.parse import unquote

Section = dict[str, str]


@dataclass
class GuestConfig:
    """All of one guest's file. Values are texts exactly as stored; ``description`` is decoded."""

    values: Section = field(default_factory=dict)
    pending: Section = field(default_factory=dict)
    pending_delete: list[str] = field(default_factory=list)
    snapshots: dict[str, Section] = field(default_factory=dict)

    def render(self) -> str:
        """The file's text."""
        parts = [_render_section(self.values)]
        if self.pending or self.pending_delete:
            pending = dict(self.pending)
            if self.pending_delete:
                pending["delete"] = ",".join(self.pending_delete)
            parts.append("\n[PENDING]\n" + _render_section(pending))
        parts += [
            f"\n[{name}]\n" + _render_section(section)
            for name, section in sorted(self.snapshots.items())
        ]
        return "".join(parts)

    def copy(self) -> GuestConfig:
        """An independent copy."""
        return GuestConfig(
            dict(self.values),
            dict(self.pending),
            list(self.pending_delete),
            {name: dict(section) for name, section in self.snapshots.items()},
        )

    def digest(self) -> str:
        """SHA-1 of the file, by which a client proves what it has read."""
        return hashlib.sha1(self.render().encode(), usedforsecurity=False).hexdigest()

    def effective(self) -> Section:
        """Values with the pending ones laid over."""
        merged = {k: v for k, v in self.values.items() if k not in self.pending_delete}
        merged.update(self.pending)
        return merged


def parse_config(text: str) -> GuestConfig:
    """Read a file; unknown lines are ignored as the real parser does."""
    config = GuestConfig()
    section = config.values
    comments: list[str] = []
    for line in text.splitlines():
        header = re.fullmatch(r"\[([A-Za-z][A-Za-z0-9_-]*)\]\s*", line)
        if header:
            _put_description(section, comments)
            comments = []
            name = header.group(1)
            section = config.pending if name == "PENDING" else config.snapshots.setdefault(name, {})
            continue
        if line.startswith("#"):
            comments.append(unquote(line[1:]))
            continue
        key, colon, value = line.partition(":")
        if colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", key):
            section[intern(key)] = value.strip(" ") or (" " if value else "")
    _put_description(section, comments)
    deleted = config.pending.pop("delete", "")
    config.pending_delete = [word for word in deleted.split(",") if word]
    return config


def _put_description(section: Section, comments: list[str]) -> None:
    if comments:
        section["description"] = "\n".join(comments)


def _render_section(section: Section) -> str:
    lines = []
    if section.get("description"):
        lines = ["#" + _encode(line) for line in section["description"].split("\n")]
    lines += [
        f"{key}: {_one_line(value)}"
        for key, value in sorted(section.items())
        if key != "description"
    ]
    return "".join(f"{line}\n" for line in lines)


def _one_line(value: str) -> str:
    return value.replace("\n", " ")


def _encode(line: str) -> str:
    return "".join(c if c.isprintable() and c != "%" else _percent(c) for c in line)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())
