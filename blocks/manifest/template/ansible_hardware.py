"""The hardware that Ansible variables say."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from blocks.manifest.template.ansible_file import Vars
from blocks.manifest.template.ansible_values import flag, nic_of, number, size_of, word, words

_VLANS: tuple[str, ...] = ("vlan_id", "vlan_tag", "vm_vlan")


def resources_of(found: Vars) -> dict[str, Any]:
    """CPU and memory."""
    values = {
        "cores": found.take(
            "cores", "vm_cores", "cpu_cores", "cpus", "vcpus", "vm_cpu", into=number
        ),
        "sockets": found.take("sockets", "vm_sockets", "cpu_sockets", into=number),
        "memory": found.take(
            "memory", "vm_memory", "mem", "ram", "memory_mb", "vm_ram", "ram_size", into=number
        ),
        "balloon": found.take("balloon", "vm_balloon", "min_memory", into=number),
        "cpu": found.take("cpu_type", "cpu", "vm_cpu_type", "cputype", into=_cpu),
    }
    cores = values["cpu"]
    if isinstance(cores, int):
        if values["cores"] is None:
            values["cores"] = cores
        elif values["cores"] != cores:
            found.leave("cpu", str(cores), f"since cores is {values['cores']}")
        values["cpu"] = None
    return {key: value for key, value in values.items() if value is not None}


def disk_of(found: Vars) -> dict[str, Any]:
    """The root disk."""
    disk: dict[str, Any] = {}
    size = found.take(
        "disk_size", "vm_disk_size", "size", "resize", "vm_resize_size", "disk_resize"
    )
    if size is not None:
        known = size_of(size)
        if known is None:
            found.notes.append(f"disk_size: {size!r} is no size; 20G was put in")
        else:
            disk["size"] = known
    storage = found.take(
        "storage",
        "vm_storage",
        "storage_name",
        "disk_storage",
        "storage_pool",
        "disk_storage_pool",
        "proxmox_storage",
        into=word,
    )
    if isinstance(storage, str) and storage:
        disk["storage"] = storage
    slot = found.take("disk_slot", "disk_interface", "boot_disk", into=word)
    if slot:
        disk["slot"] = slot if slot[-1].isdigit() else f"{slot}0"
    cache = found.take("cache", "disk_cache", into=_cache)
    if cache:
        disk["cache"] = cache
    for key, names in (
        ("discard", ("discard", "disk_discard")),
        ("ssd", ("ssd", "disk_ssd", "ssd_emulation")),
        ("iothread", ("iothread", "disk_iothread")),
    ):
        value = found.take(*names, into=flag)
        if value is False:
            disk[key] = False
    return disk


def firmware_of(found: Vars) -> dict[str, Any]:
    """Firmware, Secure Boot and TPM."""
    firmware: dict[str, Any] = {}
    bios = found.take("bios", "vm_bios", into=_bios)
    uefi = found.take(
        "uefi_enabled", "uefi", "enable_uefi", "use_uefi", "efi_enabled", "efi", into=flag
    )
    if bios is not None or uefi is not None:
        firmware["bios"] = "ovmf" if uefi or bios == "ovmf" else "seabios"
    if bios is not None and uefi is not None and uefi is not (bios == "ovmf"):
        found.notes.append(
            f"bios: {bios} and UEFI {'on' if uefi else 'off'} do not fit; ovmf taken"
        )
    machine = found.take("machine", "machine_type", "vm_machine", into=word)
    if machine:
        firmware["machine"] = machine
    secure = found.take(
        "secure_boot", "secure_boot_enabled", "enable_secure_boot", "pre_enrolled_keys", into=flag
    )
    if secure and firmware.get("bios") != "seabios":
        firmware["secure_boot"] = True
    elif secure:
        found.notes.append("secure_boot: needs UEFI, which is switched off; left out")
    efi = found.take(
        "efi_storage", "efi_disk_storage", "efidisk_storage", "uefi_storage", into=word
    )
    if efi and firmware.get("bios") != "seabios":
        firmware["efi_storage"] = efi
    elif efi:
        found.leave("efi_storage", efi, "since UEFI is switched off")
    tpm = found.take("tpm_enabled", "tpm", "enable_tpm", "use_tpm", into=flag)
    if tpm:
        firmware["tpm"] = True
    storage = found.take("tpm_storage", "tpm_disk_storage", "tpmstate_storage", into=word)
    if storage and tpm is not False:
        firmware["tpm_storage"] = storage
    elif storage:
        found.leave("tpm_storage", storage, "since the TPM is switched off")
    return firmware


def pci_of(found: Vars) -> list[dict[str, Any]]:
    """Devices to pass through; raw ids where no mapping is named."""
    wanted = found.take(
        "gpu_passthrough", "gpu_enabled", "enable_gpu", "gpu_passthrough_enabled", "gpu", into=flag
    )
    mapping = found.take(
        "gpu_mapping",
        "pci_mapping",
        "mapping",
        "gpu_resource_mapping",
        several=True,
        into=words,
    )
    given = found.take(
        "gpu_pci",
        "gpu_pci_id",
        "gpu_pci_ids",
        "gpu_pci_address",
        "gpu_device",
        "gpu_devices",
        "gpu_address",
        "pci_device",
        "pci_devices",
        "hostpci0",
        several=True,
        into=words,
    )
    primary = found.take("gpu_primary", "primary_gpu", "gpu_x_vga", "x_vga", into=flag)
    rombar = found.take("rombar", "gpu_rombar", into=flag)
    romfile = found.take("romfile", "gpu_romfile", into=word)
    devices: list[dict[str, Any]] = [{"mapping": name} for name in mapping or ()]
    devices += [device for text in given or () if (device := _device(found, text)) is not None]
    if wanted is False and devices:
        found.notes.append("pci: passing devices through is switched off; they were left out")
        return []
    if wanted and not devices:
        found.notes.append("pci: a device is wanted, but none is named; add it to spec.pci")
    if devices and primary:
        devices[0]["primary"] = True
    if devices and rombar is False:
        devices[0]["rombar"] = False
    if devices and romfile:
        devices[0]["romfile"] = PurePosixPath(romfile).name
    if not devices and (primary or rombar is False or romfile):
        found.notes.append("pci: no device is named that options could be for; they were left out")
    if any("device" in each for each in devices):
        found.notes.append(
            "pci: raw ids need a login as root@pam; a resource mapping works with any token"
        )
    return devices


def _device(found: Vars, text: str) -> dict[str, Any] | None:
    """The device of ``01:00.0,pcie=1,x-vga=1`` or ``mapping=gpu1``."""
    raw, *options = text.split(",")
    raw = raw.removeprefix("host=")
    if raw.startswith("mapping="):
        device: dict[str, Any] = {"mapping": raw.removeprefix("mapping=")}
    elif re.fullmatch(r"(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?", raw):
        device = {"device": raw if raw.count(":") == 2 else f"0000:{raw}"}
    else:
        found.notes.append(f"pci: {text!r} is neither a PCI id nor a mapping; left out")
        return None
    for option in options:
        if option in ("x-vga=1", "x-vga=on"):
            device["primary"] = True
        # With machine q35 a device is a PCI Express one in any case.
        elif option and option != "pcie=1":
            found.leave("pci", option, f"add it to the entry of {raw} in spec.pci")
    return device


def ostype_of(found: Vars) -> str | None:
    """The type of operating system."""
    value = found.take("ostype", "os_type", "vm_ostype")
    if isinstance(value, str) and re.fullmatch(r"l2[46]|win\w+|w\w+|other|solaris", value):
        return value
    if value is not None:
        found.notes.append(f"ostype: {value!r} is none of Proxmox VE; left out")
    return None


def cards_of(found: Vars) -> list[dict[str, Any]]:
    """The network card."""
    nic = nic_of(found, "net0", "vm_net0", "vm_net")
    for key, names in (
        ("bridge", ("bridge", "network_bridge", "net_bridge", "vm_bridge", "vmbr")),
        ("model", ("network_model", "net_model", "nic_model", "vm_network_model")),
    ):
        value = found.take(*names, into=word)
        if value:
            nic[key] = value
    for key, others in (("vlan", _VLANS), ("mtu", ())):
        given = found.take(key, *others, into=number)
        if given:
            nic[key] = given
    if found.take("firewall", "net_firewall", into=flag):
        nic["firewall"] = True
    return [nic] if nic else []


def _cpu(value: Any) -> str | int | None:
    """A type of processor; a number is one of cores."""
    return None if isinstance(value, bool) or not isinstance(value, str | int) else value


def _bios(value: Any) -> str | None:
    return value if value in ("seabios", "ovmf") else None


def _cache(value: Any) -> str | None:
    known = ("none", "directsync", "writethrough", "writeback", "unsafe")
    return value if value in known else None
