"""``kind: Template``: a golden template and its clones, as an operator writes them.

Short forms (``image: debian13``, ``disk: 20G``, ``ip: dhcp``, ``count``) are written out before
this model sees them (`normal`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from blocks.manifest.document import Metadata, Version
from blocks.manifest.fields import (
    Bridge,
    CardModel,
    DnsName,
    Ip,
    Mac,
    Size,
    StorageId,
    Tags,
)
from blocks.manifest.hooks import Hooks
from blocks.manifest.template.fields import (
    V4,
    V6,
    DataSlot,
    Digests,
    DriveSlot,
    ImageOrigin,
    PasswordHash,
    PciId,
    UserName,
    VmId,
    VmIds,
    WebUrl,
    one_line,
)
from blocks.model import Model

NodeName = Annotated[str, AfterValidator(one_line), Field(min_length=1, examples=["pve1"])]


class ImageSpec(Model):
    """The disk image. ``name`` of the catalogue, or ``url`` or ``path`` with its checksum."""

    name: str | None = Field(
        default=None, description="Short name in the catalogue", examples=["debian13"]
    )
    url: WebUrl | None = Field(
        default=None,
        description="Where the image is, in the place of the catalogue's",
        examples=["https://images.example.com/debian-13.qcow2"],
    )
    path: ImageOrigin | None = Field(
        default=None, description="An image on this machine", examples=["~/images/golden.qcow2"]
    )
    checksum: Digests | None = Field(
        default=None, description="Checksum of the image", examples=["sha256:" + "01234567" * 8]
    )
    checksums: WebUrl | None = Field(
        default=None,
        description="The publisher's list of checksums",
        examples=["https://images.example.com/SHA256SUMS"],
    )
    signature: WebUrl | None = Field(
        default=None,
        description="Detached signature of that list; unset where the list is signed in itself",
        examples=["https://images.example.com/SHA256SUMS.gpg"],
    )
    keyring: str | None = Field(
        default=None,
        description="File with the publisher's public keys; with it the signature is checked",
        examples=["./keys/debian.asc"],
    )
    storage: StorageId = Field(
        default="local",
        description="Storage with content `import` that keeps the image",
        examples=["local"],
    )
    fetch: Literal["auto", "node", "here"] = Field(
        default="auto", description="Who downloads it; auto is the node, else this machine"
    )


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


class IpSpec(Model):
    """What one network card is told."""

    address: V4 | None = Field(
        default=None,
        description="IPv4 address with prefix length, or dhcp, or none",
        examples=["10.0.0.11/24", "dhcp"],
    )
    gateway: Ip | None = Field(default=None, description="IPv4 gateway", examples=["10.0.0.1"])
    address6: V6 | None = Field(
        default=None,
        description="IPv6 address with prefix length, or auto (SLAAC), or dhcp",
        examples=["2001:db8::11/64", "auto"],
    )
    gateway6: Ip | None = Field(default=None, description="IPv6 gateway", examples=["2001:db8::1"])


class SnippetsSpec(Model):
    """Where snippets are kept, and how they get there: over SSH, with your own keys."""

    storage: StorageId | None = Field(
        default=None,
        description="Storage with content `snippets`; that of the image if unset",
        examples=["local"],
    )
    host: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_\[][A-Za-z0-9_.:%\[\]-]*$",
        description="SSH name of the node; the node's name if unset",
        examples=["pve1.example.com"],
    )
    user: str = Field(
        default="root",
        pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$",
        description="SSH user",
        examples=["root"],
    )
    port: int = Field(default=22, ge=1, le=65535, description="SSH port", examples=[22])
    directory: str | None = Field(
        default=None,
        pattern=r"^/[^\x00-\x1f]*$",
        description="Folder for the files; as the storage says if unset",
        examples=["/var/lib/vz/snippets"],
    )


Texts = tuple[Annotated[str, Field(min_length=1)], ...]


class CloudInitSpec(Model):
    """What cloud-init is told on the first boot of a clone."""

    method: Literal["fields", "snippets", "seed"] | None = Field(
        default=None,
        description="How it gets there; seed where fields cannot say what is asked for",
    )
    storage: StorageId | None = Field(
        default=None,
        description="Of the cloud-init drive (root disk's if unset) or the seed ISO (image's)",
        examples=["local"],
    )
    slot: DriveSlot = Field(
        default="ide2", description="Slot of the drive or the seed ISO", examples=["ide2"]
    )
    snippets: SnippetsSpec = Field(default=SnippetsSpec(), description="For the method snippets")
    user: UserName | None = Field(
        default=None, description="User to log in as; the image's own if unset", examples=["ops"]
    )
    ssh_keys: tuple[str, ...] = Field(
        default=(),
        description="Public keys, or paths of public key files",
        examples=[["~/.ssh/id_ed25519.pub"]],
    )
    password_hash: PasswordHash | None = Field(
        default=None,
        description="crypt(3) hash of the user's password",
        examples=["${file:secrets/ops.hash}"],
    )
    password: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="The password itself, by reference; a hash is better",
        examples=["${env:OPS_PASSWORD}"],
    )
    sudo: bool = Field(default=True, description="The user becomes root without a password")
    dns: tuple[Ip, ...] = Field(default=(), description="Name servers", examples=[["10.0.0.2"]])
    search: tuple[DnsName, ...] = Field(
        default=(), description="DNS search domains", examples=[["example.com"]]
    )
    ip: tuple[IpSpec, ...] = Field(
        default=(),
        description="Addresses, one entry a network card; DHCP if unset",
        examples=[["dhcp"], ["10.0.0.11/24"]],
    )
    gateway: Ip | None = Field(
        default=None,
        description="IPv4 gateway of the first static address that names none",
        examples=["10.0.0.1"],
    )
    gateway6: Ip | None = Field(
        default=None, description="The same for IPv6", examples=["2001:db8::1"]
    )
    timezone: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*$",
        description="Time zone",
        examples=["Europe/Berlin"],
    )
    locale: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.@-]+$",
        description="Locale",
        examples=["en_US.UTF-8"],
    )
    upgrade: bool = Field(default=False, description="Upgrade all packages on the first boot")
    packages: Texts = Field(default=(), description="Packages to install", examples=[["chrony"]])
    commands: Texts = Field(
        default=(),
        description="Shell lines for the first boot",
        examples=[["systemctl enable --now chrony"]],
    )
    user_data: str | None = Field(
        default=None,
        min_length=1,
        description="A whole document of your own: path of a file, text, or mapping",
        examples=["./user-data.yaml"],
    )
    vendor_data: str | None = Field(
        default=None,
        min_length=1,
        description="The same for vendor data",
        examples=["./vendor-data.yaml"],
    )
    network_config: str | None = Field(
        default=None,
        min_length=1,
        description="The same for the network; addresses are not rendered then",
        examples=["./network.yaml"],
    )


class RebuildSpec(Model):
    """When a new generation is made beside the old one."""

    when: Literal["never", "weekly", "on-new-image"] = Field(
        default="never", description="When a new generation is made"
    )
    keep: int = Field(
        default=2, ge=1, le=100, description="Generations that stay, the newest included"
    )
    vm_ids: VmIds | None = Field(
        default=None,
        description="Numbers that generations may take; vm_id and the nine after it if unset",
        examples=["9000-9009"],
    )


class AliasSpec(Model):
    """How others find the newest generation."""

    tag: Annotated[Tags, Field(max_length=1)] = Field(
        default=(), description="Tag that it alone carries", examples=["debian13-current"]
    )
    pool: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+){0,2}$",
        description="Pool that it alone is in",
        examples=["golden"],
    )


Pool = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+){0,2}$")]


class CloneDisk(Model):
    """What differs in the root disk of a clone."""

    size: Size = Field(description="Size; not below the template's", examples=["40G"])


class CloneSpec(Model):
    """A clone. What it does not say is as in the template."""

    name: DnsName = Field(description="Name of the VM and host name", examples=["web1"])
    vm_id: VmId = Field(description="Number of the VM", examples=[9101])
    node: NodeName | None = Field(
        default=None, description="Node; the template's if unset", examples=["pve2"]
    )
    mode: Literal["full", "linked"] = Field(
        default="full", description="linked shares the unchanged blocks of the template"
    )
    storage: StorageId | None = Field(
        default=None,
        description="Storage of a full clone; where the template's disks are if unset",
        examples=["ceph"],
    )
    start: bool = Field(default=True, description="Start it once it is made")
    resources: Resources | None = Field(default=None, description="What differs in CPU and memory")
    disk: CloneDisk | None = Field(default=None, description="What differs in the root disk")
    nics: tuple[NicSpec, ...] | None = Field(
        default=None, max_length=32, description="Network cards, in the place of the template's"
    )
    ip: tuple[IpSpec, ...] | None = Field(
        default=None,
        description="Addresses, one entry a network card",
        examples=["dhcp", "10.0.0.11/24"],
    )
    gateway: Ip | None = Field(default=None, description="As in cloud_init", examples=["10.0.0.1"])
    pci: tuple[PciSpec, ...] | None = Field(
        default=None, max_length=16, description="Devices, in the place of the template's"
    )
    tags: Tags = Field(default=(), description="Tags, besides metadata.tags", examples=[["web"]])
    pool: Pool | None = Field(default=None, description="Resource pool", examples=["web"])
    description: str | None = Field(default=None, description="Notes of the VM")
    onboot: bool = Field(default=False, description="Start with the node")
    cloud_init: CloudInitSpec | None = Field(
        default=None, description="What differs in cloud_init, key by key"
    )


class TemplateSpec(Model):
    """The template, and what is made of it."""

    node: NodeName = Field(description="Node of the template", examples=["pve1"])
    vm_id: VmId = Field(description="Number of the template", examples=[9000])
    image: ImageSpec = Field(description="The disk image, or its short name")
    pool: Pool | None = Field(
        default=None, description="Resource pool of the template", examples=["templates"]
    )
    resources: Resources = Field(default=Resources(), description="CPU and memory")
    disk: RootDisk = Field(default=RootDisk(), description="The root disk, or its size")
    disks: tuple[DataDisk, ...] = Field(default=(), description="Empty disks beside it")
    firmware: FirmwareSpec = Field(
        default=FirmwareSpec(), description="Firmware, or the bios alone"
    )
    pci: tuple[PciSpec, ...] = Field(
        default=(), max_length=16, description="Devices of the node, such as graphics cards"
    )
    display: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]+$",
        description="Display (std, serial0, virtio, none); none with a primary graphics card",
        examples=["serial0"],
    )
    serial: bool = Field(default=True, description="Add a serial console")
    agent: bool = Field(default=True, description="Talk to the guest agent, and install it")
    ostype: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]+$",
        description="Type of operating system; as the catalogue says, else l26",
        examples=["l26"],
    )
    nics: tuple[NicSpec, ...] = Field(
        default=(NicSpec(),), max_length=32, description="Network cards; one on vmbr0 if unset"
    )
    cloud_init: CloudInitSpec = Field(
        default=CloudInitSpec(), description="What the first boot of a clone is told"
    )
    rebuild: RebuildSpec = Field(
        default=RebuildSpec(), description="When a new generation is made, or the word alone"
    )
    alias: AliasSpec = Field(
        default=AliasSpec(), description="How others find the newest generation"
    )
    clones: tuple[CloneSpec, ...] = Field(default=(), description="What is cloned from it")


class Template(Model):
    """A golden template."""

    version: Version = Field(description="Version of the format", examples=["1"])
    kind: Literal["Template"] = Field(description="The kind of document", examples=["Template"])
    metadata: Metadata = Field(description="Name and place; the template's name, too")
    spec: TemplateSpec = Field(description="The template and its clones")
    hooks: Hooks = Field(default=Hooks(), description="What happens on which event")
