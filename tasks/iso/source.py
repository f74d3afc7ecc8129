"""Install ISOs on this machine: fetched, rewritten, and known by their content.

Everything here is a cache that may be deleted at any time: ``isos`` holds what was fetched, by its
checksum, ``rewritten`` what was rewritten, by what it depends on. Whatever is taken from it is
compared first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blocks.manifest.guest import Digest
from blocks.paths import cache_dir
from tasks import fetching
from tasks.fetching import (
    OriginError,
    Progress,
    Words,
    alone,
    file_sha256,
    is_url,
    keeping_cache,
    shown,
    write_text,
)
from tasks.iso.distros import Family
from tasks.iso.iso9660 import IsoError, volumes
from tasks.iso.remaster import remaster, remaster_key

__all__ = [
    "LocalIso",
    "OriginError",
    "Progress",
    "fetched",
    "is_fetched",
    "is_url",
    "local_iso",
    "probe",
    "rewritten",
    "shown",
]

_WORDS: Final = Words("ISO", "`iso.source`", "compare `iso.checksum` with what the publisher says")
_WAITING: Final = "prepares the same ISO"


@dataclass(frozen=True)
class LocalIso:
    """An ISO on this machine; ``size`` in bytes, ``sha256`` in hex."""

    path: Path
    size: int
    sha256: str


def local_iso(path: Path, sha256: str | None, on_progress: Progress) -> LocalIso:
    """The ISO at a path. Raises OriginError: not there, no ISO, or not of that checksum."""
    try:
        with path.open("rb") as stream:
            volumes(stream)
        found = file_sha256(path, on_progress)
        size = path.stat().st_size
    except IsoError as error:
        raise OriginError(f"{path}: {error}", advice="name the ISO image itself") from None
    except OSError as error:
        raise OriginError(
            f"the ISO {path} cannot be read: {error.strerror}",
            advice="`iso.source` is a path on the machine that runs Proxflow, or a URL",
        ) from None
    if sha256 is not None and found != sha256:
        raise OriginError(
            f"{path} has the SHA-256 {found}, and the manifest asks for {sha256}",
            advice="fetch the ISO again, or correct `iso.checksum`",
        )
    return LocalIso(path, size, found)


def fetched(url: str, sha256: str, on_progress: Progress) -> LocalIso:
    """The file behind a URL, from the cache or fetched now; a broken fetch is taken up again.

    Raises OriginError: transient where the next try may end it.
    """
    target = cache_dir() / "isos" / f"{sha256}.iso"
    wanted = Digest(algorithm="sha256", hex=sha256)
    with keeping_cache("the cache of ISOs"), alone(target, on_progress, _WAITING):
        fetching.fetch_into(target, url, wanted, _WORDS, on_progress)
        return LocalIso(target, target.stat().st_size, sha256)


def probe(url: str) -> int | None:
    """Size in bytes of what a URL names, None where that cannot be learnt from here.

    Raises OriginError only where the server says that there is nothing.
    """
    return fetching.probe(url, _WORDS)


def is_fetched(sha256: str) -> bool:
    """Whether a file of that checksum is in the cache, as far as its name says."""
    return (cache_dir() / "isos" / f"{sha256}.iso").exists()


def rewritten(
    source: Callable[[], LocalIso], sha256: str, family: Family, on_progress: Progress
) -> LocalIso:
    """The rewritten copy of an ISO, from the cache or made now from ``source``.

    Raises OriginError for an image without an installer's boot menu, and what ``source`` raises.
    """
    target = cache_dir() / "rewritten" / f"{remaster_key(sha256, family)}.iso"
    with keeping_cache("the cache of rewritten ISOs"), alone(target, on_progress, _WAITING):
        known = _known(target, on_progress)
        if known is not None:
            return known
        origin = source()
        job, digest = f"rewriting {origin.path.name}", hashlib.sha256()
        try:
            made = remaster(
                origin.path,
                target,
                family,
                on_progress=lambda d, t: on_progress(job, d, t),
                digest=digest,
            )
        except IsoError as error:
            raise OriginError(
                f"{origin.path}: {error}", advice=f"it must be an install ISO of {family}"
            ) from None
        content = digest.hexdigest()
        write_text(target.with_suffix(".json"), json.dumps({"sha256": content}))
        return LocalIso(target, made.size, content)


def _known(target: Path, on_progress: Progress) -> LocalIso | None:
    """A cached image, unless it is not what was once written."""
    try:
        sha256 = str(json.loads(target.with_suffix(".json").read_text())["sha256"])
        if file_sha256(target, on_progress) != sha256:
            return None
        return LocalIso(target, target.stat().st_size, sha256)
    except (OSError, ValueError, KeyError, TypeError):
        return None
