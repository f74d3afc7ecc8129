"""The volumes of a template in the making: which are missing, which are of no use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocks.manifest.guest import Disk, Guest
from blocks.proxmox.properties import (
    encode_disk,
    encode_efidisk,
    encode_import,
    encode_tpmstate,
    owner_of,
    storage_of,
)
from blocks.units import MIB, human_size
from tasks.errors import StageError
from tasks.template.generations import read_name

Config = Mapping[str, Any]


def root_disk(guest: Guest) -> Disk | None:
    """The disk that the image goes to: the first of the boot order, else the first there is."""
    for slot in guest.boot:
        if (disk := guest.disk(slot)) is not None:
            return disk
    return guest.disks[0] if guest.disks else None


def require_root_disk(guest: Guest) -> Disk:
    """The disk that the image goes to. Raises StageError where none is declared."""
    disk = root_disk(guest)
    if disk is None:
        raise StageError(
            f"{guest.name} has no disk for the image",
            advice="declare one under `disks` in the manifest",
        )
    return disk


def new_volumes(guest: Guest, config: Config, image: str | None) -> dict[str, str]:
    """Config keys that make the volumes which the guest lacks.

    ``image``: volume id of what the root disk is made of, None where that disk is there already.
    """
    wanted: dict[str, str | None] = {
        "efidisk0": encode_efidisk(guest.firmware),
        "tpmstate0": encode_tpmstate(guest.firmware),
    }
    root = require_root_disk(guest)
    for disk in guest.disks:
        if disk is not root:
            wanted[disk.slot] = encode_disk(disk)
        elif image is not None:
            wanted[disk.slot] = encode_import(disk, image)
    return {key: value for key, value in wanted.items() if value and key not in config}


def declared_storages(guest: Guest) -> dict[str, str]:
    """Storage by slot, of every volume that the guest is to have."""
    firmware = guest.firmware
    wanted = {disk.slot: disk.storage for disk in guest.disks}
    if firmware.efi_storage is not None:
        wanted["efidisk0"] = firmware.efi_storage
    if firmware.tpm_storage is not None:
        wanted["tpmstate0"] = firmware.tpm_storage
    return wanted


def useless_slots(guest: Guest, config: Config) -> tuple[str, ...]:
    """Slots whose volume an earlier try made for what was declared then and is no longer.

    That is a volume on another storage, and a root disk of another image: the name that the live
    machine has then carries another digest. Only volumes named after this very guest count.
    """
    another_image = _another_image(guest, config)
    root = require_root_disk(guest).slot
    return tuple(
        slot
        for slot, storage in declared_storages(guest).items()
        if (volume := volume_in(config, slot))
        and owner_of(volume) == guest.vmid
        and (storage_of(volume) != storage or (slot == root and another_image))
    )


def to_be_made(guest: Guest, config: Config) -> frozenset[str]:
    """Slots of volumes that are missing, and of those that are to be made anew."""
    missing = declared_storages(guest).keys() - config.keys()
    return frozenset({*missing, *useless_slots(guest, config)})


def unused_volumes(config: Config) -> dict[str, str]:
    """Volume by slot, of what is the guest's but in no drive: ``unused0``, ..."""
    return {key: volume_in(config, key) for key in sorted(config) if key.startswith("unused")}


def refuse_too_small(guest: Guest, disk: Disk, size: int) -> None:
    """Refuse a disk that is smaller than the image, ``size`` in bytes. Raises StageError."""
    if size > disk.size:
        raise StageError(
            f"the image is larger than {disk.slot}: {human_size(size)} ({size} bytes) do not fit "
            f"into {human_size(disk.size)} ({disk.size} bytes)",
            advice=f"declare {disk.slot} of {guest.name} with at least {human_size(size)}; a disk "
            "can only grow",
        )


def same_size(found: int, wanted: int) -> bool:
    """Whether a volume was made with that size in bytes: LVM rounds it up to extents of 4 MiB."""
    return 0 <= found - wanted < 4 * MIB


def volume_in(config: Config, slot: str) -> str:
    """The volume id in a slot, empty for none."""
    return str(config.get(slot, "")).partition(",")[0]


def _another_image(guest: Guest, config: Config) -> bool:
    before = read_name(str(config.get("name", "")))[1]
    now = read_name(guest.name)[1]
    return before is not None and now is not None and before != now
