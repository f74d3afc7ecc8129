"""Volumes behind drives: checks before a task, creation, import, release."""

from __future__ import annotations

import re
from collections.abc import Callable

from deployments.lab import images
from deployments.lab.cluster import Lab
from deployments.lab.errors import ApiError, bad_parameters, failure
from deployments.lab.formats import format_size
from deployments.lab.qemu.devices import Drive, is_drive_key, is_unused_key, parse_drive
from deployments.lab.qemu.pace import Pace, progress_line
from deployments.lab.routing import Call
from deployments.lab.storage import GIB, Storage, Volume

_NEW_DISK = re.compile(r"([^/:\s]+):(\d+(?:\.\d+)?)")
_CLOUDINIT = re.compile(r"([^/:\s]+):cloudinit")
NO_FILE = ("none", "cdrom")
_IMPORT_SYNTAX = "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>"
Log = Callable[..., None]


def check_drive(call: Call, node: str, vmid: int, drive: Drive) -> None:
    """Everything that a request for a drive can be refused for before work begins."""
    lab, file = call.lab, drive.file
    source = drive.values.get("import-from")
    new = _NEW_DISK.fullmatch(file)
    if source is not None:
        _check_import(call, node, drive, str(source), new)
    if file in NO_FILE:
        return
    cloudinit = _CLOUDINIT.fullmatch(file)
    if new or cloudinit:
        match = new or cloudinit
        assert match is not None
        storage = lab.storages.get(match.group(1), node)
        call.require(f"/storage/{storage.id}", "Datastore.AllocateSpace")
        if "images" not in storage.config.content:
            raise failure(f"storage '{storage.id}' does not support content-type 'images'")
        return
    if file.startswith("/"):
        raise failure("Only root can pass arbitrary filesystem paths.")
    _storage, volume = lab.storages.volume(file, node)
    if volume.vtype == "iso" and not drive.is_cdrom:
        raise bad_parameters({drive.key: "explicit 'media=cdrom' is required for iso images"})
    check_volume_access(call, vmid, volume)


def _check_import(
    call: Call, node: str, drive: Drive, source: str, new: re.Match[str] | None
) -> None:
    if new is None or float(new.group(2)) != 0:
        raise bad_parameters({drive.key: _IMPORT_SYNTAX})
    if source.startswith("/"):
        if not call.who.is_root:
            where = "at /usr/share/perl5/PVE/Storage.pm line 640."
            raise failure(f"Only root can pass arbitrary filesystem paths. {where}")
        raise ApiError(501, "the lab has no host file system to import from")
    _storage, volume = call.lab.storages.volume(source, node)
    if volume.vtype not in ("images", "import"):
        text = f"{volume.volid} has wrong type '{volume.vtype}' - needs to be 'images' or 'import'"
        raise bad_parameters({drive.key: text})
    check_volume_access(call, None, volume)


def check_volume_access(call: Call, vmid: int | None, volume: Volume) -> None:
    """Privileges to use an existing volume."""
    path = f"/storage/{volume.storage}"
    if volume.vmid is None:
        call.require(path, "Datastore.AllocateSpace", "Datastore.Audit", any_of=True)
    elif volume.vmid != vmid:
        call.require(path, "Datastore.Allocate")


async def realise_drive(
    lab: Lab, node: str, vmid: int, drive: Drive, log: Log, pace: Pace
) -> Drive:
    """Create, import or look up the volume of a drive; returns the drive as the config keeps it.

    ``pace``: how fast an import goes; nothing else waits.
    """
    if drive.file in NO_FILE:
        return drive.with_values(size=None)
    cloudinit = _CLOUDINIT.fullmatch(drive.file)
    if cloudinit:
        return _new_cloudinit(lab, node, vmid, drive, cloudinit.group(1), log)
    new = _NEW_DISK.fullmatch(drive.file)
    if new and drive.values.get("import-from"):
        return await _imported(lab, node, vmid, drive, new.group(1), log, pace)
    if new:
        storage = lab.storages.get(new.group(1), node)
        return _new_disk(lab, node, vmid, drive, storage, float(new.group(2)), log)
    storage, volume = lab.storages.volume(drive.file, node)
    if not storage.exists(node, volume):
        missing = f"no such logical volume pve/{volume.name}" if storage.block else None
        raise failure(missing or f"volume '{volume.volid}' does not exist")
    if drive.is_cloudinit:
        return drive.with_values(media="cdrom", size=None)
    size = storage.info(node, volume).size
    return drive.with_values(size=format_size(size), format=None)


def _new_disk(
    lab: Lab, node: str, vmid: int, drive: Drive, storage: Storage, gibibytes: float, log: Log
) -> Drive:
    fmt = str(drive.values.get("format") or storage.default_format())
    size = int(gibibytes * GIB)
    if drive.bus == "efidisk":
        size = max(images.EFI_BYTES, 4 << 20) if storage.block else images.EFI_BYTES
    if drive.bus == "tpmstate":
        size = images.TPM_BYTES
    storage.check_format(fmt)
    volume = storage.next_name(node, vmid, fmt)
    if volume.format != "qcow2":
        lab.check_space(storage, node, size if not storage.block else 0, "unable to create image")
    log(*storage.allocate(node, volume, size))
    if drive.bus == "efidisk":
        log(*transfer_lines(images.EFI_BYTES))
        if drive.values.get("pre-enrolled-keys"):
            firmware = "/usr/share/pve-edk2-firmware//OVMF_VARS_4M.ms.fd"
            log(f"INFO: reading raw edk2 varstore from {firmware}")
            log("INFO: var store range: 0x64 -> 0x40000")
    made = drive.with_values(file=volume.volid, size=format_size(size), format=None)
    log(f"{drive.key}: successfully created disk '{made.text()}'")
    return made


def _new_cloudinit(
    lab: Lab, node: str, vmid: int, drive: Drive, storage_id: str, log: Log
) -> Drive:
    storage = lab.storages.get(storage_id, node)
    fmt = str(drive.values.get("format") or storage.default_format("cloudinit"))
    volume = storage.named(vmid, f"vm-{vmid}-cloudinit", fmt)
    if not storage.exists(node, volume):
        log(*storage.allocate(node, volume, images.CLOUDINIT_BYTES))
    made = drive.with_values(file=volume.volid, media="cdrom", format=None, size=None)
    log(f"{drive.key}: successfully created disk '{made.text()}'")
    return made


async def _imported(
    lab: Lab, node: str, vmid: int, drive: Drive, storage_id: str, log: Log, pace: Pace
) -> Drive:
    storage = lab.storages.get(storage_id, node)
    origin, source = lab.storages.volume(str(drive.values["import-from"]), node)
    if not origin.exists(node, source):
        raise failure(f"failed to stat '{origin.shown_path(source)}'")
    info = origin.info(node, source)
    wanted = str(drive.values.get("format") or info.format)
    fmt = "raw" if storage.block or wanted not in ("raw", "qcow2") else wanted
    volume = storage.next_name(node, vmid, fmt)
    lab.check_space(storage, node, info.used, "unable to create image")
    log(f"create full clone of drive ({source.volid})")
    log(*storage.allocate(node, volume, info.size))
    log(f"allocated target volume '{volume.volid}'")
    try:
        await pace.copy(info.size, log)
    except BaseException:
        storage.free(node, volume)
        raise
    target = storage.file(node, volume)
    mark = images.read_mark(origin.file(node, source)) or {"image": source.file_name}
    images.write_mark(target, mark)
    made = drive.with_values(
        file=volume.volid, size=format_size(info.size), format=None, import_from=None
    )
    log(f"{drive.key}: successfully created disk '{made.text()}'")
    return made


def transfer_lines(size: int) -> list[str]:
    """What ``qemu-img`` tells about the progress of what is done at once."""
    return [progress_line(0, size), progress_line(size, size)]


def owned_volumes(
    lab: Lab, node: str, vmid: int, values: dict[str, str]
) -> list[tuple[Storage, Volume]]:
    """Volumes in a configuration (drives and unused ones) that belong to the guest."""
    found: list[tuple[Storage, Volume]] = []
    names = [parse_drive(k, text).file for k, text in values.items() if is_drive_key(k)]
    names += [parse_drive(k, values[k]).file for k in sorted(values) if is_unused_key(k)]
    for name in dict.fromkeys(names):
        if name in NO_FILE:
            continue
        try:
            storage, volume = lab.storages.volume(name, node)
        except ApiError:
            continue
        if volume.vmid == vmid:
            found.append((storage, volume))
    return found
