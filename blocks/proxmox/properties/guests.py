"""The one codec between a guest and its config on the server: create parameters, and reading back.

What the server makes by itself (volume names, generated MACs, ``vmgenid``, ``smbios1``, ``meta``,
``digest``, ``size=`` of CD drives) is not part of a Guest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from blocks.manifest.guest import Disk, Firmware, Guest, Nic, PciDevice
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.properties.strings import Properties, format, parse
from blocks.proxmox.properties.values import (
    format_tags,
    normal_description,
    parse_tags,
    storage_of,
)
from blocks.units import gib

Config = Mapping[str, Any]

UNKNOWN_SIZE = 1
"""Size in bytes of a live disk whose config does not say it, such as a passed-through device."""

_DISK = re.compile(r"(?:scsi|virtio|sata|ide)\d+")
_NIC = re.compile(r"net\d+")
_PCI = re.compile(r"hostpci\d+")
_FORMATS = frozenset({"raw", "qcow2", "vmdk"})


class UnsupportedGuest(ProxmoxError):
    """A kind of guest that this codec does not write or read: containers, for now."""


def encode_create(guest: Guest) -> dict[str, str | int]:
    """The form parameters of ``POST /nodes/{node}/qemu`` that make this guest, ``vmid`` included.

    Every disk of its own is a new volume; disks that belong to another guest (``shared_with``) are
    not in it, and so neither in the boot order. Raises UnsupportedGuest for a container.
    """
    _only_qemu(guest.kind, guest.vmid)
    params: dict[str, str | int | None] = {
        "vmid": guest.vmid,
        "name": guest.name,
        "cores": guest.cores,
        "sockets": guest.sockets,
        "cpu": guest.cpu,
        "memory": guest.memory,
        "balloon": guest.balloon,
        "ostype": guest.ostype,
        "scsihw": guest.scsihw,
        "bios": guest.firmware.bios,
        "machine": encode_machine(guest.firmware.machine),
        "agent": "enabled=1" if guest.agent else None,
        "serial0": "socket" if guest.serial_console else None,
        "vga": display_of(guest),
        "onboot": 1 if guest.onboot else None,
        "tags": format_tags(guest.tags) or None,
        "pool": guest.pool,
        "description": guest.description or None,
        "efidisk0": encode_efidisk(guest.firmware),
        "tpmstate0": encode_tpmstate(guest.firmware),
    }
    foreign = {disk.slot for disk in guest.disks if disk.shared_with}
    params |= {disk.slot: encode_disk(disk) for disk in guest.disks if not disk.shared_with}
    params |= {nic.slot: encode_nic(nic) for nic in guest.nics}
    params |= {f"hostpci{number}": encode_pci(device) for number, device in enumerate(guest.pci)}
    params |= {slot: encode_drive(volid) for slot, volid in guest.drives.items()}
    if boot := [slot for slot in guest.boot if slot not in foreign]:
        params["boot"] = encode_boot(boot)
    return {key: value for key, value in params.items() if value is not None}


def disk_options(disk: Disk) -> Properties:
    """The options of a disk that its bus knows.

    SATA and IDE know no ``iothread``, VirtIO no ``ssd``. Options at the default of the
    server are left out.
    """
    bus = disk.slot.rstrip("0123456789")
    options: Properties = {}
    if disk.discard:
        options["discard"] = "on"
    if disk.ssd and bus != "virtio":
        options["ssd"] = True
    if disk.iothread and bus in {"scsi", "virtio"}:
        options["iothread"] = True
    if not disk.backup:
        options["backup"] = False
    if disk.cache is not None:
        options["cache"] = disk.cache
    if disk.serial is not None:
        options["serial"] = disk.serial
    return options


def encode_disk(disk: Disk, volume: str | None = None) -> str:
    """A disk as a config value: a new volume of its size, or ``volume`` where it exists already.

    A new one is asked for in GiB without a unit; ``4G`` would be a volume name (05-iso-vm-life).
    """
    options = disk_options(disk)
    if volume is None and disk.format is not None:
        options["format"] = disk.format
    return format("disk", {"file": volume or f"{disk.storage}:{gib(disk.size)}", **options})


def encode_import(disk: Disk, image: str) -> str:
    """A disk as a config value: a new volume with the content and the size of an image.

    ``image``: its volume id. The size of the new volume has to be written as 0, and where the
    storage can it takes the format of the image (06-cloud-image-template).
    """
    value = {"file": f"{disk.storage}:0", "import-from": image, **disk_options(disk)}
    if disk.format is not None:
        value["format"] = disk.format
    return format("disk", value)


def encode_pci(device: PciDevice) -> str:
    """A device of the node as a config value. Raises ValueError where none is named."""
    value: Properties = {}
    if device.mapping is not None:
        value["mapping"] = device.mapping
    elif device.device is not None:
        value["host"] = tuple(device.device.split(";"))
    else:
        raise ValueError("a PCI device has neither a mapping nor an id")
    if device.pcie:
        value["pcie"] = True
    if device.primary:
        value["x-vga"] = True
    if not device.rombar:
        value["rombar"] = False
    if device.romfile is not None:
        value["romfile"] = device.romfile
    if device.mdev is not None:
        value["mdev"] = device.mdev
    return format("hostpci", value)


def decode_pci(text: str) -> PciDevice:
    """The device of a ``hostpciN`` line."""
    found = parse("hostpci", text)
    host = found.get("host")
    return PciDevice(
        mapping=_text(found, "mapping"),
        device=";".join(host) if isinstance(host, tuple) else None,
        pcie=found.get("pcie") is True,
        primary=found.get("x-vga") is True,
        rombar=found.get("rombar") is not False,
        romfile=_text(found, "romfile"),
        mdev=_text(found, "mdev"),
    )


def display_of(guest: Guest) -> str | None:
    """The ``vga`` parameter, None for the server's default.

    A passed-through primary graphics card leaves no place for an emulated one.
    """
    if guest.display is None and any(device.primary for device in guest.pci):
        return "none"
    return guest.display


def encode_drive(volid: str) -> str:
    """A CD drive with this volume in it, or empty for ``none``.

    ``STORAGE:cloudinit`` is a cloud-init drive that the server is to make.
    """
    if volid.endswith(":cloudinit"):
        return volid
    return format("disk", {"file": volid, "media": "cdrom"})


def encode_boot(slots: Iterable[str]) -> str:
    """A boot order: ``order=scsi0;ide2``; one blank, as the server writes it, for none."""
    return format("boot", {"order": tuple(slots)}) or " "


def encode_nic(nic: Nic) -> str:
    """A network card as a config value. Without a MAC the server makes a new one each time."""
    value: Properties = {"model": nic.model, "bridge": nic.bridge}
    wanted = {
        "macaddr": nic.mac,
        "tag": nic.vlan,
        "firewall": nic.firewall or None,
        "mtu": nic.mtu,
        "link_down": nic.link_down or None,
        "rate": nic.rate,
        "queues": nic.queues,
    }
    return format("net", value | {k: v for k, v in wanted.items() if v is not None})


def encode_efidisk(firmware: Firmware) -> str | None:
    """A new disk for the EFI variables, None where none is declared. The server sets its size."""
    if firmware.efi_storage is None:
        return None
    return format(
        "efidisk",
        {
            "file": f"{firmware.efi_storage}:1",
            "efitype": "4m",
            "pre-enrolled-keys": firmware.secure_boot,
        },
    )


def encode_tpmstate(firmware: Firmware) -> str | None:
    """A new TPM 2.0 state volume, None where none is declared."""
    if firmware.tpm_storage is None:
        return None
    return format("tpmstate", {"file": f"{firmware.tpm_storage}:1", "version": "v2.0"})


def encode_machine(machine: str) -> str | None:
    """The ``machine`` parameter. The server's word for i440fx is no word at all, or ``pc``."""
    if machine in {"i440fx", "pc"}:
        return None
    return f"pc-{machine}" if machine.startswith(("i440fx-", "q35-")) else machine


def decode(
    config: Config,
    *,
    node: str,
    vmid: int,
    kind: Literal["qemu", "lxc"] = "qemu",
    label: str | None = None,
    pool: str | None = None,
) -> Guest:
    """The guest that a config describes; ``config`` as ``GET .../config`` answers it.

    What is not set has the server's default, not ours. A pool is no part of a config; it is taken
    from ``pool``. Keys that a Guest has no place for are left out. Raises UnsupportedGuest for a
    container, PropertyError for a value that is none.
    """
    _only_qemu(kind, vmid)
    name = str(config.get("name") or f"vm{vmid}")
    balloon = config.get("balloon")
    media = {slot: parse("disk", str(config[slot])) for slot in config if _DISK.fullmatch(slot)}
    return Guest(
        label=label or name,
        node=node,
        vmid=vmid,
        name=name,
        cores=int(config.get("cores", 1)),
        sockets=int(config.get("sockets", 1)),
        cpu=str(config.get("cpu", "kvm64")),
        memory=_memory(config),
        balloon=None if balloon is None else int(balloon),
        ostype=str(config.get("ostype", "other")),
        scsihw=str(config.get("scsihw", "lsi")),
        firmware=_firmware(config),
        disks=tuple(
            _disk(slot, found)
            for slot, found in sorted(media.items(), key=lambda item: _slot_order(item[0]))
            if found.get("media") != "cdrom"
        ),
        nics=tuple(
            _nic(slot, parse("net", str(config[slot])))
            for slot in sorted(filter(_NIC.fullmatch, config), key=_slot_order)
        ),
        drives={
            slot: str(found["file"])
            for slot, found in sorted(media.items())
            if found.get("media") == "cdrom"
        },
        boot=decode_boot(str(config.get("boot", ""))),
        agent=parse("agent", str(config.get("agent", "0"))).get("enabled") is True,
        serial_console=config.get("serial0") == "socket",
        onboot=bool(int(config.get("onboot", 0))),
        tags=parse_tags(str(config.get("tags", ""))),
        pool=pool,
        description=normal_description(str(config.get("description", ""))),
        pci=tuple(
            decode_pci(str(config[slot]))
            for slot in sorted(filter(_PCI.fullmatch, config), key=_slot_order)
        ),
        display=_text(parse("vga", str(config.get("vga", ""))), "type"),
    )


def decode_boot(text: str) -> tuple[str, ...]:
    """The slots of a boot order; the letters of the old form name none."""
    return cast(tuple[str, ...], parse("boot", text).get("order", ()))


def _only_qemu(kind: str, vmid: int) -> None:
    if kind != "qemu":
        raise UnsupportedGuest(
            f"guest {vmid} is a container; only virtual machines can be written and read so far"
        )


def _memory(config: Config) -> int:
    """MiB; the server's default is 512. May be a property string (12-hardware-edits)."""
    return int(cast(int, parse("memory", str(config.get("memory", 512)))["current"]))


def _firmware(config: Config) -> Firmware:
    efi = parse("efidisk", str(config.get("efidisk0", "")))
    tpm = parse("tpmstate", str(config.get("tpmstate0", "")))
    machine = str(parse("machine", str(config.get("machine", ""))).get("type", "pc"))
    return Firmware(
        bios=config.get("bios", "seabios"),
        machine="i440fx" if machine == "pc" else machine,
        efi_storage=storage_of(str(efi["file"])) if efi else None,
        secure_boot=efi.get("pre-enrolled-keys") is True,
        tpm_storage=storage_of(str(tpm["file"])) if tpm else None,
    )


def _disk(slot: str, found: Properties) -> Disk:
    volume = str(found["file"])
    suffix = str(found.get("format") or volume.rpartition(".")[2])
    size = found.get("size")
    return Disk(
        slot=slot,
        storage=storage_of(volume),
        size=size if isinstance(size, int) else UNKNOWN_SIZE,
        volume=volume,
        discard=found.get("discard") == "on",
        ssd=found.get("ssd") is True,
        iothread=found.get("iothread") is True,
        cache=_text(found, "cache"),
        format=cast(Any, suffix) if suffix in _FORMATS else None,
        backup=found.get("backup") is not False,
        serial=_text(found, "serial"),
    )


def _nic(slot: str, found: Properties) -> Nic:
    mac = _text(found, "macaddr")
    return Nic(
        slot=slot,
        bridge=str(found.get("bridge", "")),
        mac=mac.upper() if mac else None,
        model=str(found.get("model", "")),
        vlan=cast(int | None, found.get("tag")),
        firewall=found.get("firewall") is True,
        mtu=cast(int | None, found.get("mtu")),
        link_down=found.get("link_down") is True,
        rate=cast(float | None, found.get("rate")),
        queues=cast(int | None, found.get("queues")),
    )


def _text(found: Properties, key: str) -> str | None:
    return str(found[key]) if key in found else None


def _slot_order(slot: str) -> tuple[str, int]:
    stem = slot.rstrip("0123456789")
    return stem, int(slot[len(stem) :])
