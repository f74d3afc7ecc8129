"""``python -m deployments.lab image``: a disk image from which the lab's templates can be made."""

from __future__ import annotations

import argparse
import re
import struct
from pathlib import Path
from typing import Final, Literal, get_args

from deployments.lab import images
from deployments.lab.files import partial_path
from deployments.lab.formats import format_size, parse_size

Format = Literal["qcow2", "raw"]

SMALLEST: Final = 1 << 20
LARGEST: Final = 8 << 40
_SECTOR: Final = 512
_FIRST_SECTOR: Final = 1024


class ImageFileError(ValueError):
    """An image that cannot be written there; the text says the place and what would be right."""


def build_parser() -> argparse.ArgumentParser:
    """The grammar of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m deployments.lab image",
        description="Write a small, valid disk image without a system in it. A template can be "
        "built from it on the lab, whose guests boot from every image: `image: ./PATH` in the "
        "template's manifest.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad option or place; nothing was written.",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="the new file, such as lab.qcow2")
    parser.add_argument(
        "--size",
        type=_size,
        default=2 << 30,
        metavar="SIZE",
        help="size of the disk in the image, such as 512M or 2G (default 2G); the file takes a "
        "few kilobytes of the disk here",
    )
    parser.add_argument(
        "--format",
        choices=get_args(Format),
        default="qcow2",
        help="default qcow2; a raw image is uploaded in its whole size",
    )
    return parser


def run(arguments: list[str]) -> int:
    """Write the image that a command line asks for; returns the exit code.

    ImageFileError where the file must not be written, OSError where it cannot.
    """
    options = build_parser().parse_args(arguments)
    make_image(options.path, options.size, options.format)
    print(f"lab: wrote {options.path}: {options.format}, a disk of {format_size(options.size)}")
    return 0


def make_image(path: Path, size: int, fmt: Format) -> None:
    """Write a sparse image of ``size`` bytes; equal arguments give equal bytes.

    ImageFileError when something is there already, or the folder is missing.
    """
    folder = path.absolute().parent
    if path.exists() or path.is_symlink():
        raise ImageFileError(f"{path} is there already; remove it, or give another name")
    if not folder.is_dir():
        reason = "is no folder" if folder.exists() else "does not exist"
        raise ImageFileError(f"{path}: {folder} {reason}; make the folder first, or name another")
    try:
        images.create_image(path, fmt, size)
    except OSError as error:
        partial_path(path).unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    if fmt == "raw":
        _write_partition(path, size)


def _write_partition(path: Path, size: int) -> None:
    """A partition table with one Linux partition: without one, nothing boots from a raw image."""
    sectors = min(size // _SECTOR - _FIRST_SECTOR, 2**32 - 1)
    with path.open("r+b") as handle:
        handle.seek(446)
        handle.write(struct.pack("<4B4BII", 0x80, 0, 0, 0, 0x83, 0, 0, 0, _FIRST_SECTOR, sectors))
        handle.seek(510)
        handle.write(b"\x55\xaa")


def _size(text: str) -> int:
    """Bytes of a size as it is written on the command line."""
    size = parse_size(text) if re.fullmatch(r"[0-9.]+[MGT]", text) else None
    if size is None or size % _SECTOR:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; give one such as 512M or 2G")
    if not SMALLEST <= size <= LARGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is out of range; give "
            f"{format_size(SMALLEST)} to {format_size(LARGEST)}, such as 2G"
        )
    return size
