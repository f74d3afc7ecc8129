"""Disk images on this machine: fetched, unpacked, and known by their content.

``images`` in the cache holds what was fetched (``.image``) and what was unpacked (``.disk``, with a
note ``.json`` of its content), each by the checksum that the publisher gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from blocks.manifest.guest import Digest, ImageSource
from blocks.model import Model
from blocks.paths import cache_dir
from tasks.fetching import (
    OriginError,
    Progress,
    alone,
    fetch_into,
    file_digest,
    is_url,
    keeping_cache,
    write_text,
    wrong_checksum,
)
from tasks.image.formats import Format, Packing, is_packed
from tasks.image.origin import WORDS, kind_here, plain_format, words_of
from tasks.image.unpack import unpack

_CACHE: Final = "the cache of disk images"
_WAITING: Final = "fetches the same image"


class LocalDisk(Model):
    """A disk image on this machine as it goes to a storage; ``digest`` is that of this file."""

    path: Path
    format: Format
    digest: Digest


class Content(Model):
    """What a packed image turned out to be; ``size`` in bytes of the file."""

    format: Format
    sha256: str
    size: int


def local_disk(source: ImageSource, digest: Digest, on_progress: Progress) -> LocalDisk:
    """The image, fetched and unpacked if need be. Raises OriginError: not to be had, no image."""
    path = (
        fetched(source, digest, on_progress)
        if is_url(source.origin)
        else given(Path(source.origin), digest, on_progress)
    )
    kind = kind_here(path)
    if is_packed(kind):
        return _unpacked(path, kind, digest, on_progress)
    return LocalDisk(path=path, format=plain_format(path, path.name), digest=digest)


def packed_content(digest: Digest) -> Content | None:
    """What is in the packed image of that checksum, as far as this machine has seen it."""
    try:
        return Content.model_validate_json(_cached(digest, "json").read_text())
    except (OSError, ValueError):
        return None


def is_fetched(digest: Digest) -> bool:
    """Whether an image of that checksum is in the cache, as far as its name says."""
    return _cached(digest, "image").exists()


def fetched(source: ImageSource, digest: Digest, on_progress: Progress) -> Path:
    """The file behind the image's URL in the cache, from an earlier fetch or from now.

    Raises OriginError.
    """
    target = _cached(digest, "image")
    with keeping_cache(_CACHE), alone(target, on_progress, _WAITING):
        return fetch_into(target, source.origin, digest, words_of(source), on_progress)


def given(path: Path, digest: Digest, on_progress: Progress) -> Path:
    """A file of the operator's. Raises OriginError: no disk image, or not of that checksum."""
    kind_here(path)
    found = file_digest(path, digest.algorithm, on_progress)
    if found != digest.hex:
        raise wrong_checksum(str(path), found, digest, WORDS)
    return path


def _unpacked(path: Path, packing: Packing, digest: Digest, on_progress: Progress) -> LocalDisk:
    target, note = _cached(digest, "disk"), _cached(digest, "json")
    with keeping_cache(_CACHE), alone(target, on_progress, "unpacks the same image"):
        known = packed_content(digest)
        if known is None or not _holds(target, known, on_progress):
            made = unpack(path, packing, target, on_progress)
            try:
                form = plain_format(target, f"what is in {path.name}")
            except OriginError:
                target.unlink()
                raise
            known = Content(format=form, size=made.size, sha256=made.sha256)
            write_text(note, json.dumps(known.model_dump()))
        content = Digest(algorithm="sha256", hex=known.sha256)
        return LocalDisk(path=target, format=known.format, digest=content)


def _holds(target: Path, known: Content, on_progress: Progress) -> bool:
    return target.exists() and file_digest(target, "sha256", on_progress) == known.sha256


def _cached(digest: Digest, ending: str) -> Path:
    return cache_dir() / "images" / f"{digest.hex}.{ending}"
