"""The one model: a guest as it is declared, or as it was read back from the cluster."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Literal

from pydantic import Field, SecretStr

from blocks.model import Model

Address = IPv4Interface | IPv6Interface
Host = IPv4Address | IPv6Address


class Disk(Model):
    """A disk of a guest.

    ``size`` is in bytes. ``shared_with`` names the disk of another guest whose volume this one
    is: such a volume is created once, by its owner, and only attached here.
    """

    slot: str = Field(description="Bus and number, such as scsi0", examples=["scsi0"])
    storage: str
    size: int = Field(gt=0, description="Bytes")
    volume: str | None = Field(default=None, description="Volume id, once it exists")
    shared: bool = Field(default=False, description="Other guests attach the same volume")
    shared_with: SharedDisk | None = None
    discard: bool = True
    ssd: bool = True
    iothread: bool = True
    cache: str | None = None
    format: Literal["raw", "qcow2", "vmdk"] | None = None
    backup: bool = True
    serial: str | None = Field(default=None, description="What the guest sees as serial number")
    tag: str | None = Field(default=None, description="The manifest's name for the disk's use")
    role: str | None = None


class SharedDisk(Model):
    """Where the volume of a shared disk belongs: the owning guest and its slot there."""

    vmid: int
    slot: str


class Inet(Model):
    """How the operating system in the guest is to configure one network card."""

    method: Literal["static", "dhcp", "none"] = "dhcp"
    addresses: tuple[Address, ...] = Field(default=(), description="First one is the primary")
    gateway: Host | None = None
    dns: tuple[Host, ...] = ()
    search: tuple[str, ...] = ()


class Nic(Model):
    """A network card: what the VM has, and what its operating system does with it."""

    slot: str = Field(description="net0 and up", examples=["net0"])
    bridge: str
    mac: str | None = Field(default=None, description="Upper case, colons; None only on live reads")
    model: str = "virtio"
    vlan: int | None = Field(default=None, ge=1, le=4094)
    firewall: bool = False
    mtu: int | None = None
    link_down: bool = False
    rate: float | None = Field(default=None, description="MB/s")
    queues: int | None = None
    name: str | None = Field(default=None, description="Name of the interface in the guest")
    usage: str | None = Field(default=None, description="public, private, management, vip, scan")
    inet: Inet = Inet()


class Firmware(Model):
    """What the guest boots with."""

    bios: Literal["seabios", "ovmf"] = "seabios"
    machine: str = Field(default="i440fx", description="i440fx, q35, or a versioned form of them")
    efi_storage: str | None = Field(default=None, description="Storage of the EFI variables disk")
    secure_boot: bool = Field(default=False, description="Pre-enrol the Secure Boot keys")
    tpm_storage: str | None = Field(default=None, description="Storage of a TPM 2.0 state volume")


class User(Model):
    """A user of the installed system; ``password_hash`` is a crypt(3) string."""

    name: str
    sudo: bool = False
    ssh_keys: tuple[str, ...] = ()
    password_hash: SecretStr | None = None


class Repository(Model):
    """A package repository that the installed system uses."""

    name: str
    baseurl: str | None = None
    mirrorlist: str | None = None
    cost: int | None = None


class HostsEntry(Model):
    """A line of /etc/hosts."""

    ip: Host
    names: tuple[str, ...]


class Installation(Model):
    """Everything that an unattended installation is told, whatever the installer."""

    distro: str = Field(description="Such as rocky9, ubuntu2404, debian12, sles15")
    hostname: str
    domain: str | None = None
    timezone: str = "UTC"
    keyboard: str = "us"
    lang: str = "en_US.UTF-8"
    mode: Literal["text", "graphical"] = "text"
    ipv6: bool = True
    install_url: str | None = None
    ntp_servers: tuple[str, ...] = ()
    sudo_nopasswd: bool = False
    packages: tuple[str, ...] = ()
    packages_post: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()
    firewall: bool = True
    update_system: bool = False
    root_password_hash: SecretStr | None = Field(default=None, description="None locks root")
    root_ssh_keys: tuple[str, ...] = ()
    users: tuple[User, ...] = ()
    hosts: tuple[HostsEntry, ...] = ()
    root_disk: str = Field(default="scsi0", description="Slot of the disk to install on")


class IsoSource(Model):
    """Installed from an ISO, unattended, with a seed ISO beside it."""

    kind: Literal["iso"] = "iso"
    iso: str = Field(description="Volume id of the install ISO", examples=["local:iso/rocky9.iso"])
    origin: str | None = Field(
        default=None, description="Absolute path or URL of that ISO, for a storage that lacks it"
    )
    sha256: str | None = Field(default=None, description="Of the origin, in hex; set for URLs")
    seed_storage: str = Field(description="Storage that takes the seed ISO")
    installation: Installation


class Guest(Model):
    """A virtual machine, declared or live. Memory is MiB."""

    kind: Literal["qemu", "lxc"] = "qemu"
    label: str = Field(description="The operator's name for it: the key in the manifest")
    node: str = Field(description="Proxmox VE node")
    vmid: int = Field(ge=100, le=999_999_999)
    name: str
    cores: int = Field(default=1, ge=1)
    sockets: int = Field(default=1, ge=1)
    cpu: str = "x86-64-v2-AES"
    memory: int = Field(default=2048, ge=16, description="MiB")
    balloon: int | None = Field(default=None, description="MiB; 0 switches ballooning off")
    ostype: str = "l26"
    scsihw: str = "virtio-scsi-single"
    firmware: Firmware = Firmware()
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    drives: dict[str, str] = Field(
        default_factory=dict, description="CD drives: slot to volume id, or 'none' when empty"
    )
    boot: tuple[str, ...] = Field(default=(), description="Slots in boot order")
    agent: bool = True
    serial_console: bool = True
    onboot: bool = False
    tags: tuple[str, ...] = ()
    pool: str | None = None
    description: str = ""
    ssh_addresses: tuple[Host, ...] = Field(
        default=(), description="Where to look for its SSH server, best first"
    )
    source: IsoSource | None = None

    def disk(self, slot: str) -> Disk | None:
        """The disk in that slot, if there is one."""
        return next((disk for disk in self.disks if disk.slot == slot), None)


Disk.model_rebuild()
