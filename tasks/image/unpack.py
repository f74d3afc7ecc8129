"""Packed disk images, unpacked as a stream into a sparse file."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import sys
import zlib
from pathlib import Path
from typing import IO, Final, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from blocks.model import Model
from tasks.fetching import OriginError, Progress
from tasks.image.formats import HEAD, Packing

_CHUNK: Final = 1024 * 1024
_BLOCK: Final = 64 * 1024
_ZEROS: Final = bytes(_BLOCK)
_BROKEN = (EOFError, lzma.LZMAError, gzip.BadGzipFile, zstd.ZstdError)


class Unpacked(Model):
    """What was written: bytes, and SHA-256 in hex."""

    size: int
    sha256: str


def unpack(source: Path, packing: Packing, target: Path, on_progress: Progress) -> Unpacked:
    """Unpack a file into ``target``, which appears once it is whole; holes stay holes.

    ``on_progress`` gets how much of the packed file was read. Raises OriginError where the packed
    file is damaged or was cut off, OSError.
    """
    job, total = f"unpacking {source.name}", source.stat().st_size
    draft = target.with_name(target.name + ".draft")
    draft.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    try:
        with (
            source.open("rb") as packed,
            _opened(packed, packing) as plain,
            draft.open("wb") as out,
        ):
            while chunk := plain.read(_CHUNK):
                digest.update(chunk)
                _write_sparse(out, chunk)
                size += len(chunk)
                on_progress(job, packed.tell(), total)
            out.truncate(size)
    except _BROKEN as error:
        raise _damaged(source.name, error) from None
    else:
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return Unpacked(size=size, sha256=digest.hexdigest())


def beginning(head: bytes, packing: Packing, name: str) -> bytes | None:
    """At most ``HEAD`` bytes of what is packed in a file, by the file's own first bytes.

    None where those do not tell as much. Raises OriginError where the packed file is damaged.
    """
    try:
        plain, ended = _first(head, packing)
    except (*_BROKEN, zlib.error) as error:
        raise _damaged(name, error) from None
    return plain if ended or len(plain) >= HEAD else None


def _first(head: bytes, packing: Packing) -> tuple[bytes, bool]:
    """The first bytes of what is packed, and whether that is all of it."""
    if packing == "gz":
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        return stream.decompress(head, HEAD), stream.eof
    unpacker = lzma.LZMADecompressor() if packing == "xz" else zstd.ZstdDecompressor()
    return unpacker.decompress(head, HEAD), unpacker.eof


def _damaged(name: str, error: Exception) -> OriginError:
    return OriginError(
        f"{name} cannot be unpacked: {error}",
        advice="it was cut off or altered; fetch the image again",
    )


def _opened(packed: IO[bytes], packing: Packing) -> IO[bytes]:
    if packing == "xz":
        return cast(IO[bytes], lzma.open(packed))
    if packing == "gz":
        return cast(IO[bytes], gzip.open(packed))
    return cast(IO[bytes], zstd.open(packed))


def _write_sparse(out: IO[bytes], chunk: bytes) -> None:
    for start in range(0, len(chunk), _BLOCK):
        block = chunk[start : start + _BLOCK]
        if block == _ZEROS[: len(block)]:
            out.seek(len(block), 1)
        else:
            out.write(block)
