"""From rendered files to a seed ISO, and the names that seed ISOs have on a storage."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Protocol

from tasks.iso import checks, iso9660

# The date in every seed ISO, 1 January 2000 UTC, in both of its forms.
_SHORT_DATE = bytes((100, 1, 1, 0, 0, 0, 0))
_LONG_DATE = b"2000010100000000" + b"\0"
_SEED = re.compile(
    r"proxflow_(?P<env>[A-Za-z0-9.-]+)_(?P<guest>[A-Za-z0-9.-]+)"
    r"_(?P<digest>[0-9a-f]{12})_(?P<run>[A-Za-z0-9]{1,8})\.iso"
)


class Content(Protocol):
    """What a seed ISO is made of: its volume label, and its files by name."""

    @property
    def label(self) -> str:
        """The volume label."""
        ...

    @property
    def files(self) -> Mapping[str, str]:
        """Text of the files, by name."""
        ...


@dataclass(frozen=True)
class Built:
    """A finished seed ISO; ``size`` in bytes, ``sha256`` in hex."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class SeedName:
    """What the file name of a seed ISO says; ``digest`` and ``run`` are shortened."""

    env: str
    guest: str
    digest: str
    run: str


def seed_name(env: str, guest_label: str, digest: str, run: str) -> str:
    """The file name of a seed ISO on a storage.

    Only characters that Proxmox VE keeps in an upload's name; environment, guest and run have no
    underscore, so the parts can be told apart again. Raises RenderError for names that have one.
    """
    checks.name("env", env)
    checks.name("label", guest_label)
    short = re.sub(r"[^A-Za-z0-9]", "", run)[:8]
    if not re.fullmatch(r"[0-9a-f]{12,64}", digest) or not short:
        raise checks.RenderError("digest", "a seed name needs a SHA-256 in hex and a run id")
    return f"proxflow_{env}_{guest_label}_{digest[:12]}_{short}.iso"


def parse_seed_name(name: str) -> SeedName | None:
    """What a file name says, or None if it is not a seed ISO's."""
    found = _SEED.fullmatch(name)
    return SeedName(**found.groupdict()) if found else None


def build_seed(content: Content, target: Path) -> Built:
    """Writes the seed ISO: ISO 9660 with Joliet and Rock Ridge, readable by the owner alone.

    The file appears whole or not at all. The same content gives the same bytes.
    """
    data = _image(content)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    return Built(target, len(data), hashlib.sha256(data).hexdigest())


def _image(content: Content) -> bytes:
    pycdlib = _pycdlib()
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, vol_ident=content.label, joliet=3, rock_ridge="1.09")
    for index, (name, text) in enumerate(sorted(content.files.items())):
        data = text.encode()
        # The plain ISO name is never seen where Joliet or Rock Ridge is read; both are, always.
        iso.add_fp(
            BytesIO(data),
            len(data),
            iso_path=f"/F{index}.;1",
            joliet_path=f"/{name}",
            rr_name=name,
            file_mode=0o100400,
        )
    stream = BytesIO()
    iso.write_fp(stream)
    iso.close()
    return _undated(stream)


@lru_cache(maxsize=1)
def _pycdlib() -> ModuleType:
    import pycdlib

    return pycdlib


def _undated(stream: BytesIO) -> bytes:
    """The image with one date in all places that hold one, so that equal content is equal bytes."""
    image = bytearray(stream.getvalue())
    for volume in iso9660.volumes(stream):
        # Creation, modification and effective date; an expiry date is never set.
        for position in (813, 830, 864):
            image[volume.offset + position : volume.offset + position + 17] = _LONG_DATE
        at = volume.offset + 156 + 18
        image[at : at + 7] = _SHORT_DATE
        for record in iso9660.records(stream, volume.root, volume.root_size, joliet=volume.joliet):
            at = record.offset
            image[at + 18 : at + 25] = _SHORT_DATE
            raw = bytes(image[at : at + record.length])
            for signature, offset, payload in iso9660.system_use(raw):
                if signature == b"TF":
                    dates = len(payload[1:]) // 7
                    image[at + offset + 5 : at + offset + 5 + dates * 7] = _SHORT_DATE * dates
    return bytes(image)
