"""What a file is, by its content: a disk image, something packed, or no image at all."""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeGuard

from blocks.units import MIB, human_size
from tasks.fetching import OriginError

Format = Literal["qcow2", "raw"]
Packing = Literal["xz", "gz", "zst"]
Kind = Format | Packing

HEAD: Final = 72 * 1024
"""Bytes from the beginning that tell what a file is: the last sign looked for is at 64 KiB."""
SMALLEST: Final = MIB
"""Bytes below which a disk has no room for anything that a guest could boot."""

_PACKINGS: Final[tuple[tuple[bytes, Packing], ...]] = (
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x1f\x8b", "gz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
)
_QCOW2: Final = b"QFI\xfb"
# Bits of the incompatible features.
_EXTERNAL_DATA: Final = 1 << 2
_EXTENDED_L2: Final = 1 << 4
# Where something else says what it is: offset, bytes, words.
_OTHERS: Final = (
    (0, b"BZh", "packed with bzip2; packed images are taken as .xz, .zst or .gz"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"KDMV", "a VMDK image; convert it with `qemu-img convert -O qcow2`"),
    (0, b"# Disk Desc", "the description of a VMDK image, without the disk"),
    (0, b"vhdxfile", "a VHDX image; convert it with `qemu-img convert -O qcow2`"),
    (0, b"conectix", "a VHD image; convert it with `qemu-img convert -O qcow2`"),
    (64, b"\x7f\x10\xda\xbe", "a VDI image; convert it with `qemu-img convert -O qcow2`"),
    (0, b"\x7fELF", "a program"),
    (257, b"ustar", "a tar archive (an OVA is one, too)"),
    (32769, b"CD001", "an ISO image; a template is made from a disk image"),
)
# Signs of a partition table or a file system, without which nothing boots from a raw image.
_DISKS: Final = (
    (510, b"\x55\xaa"),
    (512, b"EFI PART"),
    (4096, b"EFI PART"),
    (1080, b"\x53\xef"),
    (0, b"XFSB"),
    (65600, b"_BHRfS_M"),
    (0, b"LUKS\xba\xbe"),
    (512, b"LABELONE"),
)


def kind_of(head: bytes, size: int | None, name: str) -> Kind:
    """What a file is, by its first ``HEAD`` bytes and its size in bytes, where that is known.

    Raises OriginError, with words for the operator, for what is no disk image, a qcow2 image that
    depends on another file, and an image whose own tables say that it goes on behind its end.
    """
    if not head:
        raise no_image(name, "empty")
    for magic, packing in _PACKINGS:
        if head.startswith(magic):
            return packing
    if head.startswith(_QCOW2):
        _check_qcow2(head, size, name)
        return "qcow2"
    text = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise no_image(name, "a web page; the URL leads to a page, not to the image itself")
    for offset, sign, words in _OTHERS:
        if head[offset : offset + len(sign)] == sign:
            raise no_image(name, words)
    if not any(head[offset : offset + len(sign)] == sign for offset, sign in _DISKS):
        raise no_image(name, "something without a partition table and without a file system")
    _check_raw(head, size, name)
    return "raw"


def disk_size(head: bytes, size: int | None, kind: Kind) -> int | None:
    """Bytes of the disk in an image that ``kind_of`` knows; None for a packed one.

    ``size`` is that of the file in bytes, where it is known.
    """
    if kind == "qcow2":
        return int(struct.unpack(">Q", head[24:32])[0])
    return size if kind == "raw" else None


def is_plain(kind: Kind | None) -> TypeGuard[Format]:
    """Whether that is a disk image as it is."""
    return kind in {"qcow2", "raw"}


def is_packed(kind: Kind | None) -> TypeGuard[Packing]:
    """Whether that must be unpacked before a node can use it."""
    return kind in {"xz", "gz", "zst"}


def kind_by_name(name: str) -> Kind | None:
    """What a file's name says, None where that may be either format (``.img``)."""
    ending = name.lower().rpartition(".")[2]
    known: dict[str, Kind] = {
        "qcow2": "qcow2",
        "raw": "raw",
        "xz": "xz",
        "gz": "gz",
        "zst": "zst",
        "zstd": "zst",
    }
    return known.get(ending)


def no_image(name: str, what: str) -> OriginError:
    """The error for a file that cannot be the disk of a guest."""
    return OriginError(
        f"{name} is no disk image: it is {what}",
        advice="`image` takes qcow2 and raw disk images, also as .xz, .zst or .gz",
    )


def cut_off(name: str, needed: int, size: int) -> OriginError:
    """The error for an image of ``size`` bytes whose tables go on up to ``needed``."""
    return OriginError(
        f"{name} was cut off: it has {human_size(size)}, and its own tables name {needed} bytes "
        f"({human_size(needed)})",
        advice="fetch the image again",
    )


def _check_qcow2(head: bytes, size: int | None, name: str) -> None:
    if len(head) < 72:
        raise no_image(name, "the first bytes of a qcow2 image only")
    version, backing, _, cluster_bits, virtual = struct.unpack(">IQIIQ", head[4:32])
    if version not in {2, 3} or not 9 <= cluster_bits <= 21:
        raise no_image(name, "a damaged qcow2 image, or one of an unknown version")
    if virtual < SMALLEST:
        raise no_image(name, f"a qcow2 image with a disk of {human_size(virtual)}")
    encryption, entries, l1_offset, counts_offset, counts = struct.unpack(">IIQQI", head[32:60])
    features = struct.unpack(">Q", head[72:80])[0] if version == 3 and len(head) >= 80 else 0
    if backing or features & _EXTERNAL_DATA:
        raise OriginError(
            f"{name} depends on another file (a backing file or a data file)",
            advice="make it whole with `qemu-img convert -O qcow2`",
        )
    if encryption:
        raise OriginError(f"{name} is encrypted", advice="give an image without encryption")
    # An entry of the first table is for a table of one cluster, whose entries are of 8 or 16 bytes.
    covered = 1 << (2 * cluster_bits - (4 if features & _EXTENDED_L2 else 3))
    if entries * covered < virtual or not counts:
        raise no_image(
            name,
            "the header of a qcow2 image, without the tables that its disk of "
            f"{human_size(virtual)} needs",
        )
    end = max(l1_offset + 8 * entries, counts_offset + 8)
    if size is not None and end > size:
        raise cut_off(name, end, size)


def _check_raw(head: bytes, size: int | None, name: str) -> None:
    if size is None:
        return
    if size < SMALLEST:
        raise no_image(name, f"{size} bytes long, too short for a disk that a guest could boot")
    if size % 512:
        raise no_image(name, f"{size} bytes long, which is no multiple of 512")
    needed = 0
    if head[512:520] == b"EFI PART":
        needed = (int(struct.unpack("<Q", head[544:552])[0]) + 1) * 512
    elif head[510:512] == b"\x55\xaa":
        for entry in range(446, 510, 16):
            kind, (first, count) = (
                head[entry + 4],
                struct.unpack("<II", head[entry + 8 : entry + 16]),
            )
            if kind and kind != 0xEE:
                needed = max(needed, (first + count) * 512)
    if needed > size:
        raise cut_off(name, needed, size)
