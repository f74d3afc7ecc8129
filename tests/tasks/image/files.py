"""Small disk images with a content of their own, and things that are none."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import random
import struct
import sys
from collections.abc import Callable

from blocks.manifest.guest import Digest
from blocks.units import GIB, MIB
from tasks.image.formats import Packing

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKERS: dict[Packing, Callable[[bytes], bytes]] = {
    "xz": lzma.compress,
    "gz": gzip.compress,
    "zst": lambda data: zstd.compress(
        data, options={zstd.CompressionParameter.checksum_flag: True}
    ),
}

_QCOW2 = ">4sIQIIQIIQQI"
_CLUSTER = 1 << 16
# Bytes of the disk that one entry of the first table is for.
_COVERED = _CLUSTER * _CLUSTER // 8


def qcow2(seed: int = 0, size: int = GIB, *, length: int = 300_000) -> bytes:
    """A qcow2 image of that virtual size in bytes, in which nothing is allocated yet.

    Its last byte is 0, which a test may alter.
    """
    tables = bytes(2 * _CLUSTER)
    rest = random.Random(f"q{seed}").randbytes(length - 3 * _CLUSTER - 1)
    return _header(size).ljust(_CLUSTER, b"\0") + tables + rest + b"\0"


def qcow2_header(size: int = GIB) -> bytes:
    """A qcow2 image that ends behind its header, which names no tables."""
    return struct.pack(_QCOW2, b"QFI\xfb", 3, 0, 0, 16, size, 0, 0, 0, 0, 0).ljust(104, b"\0")


def allocated(length: int, *, compressed: bool = False) -> bytes:
    """A qcow2 image of ``length`` bytes whose tables name each of its clusters of 64 KiB."""
    count = length // _CLUSTER
    mark = 1 << 62 if compressed else 1 << 63
    data = [mark | number * _CLUSTER for number in range(4, count)]
    return b"".join(
        (
            _header(GIB).ljust(_CLUSTER, b"\0"),
            struct.pack(">Q", 3 * _CLUSTER | 1 << 63).ljust(_CLUSTER, b"\0"),
            bytes(_CLUSTER),
            struct.pack(f">{len(data)}Q", *data).ljust(_CLUSTER, b"\0"),
            bytes(length - 4 * _CLUSTER),
        )
    )


def _header(size: int) -> bytes:
    """A header whose first table is in the second cluster, that of reference counts behind it."""
    entries = -(-size // _COVERED)
    places = (entries, _CLUSTER, 2 * _CLUSTER, 1)
    return struct.pack(_QCOW2, b"QFI\xfb", 3, 0, 0, 16, size, 0, *places)


def qcow2_with_backing(seed: int = 0) -> bytes:
    """A qcow2 image that is only what has changed since another one."""
    whole = qcow2(seed)
    return whole[:8] + struct.pack(">QI", 104, 9) + whole[20:104] + b"/base.img" + whole[113:]


def raw(seed: int = 0, size: int = 4 * MIB) -> bytes:
    """A raw image of that size in bytes: a partition table, a hole, and something behind it."""
    image = bytearray(size)
    image[446:462] = struct.pack("<4B4BII", 0x80, 0, 0, 0, 0x83, 0, 0, 0, 2048, size // 512 - 2048)
    image[510:512] = b"\x55\xaa"
    image[-65536:] = random.Random(f"r{seed}").randbytes(65536)
    return bytes(image)


def sha256(data: bytes) -> Digest:
    """The SHA-256 of some bytes."""
    return Digest(algorithm="sha256", hex=hashlib.sha256(data).hexdigest())


def sha512(data: bytes) -> Digest:
    """The SHA-512 of some bytes."""
    return Digest(algorithm="sha512", hex=hashlib.sha512(data).hexdigest())
