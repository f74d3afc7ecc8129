"""Disk images as sparse files: raw, or an empty qcow2, each with a mark of what is installed.

The mark (JSON behind a magic word, 8 KiB into the file) travels with every copy of the image: it
says which system was installed or from which image the disk was made.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from deployments.lab.files import partial_path

QCOW2_MAGIC = b"QFI\xfb"
_MARK_OFFSET = 8192
_MARK_MAGIC = b"LABDISK1"
_MARK_LIMIT = 64 * 1024
# An empty qcow2 image: header, table of the blocks of reference counts, one such block, each in a
# cluster, and behind them a table with a word for each 512 MiB of the disk.
_CLUSTER_BITS = 16
_CLUSTER = 1 << _CLUSTER_BITS
_COUNT_TABLE, _COUNT_BLOCK, _L1_TABLE = _CLUSTER, 2 * _CLUSTER, 3 * _CLUSTER
_L1_ENTRY_COVERS = _CLUSTER * _CLUSTER // 8
EFI_BYTES = 540_672
CLOUDINIT_BYTES = 4 << 20
TPM_BYTES = 4 << 20


class NotQcow2Error(ValueError):
    """The file does not begin like a qcow2 image."""


@dataclass(frozen=True)
class ImageInfo:
    """``size`` is the virtual disk in bytes, ``used`` what the file takes on the host."""

    format: str
    size: int
    used: int
    backing: str | None = None


def create_image(file: Path, fmt: str, size: int, backing: str = "") -> None:
    """Make an empty image; takes almost no space whatever its size in bytes.

    ``backing`` is the name of the base that a qcow2 overlay refers to.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_path(file)
    with partial.open("wb") as handle:
        if fmt == "qcow2":
            handle.write(qcow2_header(size, backing))
            handle.seek(_COUNT_TABLE)
            handle.write(struct.pack(">Q", _COUNT_BLOCK))
            _write_size_tables(handle, size)
        else:
            handle.truncate(size)
    partial.replace(file)


def qcow2_header(size: int, backing: str = "") -> bytes:
    """A version 3 header for a virtual disk of ``size`` bytes."""
    name = backing.encode()
    entries = _l1_entries(size)
    tables = (0, entries, _L1_TABLE, _COUNT_TABLE, 1, 0, 0)
    header = struct.pack(
        ">4sIQIIQIIQQIIQ",
        *(QCOW2_MAGIC, 3, 104 if name else 0, len(name), _CLUSTER_BITS, size),
        *tables,
    )
    # No features; reference counts of 1 << 4 bits; the length of the header.
    return header + bytes(24) + struct.pack(">II", 4, 104) + name


def _l1_entries(size: int) -> int:
    return -(-size // _L1_ENTRY_COVERS)


def _write_size_tables(handle: BinaryIO, size: int) -> None:
    """The tables that depend on the size; the file ends where that of ``qemu-img create`` does."""
    entries = _l1_entries(size)
    used = 3 + -(-8 * entries // _CLUSTER)
    handle.seek(_COUNT_BLOCK)
    handle.write(struct.pack(">H", 1) * used)
    handle.truncate(_L1_TABLE + 8 * entries)


def inspect_image(file: Path, fmt: str) -> ImageInfo:
    """Virtual size and real use; raises FileNotFoundError or NotQcow2Error."""
    stat = file.stat()
    used = stat.st_blocks * 512
    if fmt != "qcow2":
        return ImageInfo("raw" if fmt == "iso" else fmt, stat.st_size, used)
    with file.open("rb") as handle:
        head = handle.read(104)
        if len(head) < 32 or head[:4] != QCOW2_MAGIC:
            raise NotQcow2Error(str(file))
        offset, length, _, size = struct.unpack(">QIIQ", head[8:32])
        backing = None
        if offset:
            handle.seek(offset)
            backing = handle.read(length).decode(errors="replace")
    return ImageInfo("qcow2", size, used, backing)


def resize_image(file: Path, fmt: str, size: int) -> None:
    """Set the virtual size in bytes."""
    with file.open("r+b") as handle:
        if fmt == "qcow2":
            handle.seek(24)
            handle.write(struct.pack(">QII", size, 0, _l1_entries(size)))
            _write_size_tables(handle, size)
        else:
            handle.truncate(size)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file beside its place and rename it; holes stay holes, so that it costs little."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.copy")
    with source.open("rb") as reader, partial.open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        writer.truncate(size)
        end = 0
        while end < size:
            try:
                begin = os.lseek(reader.fileno(), end, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(reader.fileno(), begin, os.SEEK_HOLE)
            while begin < end:
                sent = os.copy_file_range(
                    reader.fileno(), writer.fileno(), end - begin, begin, begin
                )
                if sent == 0:
                    break
                begin += sent
    partial.replace(target)


def read_mark(file: Path) -> dict[str, Any] | None:
    """What is installed on the image; None for an empty one."""
    try:
        with file.open("rb") as handle:
            handle.seek(_MARK_OFFSET)
            head = handle.read(12)
            if len(head) < 12 or head[:8] != _MARK_MAGIC:
                return None
            data: dict[str, Any] = json.loads(handle.read(struct.unpack(">I", head[8:])[0]))
            return data
    except FileNotFoundError:
        return None


def write_mark(file: Path, mark: dict[str, Any]) -> None:
    """Record what is installed; the image must be larger than the mark."""
    data = json.dumps(mark).encode()[:_MARK_LIMIT]
    with file.open("r+b") as handle:
        handle.seek(_MARK_OFFSET)
        handle.write(_MARK_MAGIC + struct.pack(">I", len(data)) + data)


def replace_mark(file: Path, mark: dict[str, Any] | None) -> None:
    """Set the mark to what another image has, or to none."""
    if mark is not None:
        write_mark(file, mark)
    elif read_mark(file) is not None:
        with file.open("r+b") as handle:
            handle.seek(_MARK_OFFSET)
            handle.write(bytes(len(_MARK_MAGIC)))
