"""Whether a qcow2 image is whole, as far as its own tables tell."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, Final

_MAGIC: Final = b"QFI\xfb"
_OFFSET: Final = 0x00FF_FFFF_FFFF_FE00
_COMPRESSED: Final = 1 << 62
_EXTENDED_L2: Final = 1 << 4
# 128 TiB with clusters of 64 KiB; more entries than that are damage.
_MOST_L1: Final = 262_144


def beyond_end(path: Path) -> int | None:
    """An offset in bytes that the image's tables name and that lies behind its end.

    None where there is none, and for files that are not qcow2. Reads the tables only: a file whose
    last cluster alone was cut short is not noticed. Raises OSError.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(104)
        if len(head) < 72 or not head.startswith(_MAGIC):
            return None
        version, cluster_bits = struct.unpack_from(">I12xI", head, 4)
        entries, l1_offset = struct.unpack_from(">IQ", head, 36)
        features = struct.unpack_from(">Q", head, 72)[0] if version >= 3 and len(head) >= 80 else 0
        if features & _EXTENDED_L2 or entries > _MOST_L1 or not 9 <= cluster_bits <= 21:
            return None
        for entry in _table(stream, l1_offset, entries):
            table = entry & _OFFSET
            if not table:
                continue
            last = _last_of(stream, table, cluster_bits)
            if max(table, last) >= size:
                return max(table, last)
    return None


def _last_of(stream: BinaryIO, table: int, cluster_bits: int) -> int:
    """The largest offset that a second-level table names."""
    compressed = (1 << (62 - (cluster_bits - 8))) - 1
    return max(
        (
            entry & (compressed if entry & _COMPRESSED else _OFFSET)
            for entry in _table(stream, table, 1 << (cluster_bits - 3))
        ),
        default=0,
    )


def _table(stream: BinaryIO, offset: int, entries: int) -> tuple[int, ...]:
    """The numbers of a table; those behind the end of the file are missing."""
    stream.seek(offset)
    data = stream.read(8 * entries)
    return struct.unpack(f">{len(data) // 8}Q", data[: len(data) // 8 * 8])
