"""Creating and destroying machines."""

from __future__ import annotations

import time
import uuid
from typing import Any

from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig
from deployments.lab.errors import failure
from deployments.lab.qemu.devices import default_boot, drives, is_drive_key, parse_drive
from deployments.lab.qemu.pace import Pace
from deployments.lab.qemu.snapshots import disks_in_order
from deployments.lab.qemu.update import stored
from deployments.lab.qemu.volumes import Log, owned_volumes, realise_drive
from deployments.lab.storage import Storage, Volume


async def build_values(
    lab: Lab, node: str, vmid: int, params: dict[str, Any], log: Log, pace: Pace
) -> tuple[dict[str, str], list[tuple[Storage, Volume]]]:
    """Create all volumes and the texts of a new configuration.

    On failure every volume made so far is freed again and the error goes on.
    """
    values: dict[str, str] = {}
    made: list[tuple[Storage, Volume]] = []
    try:
        for key in sorted(k for k in params if is_drive_key(k)):
            asked = parse_drive(key, str(params[key]))
            drive = await realise_drive(lab, node, vmid, asked, log, pace)
            if drive.file != asked.file:
                made.append(lab.storages.volume(drive.file, node))
            values[key] = drive.text()
        for key, value in params.items():
            if not is_drive_key(key):
                text = stored(key, value)
                if text != "" or key not in ("description", "name"):
                    values[key] = text
    except BaseException:
        for storage, volume in made:
            storage.free(node, volume)
        raise
    values.setdefault("boot", default_boot(values))
    values.setdefault("smbios1", f"uuid={uuid.uuid4()}")
    values.setdefault("vmgenid", str(uuid.uuid4()))
    values["meta"] = f"creation-qemu={lab.config.creation_qemu},ctime={int(time.time())}"
    return values, made


def check_drives_exist(lab: Lab, node: str, params: dict[str, Any]) -> None:
    """Refuse before anything is made when an existing volume or an import source is missing."""
    for key in sorted(k for k in params if is_drive_key(k)):
        drive = parse_drive(key, str(params[key]))
        source = drive.values.get("import-from")
        if source:
            storage, volume = lab.storages.volume(str(source), node)
            if not storage.exists(node, volume):
                raise failure(f"failed to stat '{storage.shown_path(volume)}'")


def destroy(lab: Lab, node: str, vmid: int, config: GuestConfig, unreferenced: bool) -> list[str]:
    """Remove a machine's volumes and its file; returns what the tools say."""
    from deployments.lab.api.storage import linked_clones

    lines: list[str] = []
    sections = [config.values, config.pending, *config.snapshots.values()]
    volumes: dict[str, tuple[Storage, Volume]] = {}
    for section in sections:
        ordered = {d.key: section[d.key] for d in disks_in_order(section)} | section
        for storage, volume in owned_volumes(lab, node, vmid, ordered):
            volumes[volume.volid] = (storage, volume)
    for storage, volume in volumes.values():
        if volume.is_template_base and not storage.block and linked_clones(storage, node, volume):
            raise failure(f"base volume '{volume.volid}' is still in use by linked cloned")
    if unreferenced:
        for storage in lab.storages:
            if storage.serves(node) and "images" in storage.config.content:
                for volume in storage.volumes(node):
                    if volume.vmid == vmid:
                        volumes[volume.volid] = (storage, volume)
    for storage, volume in volumes.values():
        lines += storage.free(node, volume)
    lab.guests.delete(node, "qemu", vmid)
    return lines


def media_volumes(lab: Lab, node: str, values: dict[str, str]) -> list[tuple[Storage, Volume]]:
    """Volumes of all drives that name one, missing or not."""
    found = []
    for drive in drives(values):
        if ":" in drive.file:
            found.append(lab.storages.volume(drive.file, node))
    return found
