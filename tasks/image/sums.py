"""Publishers' lists of checksums: read, and the line of one file found in them.

Known forms: ``HEX  name`` and ``HEX *name`` (sha256sum, sha512sum), ``SHA256 (name) = HEX`` (BSD;
Fedora and Rocky with comments between), and a file that is one checksum and nothing else (Alpine).
"""

from __future__ import annotations

import re
from typing import Final, Literal

from blocks.manifest.guest import Digest
from blocks.model import Model
from tasks.capacity import did_you_mean
from tasks.fetching import OriginError

_LENGTHS: Final[dict[int, Literal["sha256", "sha512"]]] = {64: "sha256", 128: "sha512"}
_GNU = re.compile(r"(?P<hex>[0-9A-Fa-f]+)[ \t]+\*?(?P<name>\S.*)")
_BSD = re.compile(r"(?P<algorithm>[A-Za-z0-9-]+) ?\((?P<name>.+)\) ?= ?(?P<hex>[0-9A-Fa-f]+)")
_BARE = re.compile(r"[0-9A-Fa-f]+")
_ENDINGS: Final = (".sha256", ".sha512", ".sha256sum", ".sha512sum", ".sha256.txt", ".sha512.txt")


class Entry(Model):
    """A line of a list; ``name`` is None for a checksum alone."""

    name: str | None
    digest: Digest


def parse_sums(text: str) -> tuple[Entry, ...]:
    """The SHA-256 and SHA-512 checksums of a list, in its order; other lines do not matter."""
    found = []
    for line in text.splitlines():
        entry = _entry(line.strip())
        if entry is not None:
            found.append(entry)
    return tuple(found)


def _entry(line: str) -> Entry | None:
    bsd = _BSD.fullmatch(line)
    if bsd is not None:
        digest = _digest(bsd["hex"])
        said = bsd["algorithm"].lower().replace("-", "")
        return (
            Entry(name=bsd["name"], digest=digest) if digest and digest.algorithm == said else None
        )
    gnu = _GNU.fullmatch(line)
    if gnu is not None:
        digest = _digest(gnu["hex"])
        return Entry(name=gnu["name"].removeprefix("./"), digest=digest) if digest else None
    if _BARE.fullmatch(line):
        digest = _digest(line)
        return Entry(name=None, digest=digest) if digest else None
    return None


def _digest(text: str) -> Digest | None:
    algorithm = _LENGTHS.get(len(text))
    return None if algorithm is None else Digest(algorithm=algorithm, hex=text.lower())


def find_sum(text: str, name: str, list_name: str) -> Digest:
    """The checksum of the file ``name``, SHA-512 rather than SHA-256.

    ``list_name``: of the list itself. A checksum without a name counts only in a list that is named
    after the file. Raises OriginError: not in the list, or there with several checksums.
    """
    entries = parse_sums(text)
    own = len(entries) == 1 and list_name in {name + ending for ending in _ENDINGS}
    digests = {
        entry.digest for entry in entries if entry.name == name or (entry.name is None and own)
    }
    strongest = max((digest.algorithm for digest in digests), default="sha256")
    best = [digest for digest in digests if digest.algorithm == strongest]
    if len(best) == 1:
        return best[0]
    if best:
        raise OriginError(
            f"{list_name} has several checksums of {name}",
            advice="give the right one in `image.checksum`",
        )
    names = {entry.name for entry in entries if entry.name is not None}
    if not entries:
        raise OriginError(
            f"{list_name} has no SHA-256 or SHA-512 checksums",
            advice="`image.checksums` is the URL of the publisher's list, such as SHA256SUMS",
        )
    raise OriginError(
        f"{list_name} does not name {name}",
        advice=f"look whether the release has moved; {did_you_mean(name, names)}"[:600],
    )
