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

_QCOW2 = ">4sIQIIQIIQ"


def qcow2(seed: int = 0, size: int = GIB, *, length: int = 300_000) -> bytes:
    """A qcow2 image of that virtual size in bytes, in which nothing is allocated yet."""
    header = struct.pack(_QCOW2, b"QFI\xfb", 3, 0, 0, 16, size, 0, 0, 0)
    filling = random.Random(f"q{seed}").randbytes(length - 4096)
    return header.ljust(4096, b"\0") + filling


def allocated(length: int, *, compressed: bool = False) -> bytes:
    """A qcow2 image of ``length`` bytes whose tables name each of its clusters of 64 KiB."""
    cluster = 1 << 16
    count = length // cluster
    header = struct.pack(_QCOW2, b"QFI\xfb", 3, 0, 0, 16, GIB, 0, 1, cluster)
    mark = 1 << 62 if compressed else 1 << 63
    table = [mark | number * cluster for number in range(3, count)]
    return b"".join(
        (
            header.ljust(cluster, b"\0"),
            struct.pack(">Q", 2 * cluster | 1 << 63).ljust(cluster, b"\0"),
            struct.pack(f">{len(table)}Q", *table).ljust(cluster, b"\0"),
            bytes(length - 3 * cluster),
        )
    )


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
