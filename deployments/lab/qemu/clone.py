"""Templates, clones and moved disks."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from deployments.lab import images
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig, Section
from deployments.lab.errors import failure
from deployments.lab.formats import format_size
from deployments.lab.qemu.devices import Drive, complete_net, drives, is_net_key, is_unused_key
from deployments.lab.qemu.options import NET_FORMAT, SMBIOS_FORMAT
from deployments.lab.qemu.pace import Pace
from deployments.lab.qemu.snapshots import saved_state
from deployments.lab.qemu.volumes import NO_FILE, Log, transfer_lines
from deployments.lab.schema import parse_property_string, print_property_string
from deployments.lab.storage import Storage, Volume

_NOT_CLONED = ("template", "parent", "lock", "snaptime", "vmstate")


@dataclass(frozen=True)
class CloneOrder:
    """What a clone call asks for; ``values`` is the source's section."""

    newid: int
    values: Section
    full: bool
    name: str | None = None
    description: str | None = None
    storage: str | None = None
    format: str | None = None
    snapshot: str | None = None


def check_linked(lab: Lab, node: str, order: CloneOrder) -> None:
    """500 when a disk cannot be the base of a linked clone."""
    for drive in drives(order.values):
        if drive.is_cdrom or drive.file in NO_FILE:
            continue
        storage, volume = lab.storages.volume(drive.file, node)
        linkable = volume.file_name.startswith("base-") and volume.base is None
        if order.snapshot and not storage.block:
            what = f"a snapshot of '{volume.volid}'"
        elif not linkable and not (order.snapshot and storage.block):
            what = f"'{volume.volid}'"
        else:
            continue
        raise failure(f"Linked clone feature is not supported for {what} ({drive.key})")


async def clone_values(lab: Lab, node: str, source: int, order: CloneOrder, log: Log) -> Section:
    """Copy or link every disk in the time of a clone; returns the new configuration.

    Frees what it made on failure, and when it is interrupted.
    """
    log(f"creating a clone of VM {source} with ID {order.newid}")
    values: Section = {}
    pace = Pace(lab.clock, "qmclone", _bytes_to_copy(lab, node, order))
    made: list[tuple[Storage, Volume]] = []
    try:
        for key in sorted(order.values):
            text = order.values[key]
            if key in _NOT_CLONED or is_unused_key(key):
                continue
            if is_net_key(key):
                card = parse_property_string(text, NET_FORMAT)
                card.pop("macaddr", None)
                text = complete_net(print_property_string(card, NET_FORMAT))
            values[key] = text
        for drive in drives(order.values):
            if drive.file in NO_FILE or (drive.is_cdrom and not drive.is_cloudinit):
                continue
            new, place = _clone_drive(lab, node, drive, order, log)
            made.append(place)
            if _is_copied(drive, order):
                await pace.copy(_size(lab, node, drive, order), log)
            values[drive.key] = new.text()
        await pace.rest()
    except BaseException:
        for storage, volume in made:
            storage.free(node, volume)
        raise
    smbios = parse_property_string(order.values.get("smbios1", ""), SMBIOS_FORMAT)
    smbios["uuid"] = str(uuid.uuid4())
    values["smbios1"] = print_property_string(smbios, SMBIOS_FORMAT)
    values["vmgenid"] = str(uuid.uuid4())
    values["meta"] = f"creation-qemu={lab.config.creation_qemu},ctime={int(time.time())}"
    values["name"] = order.name or f"Copy-of-VM-{order.values.get('name', source)}"
    if order.description is not None:
        values["description"] = order.description
    return values


def _clone_drive(
    lab: Lab, node: str, drive: Drive, order: CloneOrder, log: Log
) -> tuple[Drive, tuple[Storage, Volume]]:
    origin, source = lab.storages.volume(drive.file, node)
    if not order.full and not drive.is_cloudinit and drive.bus != "tpmstate":
        log(f"create linked clone of drive {drive.key} ({source.volid})")
        target = _link(origin, node, source, order, log)
        place = (origin, target)
    else:
        log(f"create full clone of drive {drive.key} ({source.volid})")
        storage = lab.storages.get(order.storage, node) if order.storage else origin
        place = _copy(lab, node, drive, origin, source, storage, order, log)
    size = place[0].info(node, place[1]).size
    return drive.with_values(file=place[1].volid, size=format_size(size)), place


def _is_copied(drive: Drive, order: CloneOrder) -> bool:
    """Whether the tool that copies a disk tells of its progress."""
    if drive.file in NO_FILE or drive.is_cdrom or drive.bus == "efidisk":
        return False
    return order.full or drive.bus == "tpmstate"


def _size(lab: Lab, node: str, drive: Drive, order: CloneOrder) -> int:
    origin, source = lab.storages.volume(drive.file, node)
    state = saved_state(origin, node, source, order.snapshot) if order.snapshot else None
    return int(state["size"]) if state else origin.info(node, source).size


def _bytes_to_copy(lab: Lab, node: str, order: CloneOrder) -> int:
    copied = (drive for drive in drives(order.values) if _is_copied(drive, order))
    return sum(_size(lab, node, drive, order) for drive in copied)


def _link(origin: Storage, node: str, source: Volume, order: CloneOrder, log: Log) -> Volume:
    state = saved_state(origin, node, source, order.snapshot) if order.snapshot else None
    size = state["size"] if state else origin.info(node, source).size
    base_file = origin.file(node, source)
    plain = origin.next_name(node, order.newid, "raw" if origin.block else "qcow2")
    if origin.block:
        origin.allocate(node, plain, size)
        target = plain
    else:
        backing = f"../{source.name}"
        log(
            f"clone {source.name}: images, {plain.file_name}, {order.newid} to "
            f"{plain.file_name} (base={backing})"
        )
        options = "cluster_size=131072 extended_l2=on preallocation=metadata compression_type=zlib"
        overlay = f"backing_file={backing} backing_fmt={source.format}"
        log(
            f"Formatting '{origin.shown_path(plain)}', fmt=qcow2 {options} size={size} {overlay} "
            "lazy_refcounts=off refcount_bits=16"
        )
        target = origin.parse(f"{source.name}/{plain.name}")
        images.create_image(origin.file(node, target), "qcow2", size, backing)
    images.replace_mark(
        origin.file(node, target), state["mark"] if state else images.read_mark(base_file)
    )
    return target


def _copy(
    lab: Lab,
    node: str,
    drive: Drive,
    origin: Storage,
    source: Volume,
    storage: Storage,
    order: CloneOrder,
    log: Log,
) -> tuple[Storage, Volume]:
    fmt = "raw" if storage.block else order.format or source.format
    if drive.is_cloudinit:
        target = storage.named(order.newid, f"vm-{order.newid}-cloudinit", fmt)
    else:
        target = storage.next_name(node, order.newid, fmt)
    state = saved_state(origin, node, source, order.snapshot) if order.snapshot else None
    size = _size(lab, node, drive, order)
    mark = state["mark"] if state else images.read_mark(origin.file(node, source))
    lab.check_space(storage, node, origin.info(node, source).used, "unable to create image")
    log(*storage.allocate(node, target, size), f"allocated target volume '{target.volid}'")
    images.replace_mark(storage.file(node, target), mark)
    return storage, target


def make_base(lab: Lab, node: str, config: GuestConfig, only: str | None) -> None:
    """Turn disks into read-only bases of a template and mark the configuration."""
    for drive in drives(config.values):
        if drive.is_cdrom or drive.file in NO_FILE or only not in (None, drive.key):
            continue
        storage, volume = lab.storages.volume(drive.file, node)
        if volume.is_template_base:
            continue
        head, slash, last = volume.name.rpartition("/")
        base = storage.parse(f"{head}{slash}{last.replace('vm-', 'base-', 1)}")
        storage.file(node, volume).rename(storage.file(node, base))
        config.values[drive.key] = drive.with_values(file=base.volid).text()
    config.values["template"] = "1"


def move_disk(
    lab: Lab, node: str, vmid: int, drive: Drive, target: Storage, fmt: str | None, log: Log
) -> tuple[Drive, Storage, Volume]:
    """Copy a disk to another storage or format; returns the new drive and the old volume."""
    origin, source = lab.storages.volume(drive.file, node)
    log(
        f"copying volume '{source.volid}' from current storage '{origin.id}' "
        f"to target storage '{target.id}'"
    )
    log(f"create full clone of drive {drive.key} ({source.volid})")
    wanted = fmt or source.format
    if target.block and wanted != "raw":
        if fmt:
            text = f"format '{fmt}' is not supported by the target storage '{target.id}'"
            log(f"{text} - using 'raw' instead")
        wanted = "raw"
    volume = target.next_name(node, vmid, wanted)
    size = origin.info(node, source).size
    lab.check_space(target, node, origin.info(node, source).used, "unable to create image")
    log(*target.allocate(node, volume, size), f"allocated target volume '{volume.volid}'")
    images.replace_mark(target.file(node, volume), images.read_mark(origin.file(node, source)))
    if drive.bus != "efidisk":
        log(*transfer_lines(size))
    if source.is_template_base:
        base = target.parse(
            volume.name.replace(f"/vm-{vmid}", f"/base-{vmid}").replace("vm-", "base-", 1)
        )
        target.file(node, volume).rename(target.file(node, base))
        volume = base
    return drive.with_values(file=volume.volid, size=format_size(size)), origin, source
