"""Storages with real files behind them: directories and a thin LVM pool imitated by files.

Volume names, refusals and shown paths follow scenarios 01, 03, 05 and 13.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from deployments.lab import images
from deployments.lab.errors import ApiError, bad_parameter, failure

FILE_FORMATS = {"raw": 1, "qcow2": 1, "subvol": 1, "vmdk": 1}
_SUBDIR = {
    "iso": "template/iso",
    "vztmpl": "template/cache",
    "import": "import",
    "snippets": "snippets",
    "backup": "dump",
}
_NAMES = {
    "iso": r"[^/]+\.(?:[iI][sS][oO]|[iI][mM][gG])",
    "vztmpl": r"[^/]+\.tar\.(?:gz|xz|zst|bz2)",
    "import": r"[A-Za-z0-9][^/]*\.(?:ova|qcow2|raw|vmdk)",
    "snippets": r"[^/]+",
    "backup": r"[^/]+\.(?:tgz|tar|vma)(?:\.(?:gz|lzo|zst))?",
}
_IMAGE = (
    r"(?P<name>(?P<base>base|vm)-(?P<own>\d+)-[^/\s]+?|[^/\s]+)\.(?P<fmt>raw|qcow2|vmdk|subvol)"
)
GIB = 1 << 30
_COUNT_SHARE = 20


@dataclass(frozen=True)
class Volume:
    """A parsed volume name. ``vtype`` is a content type, ``base`` the origin of a linked clone."""

    storage: str
    name: str
    vtype: str
    format: str
    vmid: int | None = None
    base: str | None = None

    @property
    def volid(self) -> str:
        """``storage:name``."""
        return f"{self.storage}:{self.name}"

    @property
    def file_name(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def is_template_base(self) -> bool:
        """Whether it is the read-only disk of a template."""
        return self.file_name.startswith("base-")


@dataclass
class StorageConfig:
    """One entry of the cluster's storage list. ``total`` in bytes, ``nodes`` empty for all."""

    storage: str
    type: str = "dir"
    content: list[str] = field(default_factory=lambda: ["images", "rootdir"])
    path: str = ""
    shared: bool | None = None
    nodes: list[str] = field(default_factory=list)
    total: int = 500 * GIB
    disabled: bool = False


class Storage:
    """One storage. ``root`` is the lab's folder for all storages."""

    def __init__(self, config: StorageConfig, root: Path) -> None:
        self.config = config
        self.id = config.storage
        self._root = root
        self._counted: dict[str, tuple[int, float]] = {}

    @property
    def block(self) -> bool:
        """Whether volumes are block devices rather than files."""
        return self.config.type == "lvmthin"

    def serves(self, node: str) -> bool:
        """Whether the storage exists on a node."""
        return not self.config.nodes or node in self.config.nodes

    def folder(self, node: str) -> Path:
        """Where the files really are."""
        return self._root / ("_shared" if self.config.shared else node) / self.id

    def content_text(self) -> str:
        """Content types, sorted, as one text."""
        return ",".join(sorted(self.config.content))

    def public_config(self) -> dict[str, Any]:
        """The entry as ``/storage`` shows it, without digest."""
        shown: dict[str, Any] = {
            "storage": self.id,
            "type": self.config.type,
            "content": self.content_text(),
        }
        if self.block:
            shown |= {"thinpool": "data", "vgname": "pve"}
        else:
            shown["path"] = self.config.path
        if self.config.shared is not None:
            shown["shared"] = int(self.config.shared)
        if self.config.nodes:
            shown["nodes"] = ",".join(self.config.nodes)
        if self.config.disabled:
            shown["disable"] = 1
        return shown

    # -- names -------------------------------------------------------------------------------

    def parse(self, name: str) -> Volume:
        """Understand a volume name (without storage); 500 in the real server's words if not."""
        if self.block:
            match = re.fullmatch(r"(?:vm|base)-(\d+)-\S+", name)
            if match is None:
                raise failure(f"unable to parse lvm volume name '{name}'")
            return Volume(self.id, name, "images", "raw", int(match.group(1)))
        kind, slash, rest = name.partition("/")
        if slash and kind in _NAMES and re.fullmatch(_NAMES[kind], rest):
            return Volume(self.id, name, kind, _file_format(kind, rest))
        linked = re.fullmatch(rf"(\d+)/(base-[^/\s]+)/(\d+)/{_IMAGE}", name)
        if linked:
            base = f"{linked.group(1)}/{linked.group(2)}"
            return Volume(self.id, name, "images", linked["fmt"], int(linked.group(3)), base)
        own = re.fullmatch(rf"(\d+)/{_IMAGE}", name)
        if own:
            return Volume(self.id, name, "images", own["fmt"], int(own.group(1)))
        raise failure(f"unable to parse directory volume name '{name}'")

    def _relative(self, volume: Volume) -> str:
        if self.block:
            return volume.name
        if volume.vtype in _SUBDIR:
            return f"{_SUBDIR[volume.vtype]}/{volume.name.partition('/')[2]}"
        own = volume.name.split("/")[-2:]
        return f"images/{own[0]}/{own[1]}"

    def file(self, node: str, volume: Volume) -> Path:
        """The real file of a volume."""
        return self.folder(node) / self._relative(volume)

    def shown_path(self, volume: Volume) -> str:
        """The path that the API and task logs show."""
        prefix = "/dev/pve" if self.block else self.config.path
        return f"{prefix}/{self._relative(volume)}"

    # -- volumes -----------------------------------------------------------------------------

    def exists(self, node: str, volume: Volume) -> bool:
        """Whether the volume is there."""
        return self.file(node, volume).exists()

    def info(self, node: str, volume: Volume) -> images.ImageInfo:
        """Size and format of a volume that exists."""
        return images.inspect_image(self.file(node, volume), volume.format)

    def next_name(self, node: str, vmid: int, fmt: str, prefix: str = "vm") -> Volume:
        """The lowest free disk number of a guest."""
        if self.block:
            stem = f"-{vmid}-disk-"
            return self.named(vmid, f"{prefix}{stem}{self._free_number(node, stem)}", fmt)
        folder = self.folder(node) / "images" / str(vmid)
        pattern = re.compile(rf"(?:vm|base)-{vmid}-disk-(\d+)(?:\..*)?")
        found = (pattern.fullmatch(entry.name) for entry in _entries(folder))
        taken = {int(match.group(1)) for match in found if match}
        number = next(n for n in range(len(taken) + 1) if n not in taken)
        return self.named(vmid, f"{prefix}-{vmid}-disk-{number}", fmt)

    def _free_number(self, node: str, stem: str) -> int:
        folder = self.folder(node)
        return next(
            number
            for number in count()
            if not any((folder / f"{kind}{stem}{number}").exists() for kind in ("vm", "base"))
        )

    def named(self, vmid: int, name: str, fmt: str) -> Volume:
        """A volume of a guest by its plain name."""
        return self.parse(name if self.block else f"{vmid}/{name}.{fmt}")

    def default_format(self, kind: str = "disk") -> str:
        """``raw``; cloud-init drives on directories are qcow2."""
        return "qcow2" if kind == "cloudinit" and not self.block else "raw"

    def check_format(self, fmt: str) -> None:
        """Refuse a format that the storage cannot hold."""
        if self.block and fmt != "raw":
            where = "/usr/share/perl5/PVE/Storage/LvmThinPlugin.pm line 140."
            raise failure(f"unsupported format '{fmt}' at {where}")

    def allocate(self, node: str, volume: Volume, size: int) -> list[str]:
        """Create an empty image of ``size`` bytes; returns the lines that the tools print."""
        self.check_format(volume.format)
        images.create_image(self.file(node, volume), volume.format, size)
        if self.block:
            return []
        options = (
            "fmt=qcow2 cluster_size=65536 extended_l2=off preallocation=metadata "
            f"compression_type=zlib size={size} lazy_refcounts=off refcount_bits=16"
            if volume.format == "qcow2"
            else f"fmt={volume.format} size={size} preallocation=off"
        )
        return [f"Formatting '{self.shown_path(volume)}', {options}"]

    def free(self, node: str, volume: Volume) -> list[str]:
        """Remove a volume; a missing one is only mentioned."""
        file = self.file(node, volume)
        if not file.exists():
            return [] if self.block else self._missing(volume)
        file.unlink()
        self.state_file(node, volume).unlink(missing_ok=True)
        if file.parent.name.isdigit() and not any(file.parent.iterdir()):
            file.parent.rmdir()
        return []

    def state_file(self, node: str, volume: Volume) -> Path:
        """Where the states of a volume at its snapshots are kept; gone with the volume."""
        return self.folder(node) / ".snapshots" / f"{volume.name.replace('/', '_')}.json"

    def _missing(self, volume: Volume) -> list[str]:
        shown = self.shown_path(volume)
        lines = [f"disk image '{shown}' does not exist"]
        if volume.is_template_base:
            chattr = "/usr/bin/chattr"
            lines = [
                f"{chattr}: No such file or directory while trying to stat {shown}",
                f"command '{chattr} -i {shown}' failed: exit code 1",
                *lines,
            ]
        return lines

    def volumes(self, node: str) -> Iterator[Volume]:
        """All volumes, in order of their names."""
        folder = self.folder(node)
        if self.block:
            names = [entry.name for entry in _entries(folder)]
        else:
            names = [
                f"{kind}/{entry.name}"
                for kind, sub in _SUBDIR.items()
                for entry in _entries(folder / sub)
            ]
            for owner in _entries(folder / "images"):
                names += [_image_name(owner, entry) for entry in _entries(owner)]
        for name in sorted(names):
            try:
                yield self.parse(name)
            except ApiError:
                continue

    def usage(self, node: str, full: bool = False, recent: bool = False) -> tuple[int, int]:
        """Used and total bytes; ``full`` pretends that nothing is left.

        ``recent`` allows a figure that is up to twenty times as old as counting it takes.
        """
        total = self.config.total
        if full:
            return total, total
        folder = str(self.folder(node))
        now = time.monotonic()
        used, good_until = self._counted.get(folder, (0, 0.0))
        if not recent or now > good_until:
            used = _allocated(folder)
            ended = time.monotonic()
            self._counted[folder] = (used, ended + (ended - now) * _COUNT_SHARE)
        return min(used, total), total


def _allocated(folder: str) -> int:
    """Bytes that the files below a folder take on the host."""
    used = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    used += _allocated(entry.path)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        used += entry.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
    return used


def _entries(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _image_name(owner: Path, entry: Path) -> str:
    """The volume name of an image file; a linked clone has its base in front."""
    name = f"{owner.name}/{entry.name}"
    if entry.suffix != ".qcow2":
        return name
    try:
        backing = images.inspect_image(entry, "qcow2").backing
    except images.NotQcow2Error:
        return name
    return f"{backing.removeprefix('../')}/{name}" if backing else name


def _file_format(kind: str, name: str) -> str:
    if kind == "iso":
        return "iso"
    if kind == "vztmpl":
        return "t" + name.rpartition(".tar.")[2].replace("gz", "gz")
    if kind == "import":
        return name.rpartition(".")[2]
    return kind if kind != "backup" else name.rpartition(".")[2]


class Storages:
    """The cluster's storages by name."""

    def __init__(self, configs: list[StorageConfig], root: Path) -> None:
        self._all = {config.storage: Storage(config, root) for config in configs}

    def __iter__(self) -> Iterator[Storage]:
        return iter(sorted(self._all.values(), key=lambda s: s.id))

    def get(self, storage: str, node: str | None = None) -> Storage:
        """A storage that exists, on the node if one is given; 500 otherwise."""
        found = self._all.get(storage)
        if found is None:
            raise failure(f"storage '{storage}' does not exist")
        if node is not None and not found.serves(node):
            raise failure(f"storage '{storage}' is not available on node '{node}'")
        return found

    def find(self, storage: str) -> Storage | None:
        """A storage or None."""
        return self._all.get(storage)

    def volume(self, volid: str, node: str | None = None) -> tuple[Storage, Volume]:
        """Storage and volume of ``storage:name``; 500 when either cannot be understood."""
        storage_id, colon, name = volid.partition(":")
        if not colon or not name:
            raise failure(f"unable to parse volume ID '{volid}'")
        storage = self.get(storage_id, node)
        return storage, storage.parse(name)

    def dump(self) -> list[dict[str, Any]]:
        """All entries, for the state file."""
        return [asdict(storage.config) for storage in self]


def require_storage(storages: Storages, storage: str, node: str) -> Storage:
    """The storage of a status call; the refusal is 400 there."""
    found = storages.find(storage)
    if found is None or not found.serves(node):
        raise bad_parameter(storage="No such storage.")
    return found
