"""Which changes reach a running machine at once, which wait, which are refused.

What scenarios 05b and 12b show was recorded; the rest (features in ``hotplug``, network and disk
details, processors, balloon) follows the public source of qemu-server 9.2.
"""

from __future__ import annotations

import re
from typing import Protocol

from deployments.lab.conffile import GuestConfig
from deployments.lab.formats import split_list
from deployments.lab.qemu.devices import (
    boot_devices,
    is_drive_key,
    is_net_key,
    parse_drive,
    parse_net,
)
from deployments.lab.qemu.options import AGENT_FORMAT, CLOUDINIT_KEYS, FAST_KEYS
from deployments.lab.schema import parse_property_string

_DEFAULT_FEATURES = frozenset({"network", "disk", "usb"})
_FIXED_DRIVES = ("efidisk", "tpmstate", "ide", "sata")
_COLD_DRIVE_VALUES = (
    *("aio", "cache", "discard", "iothread", "product", "queues", "ro", "ssd", "vendor"),
)
_COLD_CARD_VALUES = ("model", "macaddr", "queues", "mtu")
_AT_ONCE = FAST_KEYS | set(CLOUDINIT_KEYS)


class Hands(Protocol):
    """What plugging does to a machine's configuration and volumes."""

    def remove(self, key: str) -> None:
        """Take an option out; a disk becomes unused."""

    def put(self, key: str, text: str) -> None:
        """Set an option; a disk that it replaces becomes unused."""


class _WaitsError(Exception):
    """The change waits for a stop."""


class _ProblemError(Exception):
    """The change is refused, with the monitor's words."""


def features(config: GuestConfig) -> frozenset[str]:
    """What may be plugged while the machine runs."""
    text = config.values.get("hotplug", "1")
    if text == "1":
        return _DEFAULT_FEATURES
    return frozenset() if text == "0" else frozenset(split_list(text))


def plug(config: GuestConfig, touched: set[str], hands: Hands) -> dict[str, str]:
    """Apply what can be; the rest stays pending. One error text for each refused option."""
    errors: dict[str, str] = {}
    for key in [k for k in config.pending if k in _AT_ONCE]:
        hands.put(key, config.pending.pop(key))
    for key in sorted(k for k in config.pending_delete if k in touched):
        try:
            _check_delete(config, key)
        except _WaitsError:
            continue
        except _ProblemError as problem:
            errors[key] = f"hotplug problem - {problem}\n"
            continue
        config.pending_delete.remove(key)
        hands.remove(key)
    for key in sorted(k for k in config.pending if k in touched):
        try:
            _check_value(config, key, config.pending[key])
        except _WaitsError:
            continue
        except _ProblemError as problem:
            errors[key] = f"hotplug problem - {problem}\n"
            continue
        hands.put(key, config.pending.pop(key))
    return errors


def _need(condition: bool) -> None:
    if not condition:
        raise _WaitsError


def _check_delete(config: GuestConfig, key: str) -> None:
    able = features(config)
    if key in _AT_ONCE or key in ("cpuunits", "cpulimit"):
        return
    if key == "hotplug":
        _need(not re.search("cpu|memory", config.values.get("hotplug", "")))
    elif key == "tablet":
        _need("usb" in able)
    elif re.fullmatch(r"usb\d+", key):
        _need("usb" in able and _modern(config))
    elif key == "vcpus":
        _need("cpu" in able)
    elif key == "balloon":
        _need(config.values.get("balloon") != "0")
    elif key == "memory":
        _need("memory" in able)
    elif is_net_key(key):
        _need("network" in able)
    elif is_drive_key(key):
        _need("disk" in able and not key.startswith(_FIXED_DRIVES))
        _check_unplug(config, key)
    else:
        raise _WaitsError


def _modern(config: GuestConfig) -> bool:
    return config.values.get("ostype") in ("l26", "win8", "win10", "win11")


def _check_unplug(config: GuestConfig, key: str) -> None:
    if key in boot_devices(config.values):
        raise _ProblemError(f"can't unplug bootdisk '{key}'")


def _check_value(config: GuestConfig, key: str, text: str) -> None:
    able = features(config)
    if key in ("cpuunits", "cpulimit"):
        return
    if key == "hotplug":
        both = f"{text} {config.values.get('hotplug', '')}"
        _need(not re.search("cpu|memory", both))
    elif key == "tablet":
        _need("usb" in able)
    elif re.fullmatch(r"usb\d+", key):
        _need("usb" in able and _modern(config))
    elif key == "vcpus":
        _need("cpu" in able)
    elif key == "balloon":
        _need((config.values.get("balloon") == "0") == (text == "0"))
    elif key == "memory":
        _need("memory" in able)
    elif key == "agent":
        _need(key in config.values and _agent_core(text) == _agent_core(config.values[key]))
    elif is_net_key(key):
        _check_card(config, key, text, "network" in able)
    elif is_drive_key(key):
        _check_drive(config, key, text, "disk" in able)
    else:
        raise _WaitsError


def _agent_core(text: str) -> dict[str, object]:
    found = parse_property_string(text, AGENT_FORMAT)
    return {k: v for k, v in found.items() if k != "fstrim_cloned_disks"}


def _check_card(config: GuestConfig, key: str, text: str, able: bool) -> None:
    old = parse_net(config.values[key]) if key in config.values else {}
    new = parse_net(text)
    if any(old.get(name) != new.get(name) for name in _COLD_CARD_VALUES):
        _need(able)


def _check_drive(config: GuestConfig, key: str, text: str, able: bool) -> None:
    new = parse_drive(key, text)
    _need(new.bus not in ("efidisk", "tpmstate"))
    if key not in config.values:
        _need(able and not key.startswith(_FIXED_DRIVES))
        return
    old = parse_drive(key, config.values[key])
    if old.is_cdrom != new.is_cdrom:
        raise _ProblemError("unable to change media type")
    if old.is_cdrom:
        return
    if old.file == new.file:
        cold = (n for n in _COLD_DRIVE_VALUES if old.values.get(n) != new.values.get(n))
        _need(next(cold, None) is None)
        return
    _need(able)
    _check_unplug(config, key)
    if key.startswith(_FIXED_DRIVES):
        raise _ProblemError(f"can't unplug device '{key}'")
