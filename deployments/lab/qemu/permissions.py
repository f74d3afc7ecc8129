"""Which privilege each configuration option of a machine needs."""

from __future__ import annotations

from collections.abc import Iterable

from deployments.lab.errors import failure
from deployments.lab.qemu.devices import (
    is_drive_key,
    is_net_key,
    is_unused_key,
    parse_drive,
    parse_net,
)
from deployments.lab.qemu.options import CLOUDINIT_KEYS, HOSTPCI_FORMAT, ROOT_ONLY_KEYS, USB_FORMAT
from deployments.lab.qemu.passthrough import hostpci
from deployments.lab.qemu.volumes import NO_FILE
from deployments.lab.routing import Call
from deployments.lab.schema import parse_property_string

_CPU = {"affinity", "cores", "cpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus"}
_MEMORY = {"balloon", "hugepages", "keephugepages", "memory", "shares"}
_HARDWARE = {
    *("acpi", "arch", "audio0", "bios", "hotplug", "kvm", "machine", "rng0", "scsihw", "smbios1"),
    *("tablet", "vga", "watchdog"),
}
_DISK = {"boot", "bootdisk", "vmstatestorage"}


def check_options(call: Call, vmid: int, pool: str | None, keys: Iterable[str]) -> None:
    """403 (or a refusal for root-only options) unless the caller may set or delete the options."""
    for key in sorted(keys):
        if key in ROOT_ONLY_KEYS and not call.who.is_root:
            raise failure(f"only root can set '{key}' config")
        _check_passthrough(call, key)
        privileges = _privileges(call, key)
        if not _held(call, vmid, pool, privileges):
            call.require(f"/vms/{vmid}", *privileges, any_of=True)
        _check_bridge(call, key)


def _held(call: Call, vmid: int, pool: str | None, privileges: tuple[str, ...]) -> bool:
    if call.has(f"/vms/{vmid}", *privileges, any_of=True):
        return True
    return pool is not None and call.has(f"/pool/{pool}", *privileges, any_of=True)


def _privileges(call: Call, key: str) -> tuple[str, ...]:  # noqa: PLR0911
    if key in _CPU or key.startswith("numa"):
        return ("VM.Config.CPU",)
    if key in _MEMORY:
        return ("VM.Config.Memory",)
    if key in CLOUDINIT_KEYS:
        return ("VM.Config.Cloudinit", "VM.Config.Network")
    if is_net_key(key):
        return ("VM.Config.Network",)
    if is_drive_key(key):
        return _drive_privileges(call, key)
    if key in _DISK or is_unused_key(key):
        return ("VM.Config.Disk",)
    if key in _HARDWARE or key.rstrip("0123456789") in ("serial", "parallel", "usb", "hostpci"):
        return ("VM.Config.HWType",)
    return ("VM.Config.Options",)


def _drive_privileges(call: Call, key: str) -> tuple[str, ...]:
    text = call.params.get(key)
    if text is None:
        return ("VM.Config.Disk", "VM.Config.CDROM")
    drive = parse_drive(key, text)
    if drive.is_cloudinit:
        return ("VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Config.Disk")
    if drive.is_cdrom and (drive.file in NO_FILE or ":iso/" in drive.file):
        return ("VM.Config.CDROM",)
    return ("VM.Config.Disk",)


def _check_passthrough(call: Call, key: str) -> None:
    text = call.params.get(key)
    kind = key.rstrip("0123456789")
    if text is None or call.who.is_root:
        return
    if kind == "hostpci":
        device = parse_property_string(text, HOSTPCI_FORMAT)
        if device.get("host"):
            raise failure(f"only root can set '{key}' config for non-mapped devices")
        if not device.get("mapping"):
            raise failure("either 'host' or 'mapping' must be set.")
        call.require(f"/mapping/pci/{device['mapping']}", "Mapping.Use")
    if kind == "usb" and parse_property_string(text, USB_FORMAT).get("host", "spice") != "spice":
        raise failure(f"only root can set '{key}' config for real devices")


def check_inherited(call: Call, values: dict[str, str]) -> None:
    """403 unless the caller may use the devices and bridges that a clone inherits.

    From the public source of the server, not recorded.
    """
    if call.who.is_root:
        return
    for key, device in hostpci(values):
        if device.get("host"):
            raise failure(f"only root can set '{key}' config for non-mapped devices")
        call.require(f"/mapping/pci/{device.get('mapping')}", "Mapping.Use")
    for key, text in values.items():
        _require_bridge(call, key, text)


def _check_bridge(call: Call, key: str) -> None:
    text = call.params.get(key)
    if text is not None:
        _require_bridge(call, key, text)


def _require_bridge(call: Call, key: str, text: str) -> None:
    if not is_net_key(key):
        return
    bridge = parse_net(text).get("bridge")
    if bridge:
        call.require(f"/sdn/zones/localnetwork/{bridge}", "SDN.Use")
