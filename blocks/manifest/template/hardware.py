"""The hardware of a template: CPU and memory, disks, firmware, devices, network cards."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from blocks.manifest.fields import Bridge, CardModel, Mac, Size, StorageId
from blocks.manifest.template.fields import DataSlot, PciId
from blocks.model import Model


class Resources(Model):
    """CPU and memory."""

    cores: int = Field(default=2, ge=1, le=8192, description="Cores a socket", examples=[2])
    sockets: int = Field(default=1, ge=1, le=64, description="Sockets", examples=[1])
    memory: int = Field(default=2048, ge=128, description="MiB", examples=[4096])
    balloon: int | None = Field(
        default=None, ge=0, description="MiB to shrink to; 0 switches ballooning off", examples=[0]
    )
    cpu: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="CPU type; x86-64-v2-AES if unset",
        examples=["host"],
    )


class DiskOptions(Model):
    """How a disk is attached."""

    discard: bool = Field(default=True, description="Hand freed blocks back to the storage")
    ssd: bool = Field(default=True, description="Present it as SSD")
    iothread: bool = Field(default=True, description="Use an I/O thread of its own")
    cache: Literal["none", "directsync", "writethrough", "writeback", "unsafe"] | None = Field(
        default=None, description="Cache mode"
    )
    format: Literal["raw", "qcow2", "vmdk"] | None = Field(
        default=None, description="Image format, where the storage has a choice"
    )
    backup: bool = Field(default=True, description="Include it in backups")


class RootDisk(DiskOptions):
    """The disk that the image becomes."""

    size: Size = Field(default="20G", description="Size; the image is grown to it")
    storage: StorageId = Field(
        default="local-lvm", description="Storage of the disk", examples=["local-lvm"]
    )
    slot: DataSlot = Field(default="scsi0", description="Slot", examples=["scsi0"])


class DataDisk(DiskOptions):
    """An empty disk beside it."""

    size: Size = Field(description="Size")
    storage: StorageId | None = Field(
        default=None, description="Storage; that of the root disk if unset", examples=["local-lvm"]
    )
    slot: DataSlot | None = Field(
        default=None, description="Slot; the next free one if unset", examples=["scsi1"]
    )
    serial: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,20}$",
        description="Serial number that the guest sees",
        examples=["data1"],
    )


class FirmwareSpec(Model):
    """What the guest boots with."""

    bios: Literal["seabios", "ovmf"] | None = Field(
        default=None,
        description="ovmf is UEFI; meant where Secure Boot or an EFI storage is asked for",
    )
    machine: str | None = Field(
        default=None,
        pattern=r"^(?:pc|q35|i440fx|pc-[a-z0-9.+-]+)$",
        description="Machine type; q35 with UEFI and PCI devices, i440fx otherwise",
        examples=["q35"],
    )
    secure_boot: bool | None = Field(default=None, description="Enrol the Secure Boot keys (UEFI)")
    efi_storage: StorageId | None = Field(
        default=None,
        description="Storage of the EFI variables; that of the root disk if unset",
        examples=["local-lvm"],
    )
    tpm: bool | None = Field(default=None, description="Add a TPM 2.0")
    tpm_storage: StorageId | None = Field(
        default=None,
        description="Storage of the TPM state; that of the root disk if unset",
        examples=["local-lvm"],
    )


class PciSpec(Model):
    """A device of the node for the guest."""

    mapping: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z][A-Za-z0-9_-]*$",
        description="Name of a resource mapping",
        examples=["gpu"],
    )
    device: PciId | None = Field(
        default=None,
        description="Raw PCI id in the place of a mapping; only root@pam may use one",
        examples=["0000:01:00.0"],
    )
    primary: bool = Field(default=False, description="The guest's first graphics card (x-vga)")
    pcie: bool | None = Field(
        default=None, description="Present it as PCI Express; as the machine type allows if unset"
    )
    rombar: bool = Field(default=True, description="Show the device's ROM to the guest")
    romfile: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
        description="ROM file in /usr/share/kvm of the node",
        examples=["vbios.bin"],
    )
    mdev: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Type of mediated device",
        examples=["nvidia-63"],
    )


class NicSpec(Model):
    """A network card."""

    bridge: Bridge = Field(default="vmbr0", description="Bridge of the node", examples=["vmbr0"])
    vlan: int | None = Field(default=None, ge=1, le=4094, description="VLAN tag", examples=[120])
    model: CardModel = Field(default="virtio", description="Emulated card", examples=["virtio"])
    mac: Mac | None = Field(
        default=None,
        description="MAC address; auto or unset derives one that stays the same. Not inherited",
        examples=["02:00:5E:10:20:30"],
    )
    firewall: bool = Field(default=False, description="Filter with the Proxmox VE firewall")
    mtu: int | None = Field(
        default=None, ge=1, le=65520, description="MTU; 1 is that of the bridge", examples=[9000]
    )
    rate: float | None = Field(default=None, gt=0, description="Limit in MB/s", examples=[100])
    queues: int | None = Field(default=None, ge=1, le=64, description="Queues", examples=[4])
    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,14}$",
        description="Name of the interface in the guest; not with the method fields",
        examples=["lan0"],
    )
