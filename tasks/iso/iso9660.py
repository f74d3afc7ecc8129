"""Just enough of ISO 9660 to find files in an image and to say where each fact is written.

pycdlib builds images; this reads the few structures that are patched in place: the volume
descriptors and the directory records, with Rock Ridge (NM) and Joliet names. Offsets are bytes
from the start of the image. Layouts are those of ECMA-119 and of IEEE P1281/P1282.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

SECTOR = 2048
_BOOT_RECORD = b"\0CD001\1EL TORITO SPECIFICATION"
_DIRECTORY = 0x02
_MULTI_EXTENT = 0x80
_JOLIET = (b"%/@", b"%/C", b"%/E")


class IsoError(ValueError):
    """The file is not an ISO 9660 image, or a damaged one."""


@dataclass(frozen=True)
class Volume:
    """A volume descriptor: a tree of its own over the same file contents."""

    offset: int
    joliet: bool
    label: str
    blocks: int
    root: int
    root_size: int


@dataclass(frozen=True)
class Record:
    """A directory record. ``extent`` counts in sectors, ``size`` in bytes."""

    path: str
    offset: int
    length: int
    extent: int
    size: int
    directory: bool
    multi_extent: bool


def read_at(stream: BinaryIO, offset: int, size: int) -> bytes:
    """Exactly so many bytes. Raises IsoError at the end of the file."""
    stream.seek(offset)
    data = stream.read(size)
    if len(data) != size:
        raise IsoError(f"the image ends at byte {offset + len(data)}, in the middle of something")
    return data


def volumes(stream: BinaryIO) -> tuple[Volume, ...]:
    """The primary volume, then Joliet's if there is one. Raises IsoError."""
    found: list[Volume] = []
    for sector in range(16, 16 + 64):
        data = read_at(stream, sector * SECTOR, SECTOR)
        if data[1:6] != b"CD001":
            break
        if data[0] == 255:
            return tuple(found)
        joliet = data[0] == 2 and data[88:91] in _JOLIET
        if data[0] == 1 or joliet:
            label = data[40:72].decode("utf-16-be" if joliet else "latin-1", "replace")
            extent, size = (
                struct.unpack_from("<I", data, 158)[0],
                struct.unpack_from("<I", data, 166)[0],
            )
            blocks = struct.unpack_from("<I", data, 80)[0]
            found.append(Volume(sector * SECTOR, joliet, label.rstrip(" \0"), blocks, extent, size))
    raise IsoError("this is no ISO 9660 image")


def efi_images(stream: BinaryIO) -> frozenset[int]:
    """First sectors of the images that UEFI boots from: El Torito's entries of platform 0xEF."""
    record = read_at(stream, 17 * SECTOR, SECTOR)
    if not record.startswith(_BOOT_RECORD):
        return frozenset()
    catalog = read_at(stream, struct.unpack_from("<I", record, 71)[0] * SECTOR, SECTOR)
    found, platform = set(), catalog[1]
    for at in range(32, SECTOR, 32):
        if catalog[at] in {0x90, 0x91}:
            platform = catalog[at + 1]
        elif catalog[at] == 0x88 and platform == 0xEF:
            found.add(struct.unpack_from("<I", catalog, at + 8)[0])
    return frozenset(found)


def walk(stream: BinaryIO, volume: Volume) -> Iterator[Record]:
    """Every record of a volume but "." and "..", with its path from the root, without slash.

    Names are Rock Ridge's or Joliet's; plain names lose their version and are lower-cased.
    """
    pending = [(volume.root, volume.root_size, "")]
    seen: set[int] = set()
    while pending:
        extent, size, parent = pending.pop()
        if extent in seen:
            continue
        seen.add(extent)
        for record in records(stream, extent, size, joliet=volume.joliet, parent=parent):
            if record.path.rsplit("/", 1)[-1] in {".", ".."}:
                continue
            yield record
            if record.directory:
                pending.append((record.extent, record.size, record.path))


def records(
    stream: BinaryIO, extent: int, size: int, *, joliet: bool, parent: str = ""
) -> Iterator[Record]:
    """The records of one directory, "." and ".." among them."""
    data = read_at(stream, extent * SECTOR, size)
    position = 0
    while position < len(data):
        length = data[position]
        if length == 0:
            position = (position // SECTOR + 1) * SECTOR
            continue
        raw = data[position : position + length]
        if length < 34 or len(raw) != length or 33 + raw[32] > length:
            raise IsoError(f"the directory in sector {extent} is damaged")
        name = _name(stream, raw, joliet=joliet)
        yield Record(
            path=f"{parent}/{name}" if parent else name,
            offset=extent * SECTOR + position,
            length=length,
            extent=struct.unpack_from("<I", raw, 2)[0],
            size=struct.unpack_from("<I", raw, 10)[0],
            directory=bool(raw[25] & _DIRECTORY),
            multi_extent=bool(raw[25] & _MULTI_EXTENT),
        )
        position += length


def system_use(raw: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """The SUSP entries of a directory record: signature, offset in the record, payload."""
    position = 33 + raw[32] + (1 - raw[32] % 2)
    while position + 4 <= len(raw):
        length = raw[position + 2]
        if length < 4:
            return
        yield raw[position : position + 2], position, raw[position + 4 : position + length]
        position += length


def _name(stream: BinaryIO, raw: bytes, *, joliet: bool) -> str:
    ident = raw[33 : 33 + raw[32]]
    if ident in {b"\0", b"\1"}:
        return "." if ident == b"\0" else ".."
    if joliet:
        return ident.decode("utf-16-be", "replace").split(";")[0]
    name = b""
    for signature, _, payload in system_use(raw):
        if signature == b"NM":
            name += payload[1:]
        elif signature == b"CE":
            extent, offset, size = (struct.unpack_from("<I", payload, at)[0] for at in (0, 8, 16))
            more = read_at(stream, extent * SECTOR + offset, size)
            for inner, _, value in system_use(bytes(33) + b"\0" + more):
                name += value[1:] if inner == b"NM" else b""
    if name:
        return name.decode("utf-8", "replace")
    return ident.decode("latin-1").split(";")[0].rstrip(".").lower()
