"""Rewrites the boot menus inside an install ISO and leaves every other byte where it was.

Ubuntu asks before it wipes a disk, and Debian does not look for a seed, unless the kernel command
line says so; SUSE's menu boots the disk if nobody presses a key. They need other boot menus.
Rebuilding the image would have to get boot sectors, El Torito entries, load sizes and partition
tables right for each release. So nothing is rebuilt: the image is copied, and only these bytes
differ afterwards:

- the menu files, in place where they fit into the sectors that they had, else in new sectors
  behind the image;
- the size (and place) in their directory records, in the ISO 9660 and in the Joliet tree;
- their lines in md5sum.txt;
- on SUSE's media, default and time-out of the menu inside the image that UEFI boots from;
- the image's length in the volume descriptors, if it grew.

The boot catalogue, the loaders and their signatures are not touched. One pass, flat memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import BinaryIO, Protocol

from tasks.iso import iso9660, menus
from tasks.iso.distros import Family
from tasks.iso.iso9660 import SECTOR, IsoError, Record, Volume

__all__ = ["IsoError", "Remastered", "remaster", "remaster_key", "remaster_name", "sha256_of"]

Progress = Callable[[int, int], None]


class Hash(Protocol):
    """What :func:`remaster` feeds: any of hashlib's."""

    def update(self, data: memoryview, /) -> object:
        """Take more bytes, in order."""


_CHUNK = 1024 * 1024
_PIECE = 16 * 1024 * 1024
_LARGEST_MENU = 1024 * 1024
_LARGEST_SUMS = 64 * 1024 * 1024
# To be raised whenever the same input gives another image: cached images have it in their name.
_VERSIONS: dict[Family, int] = {"autoyast": 2}
# Long enough for a menu; the loaders beside it hold shorter texts.
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e]{128,}")


@dataclass(frozen=True)
class Remastered:
    """A rewritten image; ``size`` in bytes, ``changed`` the paths of the rewritten menus."""

    path: Path
    size: int
    changed: tuple[str, ...]


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def remaster_key(source_sha256: str, family: Family, args: tuple[str, ...] | None = None) -> str:
    """What the rewritten image depends on, as a SHA-256 in hex: a name for it in a cache."""
    words = _args(family, args)
    version = _VERSIONS.get(family, 1)
    text = "\0".join((str(version), source_sha256.lower(), family, *words))
    return hashlib.sha256(text.encode()).hexdigest()


def remaster_name(iso: str, key: str) -> str:
    """The file name of a rewritten image: the original's with the beginning of its key."""
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", iso.rpartition("/")[2])
    return f"{stem.removesuffix('.iso')}.proxflow-{key[:12]}.iso"


def is_remastered(iso: str) -> bool:
    """Whether a file name or volume id is one that :func:`remaster_name` gave."""
    return re.search(r"\.proxflow-[0-9a-f]{12}\.iso$", iso) is not None


def remaster(
    source: Path,
    target: Path,
    family: Family,
    args: tuple[str, ...] | None = None,
    on_progress: Progress | None = None,
    digest: Hash | None = None,
) -> Remastered:
    """Copies an install ISO with boot menus that start its installer unattended.

    ``args`` are kernel arguments, the family's own by default. ``on_progress`` gets bytes done and
    bytes in all. ``digest``, if given, is fed with the image meanwhile; that takes longer than the
    copy. The target appears whole or not at all. Raises IsoError where the source is no ISO 9660
    image, or none with a boot menu of an installer.
    """
    words = _args(family, args)
    with source.open("rb") as stream:
        plan = _plan(stream, source.stat().st_size, family, words)
        size = _write(stream, plan, target, on_progress, digest)
    return Remastered(target, size, tuple(plan.menus))


def _args(family: Family, args: tuple[str, ...] | None) -> tuple[str, ...]:
    words = menus.KERNEL_ARGS.get(family) if args is None else args
    if words is None:
        raise IsoError(f"{family} reads the seed by itself; its install ISO stays as it is")
    for word in words:
        if not re.fullmatch(r"[\x20-\x7e]+", word) or re.search(r"['\"\\*?\[]", word):
            raise IsoError(f"the kernel argument {word!r} cannot be passed through a boot loader")
    return words


@dataclass
class _Plan:
    """Which bytes of the image become others, and what is put behind it. ``size`` in bytes."""

    size: int
    volumes: tuple[Volume, ...]
    menus: list[str] = field(default_factory=list)
    patches: dict[int, bytes] = field(default_factory=dict)
    appended: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        """Where new sectors begin."""
        return -(-self.size // SECTOR) * SECTOR


def _plan(stream: BinaryIO, size: int, family: Family, args: tuple[str, ...]) -> _Plan:
    plan = _Plan(size, iso9660.volumes(stream))
    records = [record for volume in plan.volumes for record in iso9660.walk(stream, volume)]
    sums: dict[str, tuple[bytes, bytes]] = {}
    installer = False
    for record in _one_each(records):
        loader = menus.loader_of(record.path)
        if loader is None or record.size > _LARGEST_MENU:
            continue
        old = iso9660.read_at(stream, record.extent * SECTOR, record.size)
        # Latin-1 keeps every byte, whatever the menu is written in.
        text = old.decode("latin-1")
        installer = installer or menus.boots_installer(text, loader)
        new = menus.rewrite(text, loader, family, args).encode("latin-1")
        if new == old:
            continue
        if record.multi_extent:
            raise IsoError(f"{record.path} is stored in pieces, which no install ISO does")
        _replace(plan, [other for other in records if other.extent == record.extent], new)
        plan.menus.append(record.path)
        sums[record.path] = (old, new)
    if not installer:
        raise IsoError("the image has no boot menu that starts an installer; is it an install ISO?")
    if family == "autoyast":
        _choose_within(stream, plan, records)
    _correct_sums(stream, plan, records, sums)
    if plan.appended:
        for volume in plan.volumes:
            blocks = (plan.end + len(plan.appended)) // SECTOR
            plan.patches[volume.offset + 80] = _both(blocks)
    return plan


def _one_each(records: list[Record]) -> Iterator[Record]:
    """The files, each once: both trees, and hard links, share their contents."""
    seen: set[int] = set()
    for record in records:
        if not record.directory and record.size and record.extent not in seen:
            seen.add(record.extent)
            yield record


def _replace(plan: _Plan, records: list[Record], new: bytes) -> None:
    """New contents for a file, under all of its records."""
    first = records[0]
    room = -(-first.size // SECTOR) * SECTOR
    padded = new + bytes(-len(new) % SECTOR)
    if len(new) <= room:
        extent = first.extent
        plan.patches[extent * SECTOR] = new + bytes(room - len(new))
    else:
        extent = (plan.end + len(plan.appended)) // SECTOR
        plan.appended += padded
    for record in records:
        plan.patches[record.offset + 2] = _both(extent) + _both(len(new))


def _choose_within(stream: BinaryIO, plan: _Plan, records: list[Record]) -> None:
    """The menu inside the image that UEFI boots from, for media where it stands alone.

    SLES 15 and Leap 15 keep a whole second menu there (openSUSE/installation-images). Nothing of
    the file system is touched: the text stays as long as it was, and where it was.
    """
    images = iso9660.efi_images(stream)
    for record in _one_each(records):
        if record.extent not in images or record.size > _LARGEST_SUMS:
            continue
        data = iso9660.read_at(stream, record.extent * SECTOR, record.size)
        for found in _TEXT.finditer(data):
            old = found[0].decode("ascii")
            if not menus.boots_installer(old, "grub"):
                continue
            new = menus.rewrite_in_place(old)
            if new is None:
                raise IsoError(
                    f"UEFI boots by a menu inside {record.path}, which does not start the "
                    "installer and has no line to say so in"
                )
            if new != old:
                plan.patches[record.extent * SECTOR + found.start()] = new.encode("ascii")
                plan.menus.append(record.path)


def _correct_sums(
    stream: BinaryIO, plan: _Plan, records: list[Record], sums: dict[str, tuple[bytes, bytes]]
) -> None:
    """The menus' lines in the lists of checksums, which the live system may compare."""
    for record in _one_each(records):
        name = record.path.lower()
        if name not in {"md5sum.txt", "sha256sum.txt"} or record.size > _LARGEST_SUMS:
            continue
        algorithm = hashlib.md5 if name.startswith("md5") else hashlib.sha256
        text = iso9660.read_at(stream, record.extent * SECTOR, record.size)
        for path, (old, new) in sums.items():
            before = algorithm(old, usedforsecurity=False).hexdigest().encode()
            after = algorithm(new, usedforsecurity=False).hexdigest().encode()
            line = rb"^%b +\*?(?:\./)?%b\r?$" % (before, re.escape(path.encode()))
            for found in re.finditer(line, text, re.MULTILINE):
                plan.patches[record.extent * SECTOR + found.start()] = after


def _both(number: int) -> bytes:
    """A number as ISO 9660 writes it: little endian, then big endian."""
    return struct.pack("<I", number) + struct.pack(">I", number)


def _write(
    stream: BinaryIO,
    plan: _Plan,
    target: Path,
    on_progress: Progress | None,
    digest: Hash | None,
) -> int:
    """The size of what was written.

    The kernel copies, and a second thread takes the checksum of what is there already. Nothing is
    forced to the disk: whoever keeps the image compares the checksum before it is used.
    """
    total = plan.end + len(plan.appended) if plan.appended else plan.size
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    written: Queue[int | None] = Queue()
    try:
        with os.fdopen(descriptor, "w+b", buffering=0) as output, ThreadPoolExecutor(1) as pool:
            reader = pool.submit(_feed, digest, output.fileno(), written) if digest else None
            try:
                for done in _copied(stream.fileno(), output.fileno(), plan):
                    written.put(done)
                    if on_progress is not None:
                        on_progress(done, total)
            finally:
                written.put(None)
            if reader is not None:
                reader.result()
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    return total


def _feed(digest: Hash, output: int, written: Queue[int | None]) -> None:
    """Feeds a file that grows to the ends that ``written`` tells, None being the last."""
    position, buffer = 0, memoryview(bytearray(_CHUNK))
    while (end := written.get()) is not None:
        while position < end:
            got = os.preadv(output, [buffer[: min(_CHUNK, end - position)]], position)
            if not got:
                raise IsoError(f"the rewritten image ends at byte {position}")
            digest.update(buffer[:got])
            position += got


def _copied(source: int, output: int, plan: _Plan) -> Iterator[int]:
    """Copies the image piece by piece, patched; gives the ends of what is finished."""
    position = 0
    while position < plan.size:
        copied = _copy(source, output, position, min(_PIECE, plan.size - position))
        if not copied:
            raise IsoError(f"the image became shorter while it was read, at byte {position}")
        end = position + copied
        for offset, data in plan.patches.items():
            start, stop = max(offset, position), min(offset + len(data), end)
            if start < stop:
                os.pwrite(output, data[start - offset : stop - offset], start)
        position = end
        yield position
    if plan.appended:
        rest = bytes(plan.end - plan.size) + bytes(plan.appended)
        os.pwrite(output, rest, plan.size)
        yield plan.size + len(rest)


def _copy(source: int, output: int, position: int, size: int) -> int:
    """Copies a piece to the same place in another file; bytes copied, 0 at the end of the source.

    Within the kernel where both file systems can, else through memory.
    """
    if hasattr(os, "copy_file_range"):
        with suppress(OSError):
            return os.copy_file_range(source, output, size, position, position)
    data = os.pread(source, min(size, _CHUNK), position)
    sent = 0
    while sent < len(data):
        sent += os.pwrite(output, data[sent:], position + sent)
    return len(data)
