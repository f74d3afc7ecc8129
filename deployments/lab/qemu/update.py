"""Changing a machine's configuration: pending values, hotplug, boot order, unused disks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
    first_boot_disk,
    is_drive_key,
    is_net_key,
    is_unused_key,
    parse_drive,
)
from deployments.lab.qemu.options import FAST_KEYS, OPTIONS, UNUSED_KEYS
from deployments.lab.qemu.volumes import NO_FILE, Log, owned_volumes, realise_drive

_LIVE_DRIVE_VALUES = ("bps", "mbps", "iops", "backup", "replicate")
_LIVE_KEYS = ("cpuunits", "cpulimit")


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


def apply_change(
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
    for key in change.delete:
        _register_delete(lab, node, config, key)
        save()
    for key in sorted(change.values):
        _register_value(lab, node, vmid, config, key, change.values[key], log)
        save()
    _drop_no_ops(config)
    save()
    if lab.life.running(vmid):
        touched = {*change.delete, *change.values}
        errors = _hotplug(lab, node, vmid, config, touched)
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


def _register_delete(lab: Lab, node: str, config: GuestConfig, key: str) -> None:
    if is_unused_key(key):
        _destroy_unused(lab, node, config, key)
        return
    order = boot_devices(config.values)
    if key in order:
        config.pending["boot"] = boot_text([device for device in order if device != key])
    config.pending.pop(key, None)
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


def _register_value(
    lab: Lab, node: str, vmid: int, config: GuestConfig, key: str, value: Any, log: Log
) -> None:
    if is_drive_key(key):
        drive = parse_drive(key, str(value))
        _refuse_second_cloudinit(config, drive)
        made = realise_drive(lab, node, vmid, drive, log)
        text = made.text()
        order = boot_devices(config.values)
        if made.is_cdrom and made.file not in NO_FILE and order and key not in order:
            config.pending["boot"] = boot_text([*order, key])
    else:
        text = stored(key, value)
    if key in config.pending_delete:
        config.pending_delete.remove(key)
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


def _hotplug(
    lab: Lab, node: str, vmid: int, config: GuestConfig, touched: set[str]
) -> dict[str, str]:
    """Apply to the running machine what this call touched and can be; the rest stays pending."""
    errors: dict[str, str] = {}
    for key in [k for k in config.pending_delete if k in touched]:
        if key in FAST_KEYS or is_net_key(key):
            pass
        elif is_drive_key(key) and key.rstrip("0123456789") in ("scsi", "virtio"):
            boot_disk = first_boot_disk(config.values)
            if boot_disk is not None and boot_disk.key == key:
                errors[key] = f"hotplug problem - can't unplug bootdisk '{key}'\n"
                continue
        else:
            continue
        config.pending_delete.remove(key)
        _delete_now(lab, node, vmid, config, key)
    for key in sorted(k for k in config.pending if k in touched):
        if _can_hotplug(config, key):
            _set_now(lab, node, vmid, config, key, config.pending.pop(key))
    return errors


def _can_hotplug(config: GuestConfig, key: str) -> bool:
    if key in FAST_KEYS or key in _LIVE_KEYS or is_net_key(key):
        return True
    if not is_drive_key(key):
        return False
    new = parse_drive(key, config.pending[key])
    old_text = config.values.get(key)
    if old_text is None:
        return new.bus in ("scsi", "virtio") and not new.is_cdrom
    old = parse_drive(key, old_text)
    if old.is_cdrom and new.is_cdrom:
        return True
    if old.file != new.file:
        boot_disk = first_boot_disk(config.values)
        return new.bus in ("scsi", "virtio") and (boot_disk is None or boot_disk.key != key)
    changed = {
        name for name in {*old.values, *new.values} if old.values.get(name) != new.values.get(name)
    }
    return all(name.startswith(_LIVE_DRIVE_VALUES) for name in changed)
