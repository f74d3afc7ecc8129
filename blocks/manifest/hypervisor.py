"""``kind: Hypervisor``: the guests, where they run, and what they are installed from."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from blocks.manifest.fields import (
    AddressOrInterface,
    Bridge,
    CardModel,
    Checksum,
    ClassOrStorage,
    DnsName,
    Interface,
    Ip,
    IsoImage,
    IsoOrigin,
    Mac,
    Size,
    Slot,
    StorageId,
    Tags,
)
from blocks.manifest.kickstart import Kickstart
from blocks.model import Model

Usage = Literal["public", "vip", "scan", "private", "management"]


class Placement(Model):
    """Where a guest runs, and under which number."""

    node_name: str = Field(min_length=1, description="Proxmox VE node", examples=["pve1"])
    vm_id: int = Field(ge=100, le=999_999_999, description="Number of the VM", examples=[1001])


class Resources(Model):
    """What the virtual machine has."""

    memory: int = Field(default=2048, ge=512, description="MiB", examples=[8192])
    balloon: int | None = Field(
        default=None, ge=0, description="MiB to shrink to; 0 switches ballooning off", examples=[0]
    )
    cores: int = Field(default=1, ge=1, description="Cores a socket", examples=[4])
    sockets: int = Field(default=1, ge=1, description="Sockets", examples=[1])
    cpu: str | None = Field(default=None, description="CPU type", examples=["host"])
    bios: Literal["seabios", "ovmf"] = Field(
        default="seabios", description="Firmware; ovmf is UEFI"
    )
    machine: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9.+-]+$",
        description="Machine type; q35 where the firmware is ovmf, i440fx otherwise",
        examples=["q35"],
    )
    efi_storage: ClassOrStorage | None = Field(
        default=None,
        description="Storage class or storage of the EFI variables; that of the root disk if unset",
        examples=["local-lvm"],
    )
    secure_boot: bool = Field(default=False, description="Enrol the Secure Boot keys (ovmf)")
    tpm_storage: ClassOrStorage | None = Field(
        default=None,
        description="Storage class or storage of a TPM 2.0; no TPM if unset",
        examples=["local-lvm"],
    )


class Ipv4(Model):
    """A static address."""

    address: Interface = Field(description="Address and prefix length", examples=["10.10.0.101/24"])
    gateway: Ip | None = Field(
        default=None, description="Gateway; that of the zone if unset", examples=["10.10.0.1"]
    )
    dns: tuple[Ip, ...] | None = Field(
        default=None,
        description="Name servers; those of the zone if unset",
        examples=[["10.10.0.1"]],
    )


class NicSpec(Model):
    """A network card."""

    name: str = Field(
        min_length=1,
        description="net0, net1 and so on, or the name of the interface in the guest",
        examples=["net0"],
    )
    usage: Usage | None = Field(default=None, description="What it is for", examples=["public"])
    bridge: Bridge | None = Field(
        default=None,
        description="Bridge of the Proxmox VE node; that of the zone, else vmbr0",
        examples=["vmbr0"],
    )
    mac: Mac | None = Field(
        default=None,
        description="MAC address; auto or unset derives one that stays the same",
        examples=["02:00:5E:10:20:30"],
    )
    network: str | None = Field(default=None, description="Zone", examples=["public"])
    bootproto: Literal["static", "dhcp", "none", "link", "ibft"] | None = Field(
        default=None, description="How it gets its address; static where ipv4 is given"
    )
    controlled_by: Literal["NetworkManager", "crs", "networkd"] | None = Field(
        default=None, description="Who configures it in the guest; crs leaves it to Clusterware"
    )
    ipv4: Ipv4 | None = Field(default=None, description="Static address")
    ipv4_addresses: tuple[AddressOrInterface, ...] = Field(
        default=(), description="Further addresses", examples=[["10.10.0.102/24"]]
    )
    hostname_aliases: tuple[str, ...] = Field(
        default=(), description="Names of its address in /etc/hosts", examples=[["db1-priv"]]
    )
    shared_with_cluster: bool = Field(
        default=False, description="Its addresses move between the nodes"
    )
    vlan: int | None = Field(
        default=None, ge=1, le=4094, description="VLAN; that of the zone if unset", examples=[120]
    )
    model: CardModel = Field(default="virtio", description="Emulated card", examples=["virtio"])
    firewall: bool = Field(default=False, description="Filter with the Proxmox VE firewall")
    mtu: int | None = Field(default=None, ge=1, le=65520, description="MTU", examples=[9000])
    rate: float | None = Field(default=None, gt=0, description="Limit in MB/s", examples=[100])
    queues: int | None = Field(default=None, ge=1, le=64, description="Queues", examples=[4])


class DiskSpec(Model):
    """A disk."""

    id: int = Field(ge=0, description="Number of the disk in the manifest", examples=[0])
    size: Size = Field(description="Binary units, as in Proxmox VE")
    storage_class: str | None = Field(
        default=None, description="Name of a storage class", examples=["fast"]
    )
    storage: StorageId | None = Field(
        default=None, description="A storage itself; wins over the class", examples=["local-lvm"]
    )
    interface: Slot | None = Field(
        default=None, description="Slot; scsi0 and up if unset", examples=["scsi0"]
    )
    shared: bool = Field(
        default=False, description="One volume for every node that has a shared disk of this id"
    )
    tag: str | None = Field(
        default=None, description="Name for other layers to refer to", examples=["pg-data"]
    )
    role: str | None = Field(
        default=None, description="Use of the disk; root is installed on", examples=["root"]
    )
    serial: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,20}$",
        description="Serial number that the guest sees",
        examples=["pgdata1"],
    )
    discard: bool = Field(default=True, description="Hand freed blocks back to the storage")
    ssd: bool = Field(default=True, description="Present it as SSD")
    iothread: bool = Field(default=True, description="Use an I/O thread of its own")
    backup: bool = Field(default=True, description="Include it in backups")
    cache: Literal["none", "directsync", "writethrough", "writeback", "unsafe"] | None = Field(
        default=None, description="Cache mode", examples=["none"]
    )
    format: Literal["raw", "qcow2", "vmdk"] | None = Field(
        default=None, description="Image format, where the storage has a choice", examples=["raw"]
    )


class Iso(Model):
    """The install ISO."""

    storage: StorageId = Field(min_length=1, description="Storage of the ISO", examples=["local"])
    image: IsoImage = Field(
        min_length=1,
        description="File name of the ISO, or a whole volume id",
        examples=["Rocky-9.6-x86_64-dvd.iso"],
    )
    guest_os_type: str = Field(
        default="l26", pattern=r"^[a-z0-9]+$", description="ostype of the VM", examples=["l26"]
    )
    source: IsoOrigin | None = Field(
        default=None,
        description="Where the ISO comes from if the storage lacks it: a path here, or a URL",
        examples=["~/iso/ubuntu-24.04.3-live-server-amd64.iso", "https://example.com/debian.iso"],
    )
    checksum: Checksum | None = Field(
        default=None,
        description="SHA-256 of the source; needed for a URL",
        examples=["sha256:" + "0123456789abcdef" * 4],
    )
    kickstart_storage: StorageId | None = Field(
        default=None,
        description="Storage of the seed ISO; that of the ISO if unset",
        examples=["local"],
    )
    bootloader_dir: str | None = Field(
        default=None,
        description="Taken for compatibility; not used",
        examples=["/usr/lib/ISOLINUX"],
    )

    @model_validator(mode="after")
    def _a_url_has_a_checksum(self) -> Self:
        if self.checksum is None and self.source is not None and "://" in self.source:
            raise ValueError("has a URL as source, but no checksum; add 'checksum: sha256:HEX'")
        if self.checksum is not None and self.source is None:
            raise ValueError("has a checksum, but no source; add 'source: PATH' or a URL")
        return self


class NodeDefaults(Model):
    """What every node has that does not say otherwise."""

    resources: Resources | None = Field(default=None, description="CPU, memory, firmware")
    nics: tuple[NicSpec, ...] = Field(default=(), description="Network cards")
    disks: tuple[DiskSpec, ...] = Field(default=(), description="Disks")
    tags: Tags = Field(default=(), description="Tags, besides those of the node")
    pool: str | None = Field(default=None, description="Resource pool", examples=["databases"])
    description: str | None = Field(default=None, description="Notes of the guest")
    onboot: bool | None = Field(default=None, description="Start with the Proxmox VE node")
    agent: bool | None = Field(default=None, description="Talk to the guest agent")


class NodeSpec(NodeDefaults):
    """One guest."""

    proxmox: Placement = Field(description="Where it runs")
    ips: dict[str, Ip] = Field(
        default={}, description="Role to address", examples=[{"public": "10.10.0.101"}]
    )
    hostname: DnsName | None = Field(
        default=None, description="Name of the VM and host name; the key of the node if unset"
    )
    iso: Iso | None = Field(default=None, description="Differences to the iso of the document")
    kickstart: Kickstart | None = Field(
        default=None, description="Differences to the kickstart of the document"
    )


class Hypervisor(Model):
    """The guests of an environment."""

    kind: Literal["Hypervisor"] = Field(description="The kind of document", examples=["Hypervisor"])
    defaults: NodeDefaults | None = Field(default=None, description="Merged under every node")
    nodes: dict[str, NodeSpec] = Field(min_length=1, description="The guests by name")
    iso: Iso | None = Field(default=None, description="The install ISO")
    kickstart: Kickstart | None = Field(
        default=None, description="What the unattended installation is told"
    )
