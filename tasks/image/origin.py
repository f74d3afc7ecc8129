"""A disk image as its publisher gives it: its checksum, what it is, and its name on a storage."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from blocks.manifest.guest import Digest, ImageSource
from blocks.units import MIB
from tasks.fetching import (
    Head,
    OriginError,
    Progress,
    Words,
    fetch_small,
    file_digest,
    file_name,
    head_of_url,
    is_url,
    shown,
)
from tasks.image.formats import HEAD, Format, Kind, cut_off, is_plain, kind_of
from tasks.image.qcow2 import beyond_end
from tasks.image.signed import verified
from tasks.image.sums import find_sum

WORDS: Final = Words(
    "disk image", "`image.url`", "compare `image.checksum` with what the publisher says"
)
_LISTED: Final = Words(
    "disk image",
    "`image.url`",
    "the publisher's list and image do not fit together: the release may just be changing; try "
    "again in a while",
)
_LIST: Final = Words("list of checksums", "`image.checksums`")
_SIGNATURE: Final = Words("signature", "`image.signature`")
_LIST_MOST: Final = 4 * MIB
_SIGNATURE_MOST: Final = MIB
_OTHER_CHARACTERS: Final = re.compile(r"[^-a-zA-Z0-9_.]+")


def words_of(source: ImageSource) -> Words:
    """What messages say of that image."""
    return WORDS if source.checksum is not None or source.sums is None else _LISTED


def digest_of(source: ImageSource, on_progress: Progress) -> Digest:
    """The checksum of the image as it is published: given, looked up, or that of the local file.

    Raises OriginError, also where the local file is no disk image, or StageError.
    """
    if source.checksum is not None:
        return source.checksum
    if source.sums is not None:
        return looked_up(source, source.sums)
    if is_url(source.origin):
        raise OriginError(
            f"{shown(source.origin)} has no checksum",
            advice="give `image.checksum`, or `image.checksums` with the URL of the list",
        )
    path = Path(source.origin)
    # Nothing else would tell: there is no checksum to compare with.
    kind_here(path)
    missing = beyond_end(path)
    if missing is not None:
        raise cut_off(path.name, missing + 1, path.stat().st_size)
    return Digest(algorithm="sha256", hex=file_digest(path, "sha256", on_progress))


def looked_up(source: ImageSource, sums: str) -> Digest:
    """The checksum in the publisher's list, whose signature is checked where there is a keyring.

    Raises OriginError: not to be had, or not in it. StageError: signature.
    """
    text = fetch_small(sums, _LIST_MOST, _LIST)
    if source.keyring is not None:
        signature = None
        if source.signature is not None:
            signature = fetch_small(source.signature, _SIGNATURE_MOST, _SIGNATURE)
        text = verified(text, signature, Path(source.keyring), shown(sums))
    return find_sum(text.decode(errors="replace"), file_name(source.origin), file_name(sums))


def head_of_file(path: Path) -> Head:
    """The first bytes of a file on this machine, and its size. Raises OriginError."""
    try:
        with path.open("rb") as stream:
            return Head(stream.read(HEAD), path.stat().st_size)
    except OSError as error:
        raise OriginError(
            f"the disk image {path} cannot be read: {error.strerror}",
            advice="`image.path` is a path on the machine that runs Proxflow",
        ) from None


def kind_here(path: Path) -> Kind:
    """What a file on this machine is. Raises OriginError where it is no disk image."""
    head = head_of_file(path)
    return kind_of(head.data, head.size, path.name)


def plain_format(path: Path, name: str) -> Format:
    """The format of a disk image that is not packed. Raises OriginError, which says ``name``."""
    head = head_of_file(path)
    return plain_kind(head.data, head.size, name)


def plain_kind(head: bytes, size: int | None, name: str) -> Format:
    """As ``kind_of``, of what must not be packed. Raises OriginError, which says ``name``."""
    kind = kind_of(head, size, name)
    if is_plain(kind):
        return kind
    raise OriginError(f"{name} is packed again", advice="unpack it, and give its path")


def kind_there(url: str) -> Kind | None:
    """What a URL leads to, None where its server does not answer here. Raises OriginError."""
    head = head_of_url(url, HEAD, WORDS)
    return None if head is None else kind_of(head.data, head.size, file_name(url) or shown(url))


def stem(source: ImageSource, digest: Digest) -> str:
    """The image's name on a storage, without its ending: it says which content must be in it."""
    return f"proxflow-{plain_name(source)}-{digest.hex[:12]}"


def plain_name(source: ImageSource) -> str:
    """The image's own name as it stands on a storage, whichever checksum it has."""
    return _OTHER_CHARACTERS.sub("-", source.name).strip("-.") or "image"
