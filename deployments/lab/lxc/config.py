"""Containers: building, changing, showing."""

from __future__ import annotations

import re
from typing import Any

from deployments.lab.cluster import Lab, new_mac
from deployments.lab.conffile import GuestConfig
from deployments.lab.errors import ApiError, bad_parameters, failure
from deployments.lab.formats import parse_size, split_list
from deployments.lab.lxc.options import (
    LIVE_KEYS,
    MOUNT_KEYS,
    NET_FORMAT,
    NET_KEYS,
    OPTIONS,
    UNUSED_KEYS,
    mount_format,
)
from deployments.lab.lxc.volumes import Mount, mounts, owned, realise_mount
from deployments.lab.qemu.volumes import Log
from deployments.lab.schema import parse_property_string, print_property_string

_MOUNTS, _NETS, _UNUSED = frozenset(MOUNT_KEYS), frozenset(NET_KEYS), frozenset(UNUSED_KEYS)
_EXT4_SHARE = 1_020_702_720 / (1 << 30)


def complete_net(text: str, fresh: bool = False) -> str:
    """Canonical text of a card; ``fresh`` always makes a new MAC."""
    values = parse_property_string(text, NET_FORMAT)
    if fresh:
        values.pop("hwaddr", None)
    values.setdefault("hwaddr", new_mac())
    values.setdefault("type", "veth")
    return print_property_string(values, NET_FORMAT)


def stored(key: str, value: Any) -> str:
    """A parameter as the file keeps it."""
    if key == "tags":
        return ";".join(sorted({tag.lower() for tag in split_list(str(value))})) or " "
    if key in _NETS:
        return complete_net(str(value))
    if key == "description":
        return str(value).rstrip("\n")
    return str(value)


def os_type(template: str) -> str:
    """The distribution that a template's name tells."""
    known = OPTIONS["ostype"].enum
    return next((name for name in known if name in template.lower()), "unmanaged")


def build(
    lab: Lab, node: str, vmid: int, template: str, params: dict[str, Any], log: Log
) -> dict[str, str]:
    """Create volumes, unpack the template, and return the configuration."""
    values: dict[str, str] = {}
    made: list[str] = []
    try:
        for key in sorted(k for k in params if k in _MOUNTS):
            fmt = mount_format(key)
            mount = Mount(key, parse_property_string(str(params[key]), fmt, key))
            done = realise_mount(lab, node, vmid, mount, log)
            if done.volume != mount.volume:
                made.append(done.volume)
            values[key] = done.text()
        storage, archive = lab.storages.volume(template, node)
        if not storage.exists(node, archive):
            text = f"volume '{archive.volid}' does not exist"
            log(text)
            raise failure(text)
        log(f"extracting archive '{storage.shown_path(archive)}'")
        log(f"Total bytes read: {storage.info(node, archive).size * 3}")
        log("Detected container architecture: amd64")
    except ApiError:
        for volid in made:
            storage, volume = lab.storages.volume(volid, node)
            storage.free(node, volume)
        raise
    for key, value in params.items():
        if key not in _MOUNTS and (text := stored(key, value)):
            values[key] = text
    values.setdefault("hostname", f"CT{vmid}")
    values.setdefault("memory", "512")
    values.setdefault("swap", "512")
    values.setdefault("arch", "amd64")
    values.setdefault("ostype", os_type(template))
    return values


def check_delete(keys: list[str], values: dict[str, Any]) -> None:
    """400 for unknown options and for an option both set and deleted."""
    for key in keys:
        if key not in OPTIONS and key not in _UNUSED:
            raise bad_parameters({"delete": f"unknown option '{key}'"})
        if key in values:
            text = f"you can't use '-{key}' and -delete {key}' at the same time"
            raise bad_parameters({"delete": text})


def change(
    lab: Lab, node: str, vmid: int, config: GuestConfig, values: dict[str, Any], delete: list[str]
) -> None:
    """Apply what can be applied now; the rest waits for a stop."""
    running = lab.life.running(vmid) is not None
    for key in delete:
        if running and key not in LIVE_KEYS and key not in _NETS and key not in _UNUSED:
            config.pending.pop(key, None)
            if key in config.values and key not in config.pending_delete:
                config.pending_delete.append(key)
        else:
            _delete(lab, node, vmid, config, key)
    for key, value in sorted(values.items()):
        if key in _MOUNTS:
            mount = Mount(key, parse_property_string(str(value), mount_format(key), key))
            text = realise_mount(lab, node, vmid, mount, lambda *_: None).text()
        else:
            text = stored(key, value)
        if running and key not in LIVE_KEYS and key not in _NETS and key not in _MOUNTS:
            config.pending[key] = text
        else:
            _set(lab, node, vmid, config, key, text)


def apply_pending(lab: Lab, node: str, vmid: int, config: GuestConfig) -> None:
    """Make waiting changes real."""
    for key in config.pending_delete:
        _delete(lab, node, vmid, config, key)
    for key, text in config.pending.items():
        _set(lab, node, vmid, config, key, text)
    config.pending.clear()
    config.pending_delete.clear()


def _set(lab: Lab, node: str, vmid: int, config: GuestConfig, key: str, text: str) -> None:
    old = config.values.get(key)
    if text == "":
        config.values.pop(key, None)
    else:
        config.values[key] = text
    if key in _MOUNTS and old is not None:
        _keep_unused(lab, node, vmid, config, key, old)


def _delete(lab: Lab, node: str, vmid: int, config: GuestConfig, key: str) -> None:
    text = config.values.pop(key, None)
    if text is None:
        return
    if key in _MOUNTS:
        _keep_unused(lab, node, vmid, config, key, text)
    elif key in _UNUSED:
        storage, volume = lab.storages.volume(text, node)
        storage.free(node, volume)


def _keep_unused(lab: Lab, node: str, vmid: int, config: GuestConfig, key: str, text: str) -> None:
    volid = str(parse_property_string(text, mount_format(key), key)["volume"])
    still = [volume.volid for _, volume in owned(lab, node, vmid, config.values)]
    if re.search(rf"(?:vm|base)-{vmid}-", volid) and volid not in still:
        free = next(name for name in UNUSED_KEYS if name not in config.values)
        config.values[free] = volid


def row(lab: Lab, node: str, vmid: int, values: dict[str, str] | None = None) -> dict[str, Any]:
    """One container as lists and ``status/current`` show it.

    ``values`` are those of its configuration where the caller has read it already.
    """
    if values is None:
        values = lab.guests.load(node, "lxc", vmid).values
    run = lab.life.running(vmid)
    root = next((m for m in mounts(values) if m.key == "rootfs"), None)
    size = parse_size(str(root.values.get("size", "0"))) or 0 if root else 0
    memory = int(values.get("memory", "512")) << 20
    found: dict[str, Any] = {
        "vmid": vmid,
        "name": values.get("hostname", f"CT{vmid}"),
        "type": "lxc",
        "status": "running" if run else "stopped",
        "cpu": 0,
        "cpus": int(values.get("cores", lab.nodes[node].cores)),
        "disk": 0,
        "diskread": 0,
        "diskwrite": 0,
        "maxdisk": size,
        "maxmem": memory,
        "maxswap": int(values.get("swap", "0")) << 20,
        "mem": 0,
        "netin": 0,
        "netout": 0,
        "swap": 0,
        "uptime": 0,
    }
    for key in ("tags", "lock"):
        if values.get(key):
            found[key] = values[key]
    if values.get("template") == "1":
        found["template"] = 1
    if run:
        found |= {"pid": run.pid, "uptime": lab.life.uptime(run), "mem": memory // 8, "cpu": 0.01}
        found |= {"maxdisk": int(size * _EXT4_SHARE), "disk": size // 5}
        for name in ("cpu", "io", "memory"):
            found |= {f"pressure{name}full": 0, f"pressure{name}some": 0}
    return found
