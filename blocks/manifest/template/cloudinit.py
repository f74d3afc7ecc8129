"""The ``cloud_init`` part of a template: what the first boot of a clone is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from blocks.manifest.fields import DnsName, Ip, StorageId
from blocks.manifest.template.fields import V4, V6, DriveSlot, PasswordHash, UserName
from blocks.model import Model


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
    slot: DriveSlot | None = Field(
        default=None,
        description="Slot of the drive or the seed ISO; ide2 if unset, scsi30 with q35",
        examples=["ide2"],
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
