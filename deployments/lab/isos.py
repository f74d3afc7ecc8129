"""ISO images: small ones made for seeds, and reading those that were uploaded."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

SEED_LABELS = ("OEMDRV", "CIDATA")
ANSWER_FILES = ("ks.cfg", "user-data", "preseed.cfg", "autoinst.xml")
_FILE_LIMIT = 1 << 20


@dataclass(frozen=True)
class IsoContent:
    """Volume label and the text files of the root folder (names in lower case)."""

    label: str = ""
    files: dict[str, str] = field(default_factory=dict)
    bootable: bool = False

    @property
    def is_seed(self) -> bool:
        """Whether it only holds answers: a label or file that installers look for, no boot code."""
        named = self.label.upper() in SEED_LABELS or bool(set(ANSWER_FILES) & set(self.files))
        return named and not self.bootable


def make_iso(file: Path, label: str, files: dict[str, str]) -> None:
    """Write a small ISO 9660 image with Joliet and Rock Ridge names; folders are made as needed."""
    import pycdlib

    iso = pycdlib.PyCdlib()
    iso.new(vol_ident=label, joliet=3, rock_ridge="1.09", interchange_level=4)
    folders: dict[str, str] = {"": ""}
    for index, (path, text) in enumerate(files.items()):
        data = text.encode()
        parent, _, name = path.rpartition("/")
        iso.add_fp(
            io.BytesIO(data),
            len(data),
            iso_path=f"{_folder(iso, folders, parent)}/F{index:07d}.;1",
            rr_name=name,
            joliet_path=f"/{path}",
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.tmp")
    iso.write(str(partial))
    iso.close()
    partial.replace(file)


def _folder(iso: Any, folders: dict[str, str], path: str) -> str:
    """The plain ISO path of a folder, which is made where it is not there yet."""
    if path not in folders:
        parent, _, name = path.rpartition("/")
        plain = f"{_folder(iso, folders, parent)}/D{len(folders):07d}"
        iso.add_directory(iso_path=plain, rr_name=name, joliet_path=f"/{path}")
        folders[path] = plain
    return folders[path]


def read_file(file: Path, path: str) -> str | None:
    """The text of a file in an image, by its Rock Ridge path; None where there is none."""
    import pycdlib
    from pycdlib.pycdlibexception import PyCdlibException

    iso, out = pycdlib.PyCdlib(), io.BytesIO()
    try:
        iso.open(str(file))
        iso.get_rock_ridge_facade().get_file_from_iso_fp(out, rr_path=f"/{path}")
    except (PyCdlibException, OSError, IndexError, ValueError):
        return None
    finally:
        with contextlib.suppress(PyCdlibException):
            iso.close()
    return out.getvalue().decode(errors="replace")


def read_iso(file: Path) -> IsoContent:
    """Label and small root files of an image; empty for anything that is no ISO 9660.

    An unchanged file is read only once.
    """
    try:
        stat = file.stat()
    except FileNotFoundError:
        return IsoContent()
    return _read_iso(file, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=256)
def _read_iso(file: Path, _changed: int, _size: int) -> IsoContent:
    import pycdlib
    from pycdlib.pycdlibexception import PyCdlibException

    iso = pycdlib.PyCdlib()
    try:
        iso.open(str(file))
    except (PyCdlibException, OSError, IndexError, ValueError):
        return IsoContent()
    try:
        label = iso.pvd.volume_identifier.decode(errors="replace").strip()
        return IsoContent(label, _root_files(iso), iso.eltorito_boot_catalog is not None)
    finally:
        iso.close()


def _root_files(iso: Any) -> dict[str, str]:
    reader, kind = iso, "iso_path"
    if iso.has_rock_ridge():
        reader, kind = iso.get_rock_ridge_facade(), "rr_path"
    elif iso.has_joliet():
        reader, kind = iso.get_joliet_facade(), "joliet_path"
    found: dict[str, str] = {}
    for child in iso.list_children(**{kind: "/"}):
        if child is None or child.is_dir() or child.is_dot() or child.is_dotdot():
            continue
        if child.get_data_length() > _FILE_LIMIT:
            continue
        raw = child.rock_ridge.name() if kind == "rr_path" else child.file_identifier()
        name = raw.decode("utf-16_be" if kind == "joliet_path" else "utf-8", errors="replace")
        out = io.BytesIO()
        reader.get_file_from_iso_fp(out, **{kind: f"/{name}"})
        plain = name.partition(";")[0].rstrip(".").lower()
        found[plain] = out.getvalue().decode(errors="replace")
    return found
