"""``kind: Template``: a golden template and its clones, as an operator writes them.

Short forms (``image: debian13``, ``disk: 20G``, ``ip: dhcp``, ``count``) are written out before
this model sees them (`normal`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from blocks.manifest.document import Metadata, Version
from blocks.manifest.fields import (
    DnsName,
    Ip,
    Size,
    StorageId,
    Tags,
)
from blocks.manifest.hooks import Hooks
from blocks.manifest.template.cloudinit import CloudInitSpec, IpSpec
from blocks.manifest.template.fields import (
    Digests,
    ImageOrigin,
    VmId,
    VmIds,
    WebUrl,
    one_line,
)
from blocks.manifest.template.hardware import (
    DataDisk,
    FirmwareSpec,
    NicSpec,
    PciSpec,
    Resources,
    RootDisk,
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
