"""Snapshots of machines: sections of the configuration and saved states of the images."""

from __future__ import annotations

import time
from typing import Any

from deployments.lab import images
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig, Section
from deployments.lab.errors import failure
from deployments.lab.files import read_json, write_json
from deployments.lab.guests import check_lock
from deployments.lab.qemu.devices import Drive, drives, is_unused_key
from deployments.lab.qemu.options import DISK_KEYS, UNUSED_KEYS
from deployments.lab.qemu.status import agent_enabled
from deployments.lab.qemu.volumes import NO_FILE, owned_volumes
from deployments.lab.storage import Storage, Volume
from deployments.lab.tasks import Task

RESERVED_NAMES = ("current", "pending")
_NOT_COPIED = ("lock", "snaptime", "description", "vmstate")


def disks_in_order(values: Section) -> list[Drive]:
    """Disks (no optical drives) in the order in which the server walks over them."""
    rank = {key: index for index, key in enumerate(DISK_KEYS)}
    found = [d for d in drives(values) if not d.is_cdrom and d.file not in NO_FILE]
    return sorted(found, key=lambda drive: rank[drive.key])


def can_snapshot(lab: Lab, node: str, values: Section) -> bool:
    """Whether every disk is on a format that has snapshots."""
    for drive in disks_in_order(values):
        storage, volume = lab.storages.volume(drive.file, node)
        if not storage.block and volume.format != "qcow2":
            return False
    return True


def create(
    lab: Lab, node: str, vmid: int, config: GuestConfig, name: str, description: str, task: Task
) -> None:
    """Take a snapshot of the configuration and all disks."""
    if config.values.get("template") == "1":
        raise failure("you can't take a snapshot if it's a template")
    check_lock(config)
    if name in config.snapshots:
        raise failure(f"snapshot name '{name}' already used")
    if not can_snapshot(lab, node, config.values):
        raise failure("snapshot feature is not available")
    running = lab.life.running(vmid) is not None
    if running and not agent_enabled(config.values):
        task.log("skipping guest filesystem freeze - disabled in VM options")
    for drive in disks_in_order(config.values):
        storage, volume = lab.storages.volume(drive.file, node)
        task.log(f"snapshotting 'drive-{drive.key}' ({volume.volid})")
        if running and not storage.block:
            task.log("internal qemu snapshot")
        save_state(storage, node, volume, name)
    section = {
        key: value
        for key, value in config.values.items()
        if key not in _NOT_COPIED and not is_unused_key(key)
    }
    section["snaptime"] = str(int(time.time()))
    if description:
        section["description"] = description
    config.snapshots[name] = section
    config.values["parent"] = name


def save_state(storage: Storage, node: str, volume: Volume, name: str) -> None:
    """Keep size and mark of a volume under a snapshot's name."""
    file = storage.file(node, volume)
    known = read_json(storage.state_file(node, volume), {})
    known[name] = {
        "size": storage.info(node, volume).size,
        "mark": images.read_mark(file),
    }
    write_json(storage.state_file(node, volume), known)


def saved_state(storage: Storage, node: str, volume: Volume, name: str) -> dict[str, Any] | None:
    """Size and mark of a volume at a snapshot."""
    found: dict[str, Any] | None = read_json(storage.state_file(node, volume), {}).get(name)
    return found


def require(config: GuestConfig, name: str) -> Section:
    """The section of a snapshot; 500 when there is none of that name."""
    if name not in config.snapshots:
        raise failure(f"snapshot '{name}' does not exist")
    return config.snapshots[name]


def remove(lab: Lab, node: str, config: GuestConfig, name: str) -> None:
    """Delete a snapshot; its children move up to its parent."""
    section = require(config, name)
    for drive in disks_in_order(section):
        storage, volume = lab.storages.volume(drive.file, node)
        drop_state(storage, node, volume, name)
    unhook(config, name)


def unhook(config: GuestConfig, name: str) -> None:
    """Take a snapshot out of the configuration; its children move up to its parent."""
    parent = config.snapshots.pop(name).get("parent")
    for other in [config.values, *config.snapshots.values()]:
        if other.get("parent") == name:
            other.pop("parent")
            if parent:
                other["parent"] = parent


def drop_state(storage: Storage, node: str, volume: Volume, name: str) -> None:
    """Forget a volume's state at a snapshot."""
    known = read_json(storage.state_file(node, volume), {})
    known.pop(name, None)
    write_json(storage.state_file(node, volume), known)


def restore_state(storage: Storage, node: str, volume: Volume, name: str) -> None:
    """Set a volume back to its state at a snapshot."""
    state = saved_state(storage, node, volume, name)
    if state is not None:
        file = storage.file(node, volume)
        images.resize_image(file, volume.format, state["size"])
        images.replace_mark(file, state["mark"])


def rollback(lab: Lab, node: str, vmid: int, config: GuestConfig, name: str) -> None:
    """Back to a snapshot: disks and options; the present description stays."""
    section = require(config, name)
    for drive in disks_in_order(section):
        storage, volume = lab.storages.volume(drive.file, node)
        restore_state(storage, node, volume, name)
    before = owned_volumes(lab, node, vmid, config.values)
    values = {k: v for k, v in section.items() if k not in ("snaptime", "description", "vmstate")}
    values["parent"] = name
    if "description" in config.values:
        values["description"] = config.values["description"]
    kept = {volume.volid for _, volume in owned_volumes(lab, node, vmid, values)}
    for _, volume in before:
        if volume.volid not in kept:
            free = next(key for key in UNUSED_KEYS if key not in values)
            values[free] = volume.volid
    config.values = values
    config.pending.clear()
    config.pending_delete.clear()


def listing(lab: Lab, vmid: int, config: GuestConfig) -> list[dict[str, Any]]:
    """Snapshots by name, then the pseudo entry ``current``."""
    rows: list[dict[str, Any]] = []
    for name, section in sorted(config.snapshots.items()):
        row: dict[str, Any] = {
            "name": name,
            "description": section.get("description", ""),
            "snaptime": int(section.get("snaptime", "0")),
            "vmstate": 0,
        }
        if section.get("parent"):
            row["parent"] = section["parent"]
        rows.append(row)
    current: dict[str, Any] = {
        "name": "current",
        "description": "You are here!",
        "digest": config.digest(),
        "running": int(lab.life.running(vmid) is not None),
    }
    if config.values.get("parent"):
        current["parent"] = config.values["parent"]
    return [*rows, current]
