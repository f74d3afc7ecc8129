"""The one model: a guest as it is declared, or as it was read back from the cluster."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Annotated, Literal

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
    gateway6: Host | None = Field(default=None, description="Beside an IPv4 gateway")
    ipv6: Literal["static", "auto", "dhcp"] = Field(
        default="static", description="Beside `method`: what is declared, SLAAC, or DHCPv6"
    )
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
    gpg_key: str | None = Field(default=None, description="URL of the key that it is signed with")


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
    selinux: Literal["enforcing", "permissive", "disabled"] | None = Field(
        default=None, description="None is enforcing where the distribution has SELinux"
    )
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


class Digest(Model):
    """A checksum of a file, in lower-case hexadecimal digits."""

    algorithm: Literal["sha256", "sha512"]
    hex: str

    def __str__(self) -> str:
        """``sha256:0123...``."""
        return f"{self.algorithm}:{self.hex}"


class ImageSource(Model):
    """Made from a disk image, such as a distribution's cloud image.

    ``checksum``, or ``sums`` where it can be looked up; neither only for a file on this machine.
    """

    kind: Literal["image"] = "image"
    name: str = Field(description="Short name: of the catalogue, or of the file")
    origin: str = Field(description="URL, or absolute path on this machine")
    storage: str = Field(description="Storage with content `import` that keeps the image")
    checksum: Digest | None = None
    sums: str | None = Field(default=None, description="URL of the publisher's list of checksums")
    signature: str | None = Field(
        default=None, description="URL of the list's detached signature; None: signed in the list"
    )
    keyring: str | None = Field(default=None, description="Absolute path of the publisher's keys")
    fetch: Literal["auto", "node", "here"] = Field(
        default="auto", description="Who fetches it; auto: the node, else here"
    )


class CloneSource(Model):
    """Cloned from a template of the same manifest. A linked clone has no storage of its own."""

    kind: Literal["clone"] = "clone"
    template: str = Field(description="Label of the guest it is cloned from")
    full: bool = True
    storage: str | None = Field(default=None, description="None: where the template's disks are")


class SnippetHost(Model):
    """How the node that keeps the snippets is reached over SSH, with the caller's own keys."""

    host: str | None = Field(default=None, description="None: the node's name")
    user: str = "root"
    port: int = 22
    directory: str | None = Field(default=None, description="None: as the storage says")


class CloudInit(Model):
    """What cloud-init is told on the first boot, and how it gets there.

    Addresses are those of the guest's cards. ``fields``: the options of Proxmox VE; ``snippets``:
    documents on the node, named by ``cicustom``; ``seed``: documents on an ISO labelled cidata.
    ``user_data``, ``vendor_data`` and ``network_config`` are whole documents of the operator's, in
    the place of the rendered ones.
    """

    method: Literal["fields", "snippets", "seed"] = "fields"
    storage: str = Field(description="Of the cloud-init drive (fields, snippets) or the seed ISO")
    slot: str = "ide2"
    snippet_storage: str | None = None
    snippet_host: SnippetHost = SnippetHost()
    hostname: str
    domain: str | None = None
    user: str | None = Field(default=None, description="None: the image's own default user")
    ssh_keys: tuple[str, ...] = ()
    password_hash: SecretStr | None = Field(default=None, description="crypt(3); None locks it")
    password: SecretStr | None = Field(default=None, description="In the place of its hash")
    sudo_nopasswd: bool = True
    dns: tuple[Host, ...] = ()
    search: tuple[str, ...] = ()
    timezone: str | None = None
    locale: str | None = None
    upgrade: bool = False
    packages: tuple[str, ...] = ()
    commands: tuple[str, ...] = Field(default=(), description="Shell lines for the first boot")
    user_data: str | None = Field(default=None, repr=False)
    vendor_data: str | None = Field(default=None, repr=False)
    network_config: str | None = Field(default=None, repr=False)


class PciDevice(Model):
    """A device of the node that the guest gets: a resource mapping, or a raw id (root only)."""

    mapping: str | None = None
    device: str | None = Field(default=None, description="Such as 0000:01:00.0 or 0000:01:00")
    pcie: bool = True
    primary: bool = Field(default=False, description="x-vga: the guest's first graphics card")
    rombar: bool = True
    romfile: str | None = None
    mdev: str | None = None


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
    autostart: bool = Field(default=True, description="Started once it is made")
    tags: tuple[str, ...] = ()
    pool: str | None = None
    description: str = ""
    ssh_addresses: tuple[Host, ...] = Field(
        default=(), description="Where to look for its SSH server, best first"
    )
    source: Annotated[IsoSource | ImageSource | CloneSource, Field(discriminator="kind")] | None = (
        None
    )
    cloud_init: CloudInit | None = None
    pci: tuple[PciDevice, ...] = ()
    display: str | None = Field(default=None, description="`vga`: std, serial0, virtio, none, ...")

    @property
    def install(self) -> IsoSource | None:
        """The ISO that it is installed from, if it is."""
        return self.source if isinstance(self.source, IsoSource) else None

    @property
    def image(self) -> ImageSource | None:
        """The disk image that it is made from, if it is."""
        return self.source if isinstance(self.source, ImageSource) else None

    @property
    def clone(self) -> CloneSource | None:
        """What it is cloned from, if it is."""
        return self.source if isinstance(self.source, CloneSource) else None

    def disk(self, slot: str) -> Disk | None:
        """The disk in that slot, if there is one."""
        return next((disk for disk in self.disks if disk.slot == slot), None)


Disk.model_rebuild()
