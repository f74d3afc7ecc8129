"""Mount points of containers: new file systems, copies, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from deployments.lab import images
from deployments.lab.cluster import Lab
from deployments.lab.errors import ApiError, failure
from deployments.lab.formats import format_size
from deployments.lab.lxc.options import MOUNT_KEYS, mount_format
from deployments.lab.qemu.volumes import Log
from deployments.lab.schema import parse_property_string, print_property_string
from deployments.lab.storage import GIB, Storage, Volume

_NEW = re.compile(r"([^/:\s]+):(\d+(?:\.\d+)?)")
_MOUNTS = frozenset(MOUNT_KEYS)
_BLOCK = 4096
_GROUP_BLOCKS = 32768


@dataclass(frozen=True)
class Mount:
    """``rootfs`` or a mount point, parsed."""

    key: str
    values: dict[str, Any]

    @property
    def volume(self) -> str:
        """Volume id, or a request such as ``local:4``."""
        return str(self.values["volume"])

    def with_volume(self, volid: str, size: int) -> Mount:
        """A copy with another volume; ``size`` in bytes."""
        return Mount(self.key, {**self.values, "volume": volid, "size": format_size(size)})

    def text(self) -> str:
        """The canonical text."""
        return print_property_string(self.values, mount_format(self.key))


def mounts(values: dict[str, str]) -> list[Mount]:
    """All mount points, ``rootfs`` first."""
    keys = sorted((k for k in values if k in _MOUNTS), key=lambda k: (k != "rootfs", k))
    return [Mount(k, parse_property_string(values[k], mount_format(k), k)) for k in keys]


def requested(mount: Mount) -> tuple[str, float] | None:
    """Storage and GiB of a request for a new volume."""
    match = _NEW.fullmatch(mount.volume)
    return (match.group(1), float(match.group(2))) if match else None


def filesystem_lines(size: int) -> list[str]:
    """What ``mke2fs`` tells about a file system of ``size`` bytes."""
    blocks = size // _BLOCK
    backups = sorted(
        _GROUP_BLOCKS * base**power
        for base in (3, 5, 7)
        for power in range(12)
        if base**power > 1 or base == 3
        if _GROUP_BLOCKS * base**power < blocks
    )
    return [
        f"Creating filesystem with {blocks} 4k blocks and {size // 16384} inodes",
        "Filesystem UUID: 5f0c7f0e-3c0b-4f5e-9a54-0c1d2e3f4a5b",
        "Superblock backups stored on blocks: ",
        "\t" + ", ".join(str(one) for one in backups),
    ]


def new_volume(lab: Lab, node: str, vmid: int, storage: Storage, size: int, log: Log) -> Volume:
    """A new volume with a file system."""
    volume = storage.next_name(node, vmid, "raw")
    lab.check_space(storage, node, 0, "unable to create image")
    log(*storage.allocate(node, volume, size), *filesystem_lines(size))
    return volume


def realise_mount(lab: Lab, node: str, vmid: int, mount: Mount, log: Log) -> Mount:
    """Create the volume that is asked for, or look up the one that is named."""
    wanted = requested(mount)
    if wanted is not None:
        storage = lab.storages.get(wanted[0], node)
        size = int(wanted[1] * GIB)
        return mount.with_volume(new_volume(lab, node, vmid, storage, size, log).volid, size)
    storage, volume = lab.storages.volume(mount.volume, node)
    if not storage.exists(node, volume):
        raise failure(f"volume '{volume.volid}' does not exist")
    return mount.with_volume(volume.volid, storage.info(node, volume).size)


def owned(lab: Lab, node: str, vmid: int, values: dict[str, str]) -> list[tuple[Storage, Volume]]:
    """Volumes in a configuration that belong to the container, unused ones too."""
    names = [mount.volume for mount in mounts(values)]
    names += [text for key, text in sorted(values.items()) if key.startswith("unused")]
    found = []
    for name in dict.fromkeys(names):
        try:
            storage, volume = lab.storages.volume(name, node)
        except ApiError:
            continue
        if volume.vmid == vmid:
            found.append((storage, volume))
    return found


def resize_lines(storage: Storage, volume: Volume, before: int, after: int) -> list[str]:
    """What the file system tools tell when a volume grows."""
    shown = storage.shown_path(volume)
    blocks, inodes = before // _BLOCK, before // 16384
    passes = (
        *("Checking inodes, blocks, and sizes", "Checking directory structure"),
        *("Checking directory connectivity", "Checking reference counts"),
        "Checking group summary information",
    )
    return [
        *(["Image resized."] if not storage.block else []),
        "e2fsck 1.47.0 (5-Feb-2023)",
        *(f"Pass {number}: {what}" for number, what in enumerate(passes, 1)),
        f"{shown}: {inodes // 10}/{inodes} files (0.0% non-contiguous), "
        f"{blocks // 5}/{blocks} blocks",
        "resize2fs 1.47.0 (5-Feb-2023)",
        f"Resizing the filesystem on {shown} to {after // _BLOCK} (4k) blocks.",
        f"The filesystem on {shown} is now {after // _BLOCK} (4k) blocks long.",
        "",
    ]


def copy_volume(
    lab: Lab, node: str, newid: int, source: tuple[Storage, Volume], target: Storage, log: Log
) -> Volume:
    """A full copy by file; the mark of the source goes along."""
    origin, volume = source
    size = origin.info(node, volume).size
    made = new_volume(lab, node, newid, target, size, log)
    statistics = "Number of files: 6,681 (reg: 5,000, dir: 1,000, link: 681)"
    log("", statistics, "", "sent 230,000,000 bytes  received 120,000 bytes")
    images.replace_mark(target.file(node, made), images.read_mark(origin.file(node, volume)))
    return made
