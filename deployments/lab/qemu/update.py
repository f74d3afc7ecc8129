"""Changing a machine's configuration: pending values, hotplug, boot order, unused disks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deployments.lab.accounts import hash_cipassword
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig
from deployments.lab.errors import ApiError, bad_parameters, failure
from deployments.lab.formats import split_list
from deployments.lab.qemu.devices import (
    Drive,
    boot_devices,
    boot_text,
    complete_net,
    drives,
    is_drive_key,
    is_net_key,
    is_unused_key,
    parse_drive,
)
from deployments.lab.qemu.hotplug import plug
from deployments.lab.qemu.options import OPTIONS, UNUSED_KEYS
from deployments.lab.qemu.pace import Pace
from deployments.lab.qemu.volumes import NO_FILE, Log, owned_volumes, realise_drive


@dataclass
class Change:
    """What one call asks for. ``force`` destroys detached volumes at once."""

    values: dict[str, Any]
    delete: list[str] = field(default_factory=list)
    revert: list[str] = field(default_factory=list)
    force: bool = False


def check_names(change: Change) -> None:
    """400 for unknown options and for an option both set and deleted."""
    for name, keys in (("delete", change.delete), ("revert", change.revert)):
        for key in keys:
            if key not in OPTIONS and key not in UNUSED_KEYS:
                raise bad_parameters({name: f"unknown option '{key}'"})
            if key in change.values:
                text = f"you can't use '-{key}' and -{name} {key}' at the same time"
                raise bad_parameters({name: text})


def stored(key: str, value: Any) -> str:
    """A parameter as the file keeps it."""
    if key == "tags":
        return ";".join(sorted({tag.lower() for tag in split_list(str(value))})) or " "
    if is_net_key(key):
        return complete_net(str(value))
    if key == "boot":
        return str(value) or " "
    return str(value)


def check_boot(config: GuestConfig, change: Change) -> None:
    """500 when a new boot order names a device that will not exist."""
    if "boot" not in change.values:
        return
    known = set(config.effective()) | set(change.values)
    for device in boot_devices({"boot": str(change.values["boot"])}):
        if device not in known or device in change.delete:
            raise failure(f"invalid bootorder: device '{device}' does not exist'")


async def apply_change(
    lab: Lab, node: str, vmid: int, config: GuestConfig, change: Change, log: Log
) -> None:
    """Do everything a config call does, to ``config`` and to the volumes.

    The file is written after each step that cannot be taken back. Raises ApiError; what was
    registered before a hotplug problem stays pending, as on a real server.
    """
    check_boot(config, change)
    _check_protection(config, change)

    def save() -> None:
        lab.guests.save(node, "qemu", vmid, config)

    for key in change.revert:
        config.pending.pop(key, None)
        if key in config.pending_delete:
            config.pending_delete.remove(key)
    bootorder = _BootOrder(config)
    for key in change.delete:
        _register_delete(lab, node, vmid, config, key, bootorder)
        save()
    for key in sorted(change.values):
        await _register_value(lab, node, vmid, config, key, change.values[key], log, bootorder)
        save()
    _drop_no_ops(config)
    save()
    if lab.life.running(vmid):
        touched = {*change.delete, *change.values}
        errors = plug(config, touched | bootorder.touched, _Hands(lab, node, vmid, config))
        save()
        lab.life.config_changed(vmid, config.values)
        if errors:
            raise bad_parameters(errors)
    else:
        apply_pending(lab, node, vmid, config, change.force)
        save()


def _check_protection(config: GuestConfig, change: Change) -> None:
    if config.values.get("protection") != "1":
        return
    for key in change.delete:
        if is_drive_key(key) or is_unused_key(key):
            raise failure(f"can't remove drive '{key}' - protection mode enabled")


class _BootOrder:
    """The boot order as one call changes it, beginning with the present one, not a pending one."""

    def __init__(self, config: GuestConfig) -> None:
        self._config = config
        self._devices = boot_devices(config.values)
        self.touched: set[str] = set()

    def drop(self, key: str) -> None:
        """A device leaves."""
        if key in self._devices:
            self._set([device for device in self._devices if device != key])

    def append(self, key: str) -> None:
        """An optical drive is put last; a machine without an order boots from any."""
        if self._devices and key not in self._devices:
            self._set([*self._devices, key])

    def _set(self, devices: list[str]) -> None:
        self._devices = devices
        self._config.pending["boot"] = boot_text(devices)
        self.touched.add("boot")


@dataclass(frozen=True)
class _Hands:
    """What plugging does to a machine's configuration and volumes."""

    lab: Lab
    node: str
    vmid: int
    config: GuestConfig

    def remove(self, key: str) -> None:
        """Take an option out; a disk becomes unused."""
        _delete_now(self.lab, self.node, self.vmid, self.config, key)

    def put(self, key: str, text: str) -> None:
        """Set an option; a disk that it replaces becomes unused."""
        _set_now(self.lab, self.node, self.vmid, self.config, key, text)


def _register_delete(
    lab: Lab, node: str, vmid: int, config: GuestConfig, key: str, bootorder: _BootOrder
) -> None:
    if key not in config.values and key not in config.pending:
        return
    waiting = config.pending.pop(key, None)
    bootorder.drop(key)
    if is_unused_key(key):
        _destroy_unused(lab, node, config, key)
        return
    if waiting is not None and is_drive_key(key):
        _release(lab, node, vmid, config, parse_drive(key, waiting))
    if key in config.values and key not in config.pending_delete:
        config.pending_delete.append(key)


def _destroy_unused(lab: Lab, node: str, config: GuestConfig, key: str) -> None:
    text = config.values.pop(key, None)
    if text is None:
        return
    volid = parse_drive(key, text).file
    in_use = [d.file for d in drives(config.values)]
    for section in config.snapshots.values():
        in_use += [d.file for d in drives(section)]
    if volid not in in_use:
        storage, volume = lab.storages.volume(volid, node)
        storage.free(node, volume)


async def _register_value(
    lab: Lab,
    node: str,
    vmid: int,
    config: GuestConfig,
    key: str,
    value: Any,
    log: Log,
    bootorder: _BootOrder,
) -> None:
    if is_drive_key(key):
        drive = parse_drive(key, str(value))
        _refuse_second_cloudinit(config, drive)
        made = await realise_drive(lab, node, vmid, drive, log, Pace(lab.clock))
        waiting = config.pending.get(key)
        if waiting is not None and parse_drive(key, waiting).file != made.file:
            del config.pending[key]
            _release(lab, node, vmid, config, parse_drive(key, waiting))
        text = made.text()
        if made.is_cdrom and not made.is_cloudinit:
            bootorder.append(key)
    else:
        text = stored(key, value)
    if key in config.pending_delete:
        config.pending_delete.remove(key)
    if key == "cipassword":
        config.values[key] = hash_cipassword(text)
        return
    config.pending[key] = text


def _refuse_second_cloudinit(config: GuestConfig, drive: Drive) -> None:
    if not drive.is_cloudinit:
        return
    for other in drives(config.effective()):
        if other.is_cloudinit and other.key != drive.key:
            where = f"cloud-init drive is already attached at '{other.key}'"
            raise failure(f"{drive.key} - {where}")


def _drop_no_ops(config: GuestConfig) -> None:
    for key in list(config.pending):
        if config.pending[key] == config.values.get(key):
            del config.pending[key]


def apply_pending(lab: Lab, node: str, vmid: int, config: GuestConfig, force: bool = False) -> None:
    """Make pending values real, as a stop does; replaced disks become unused."""
    for key in list(config.pending_delete):
        _delete_now(lab, node, vmid, config, key, force)
    config.pending_delete.clear()
    for key in sorted(config.pending):
        _set_now(lab, node, vmid, config, key, config.pending[key])
    config.pending.clear()


def _delete_now(
    lab: Lab, node: str, vmid: int, config: GuestConfig, key: str, force: bool = False
) -> None:
    text = config.values.pop(key, None)
    if text is not None and is_drive_key(key):
        _release(lab, node, vmid, config, parse_drive(key, text), force)


def _set_now(lab: Lab, node: str, vmid: int, config: GuestConfig, key: str, text: str) -> None:
    old = config.values.get(key)
    if key in ("description", "name") and text == "":
        config.values.pop(key, None)
        return
    config.values[key] = text
    if not is_drive_key(key):
        return
    new = parse_drive(key, text)
    for name in [k for k in config.values if is_unused_key(k)]:
        if parse_drive(name, config.values[name]).file == new.file:
            del config.values[name]
    if old is not None and parse_drive(key, old).file != new.file:
        _release(lab, node, vmid, config, parse_drive(key, old))


def _release(
    lab: Lab, node: str, vmid: int, config: GuestConfig, drive: Drive, force: bool = False
) -> None:
    """A drive has left the configuration: keep its volume as unusedN, or free it."""
    if drive.file in NO_FILE:
        return
    try:
        storage, volume = lab.storages.volume(drive.file, node)
    except ApiError:
        return
    if volume.vmid is None:
        return
    if drive.is_cloudinit or (force and volume.vmid == vmid):
        storage.free(node, volume)
        return
    remaining = owned_volumes(lab, node, vmid, config.values)
    if volume.volid in [other.volid for _, other in remaining]:
        return
    free = next(key for key in UNUSED_KEYS if key not in config.values)
    config.values[free] = volume.volid
