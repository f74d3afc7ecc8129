"""The ``kickstart`` part of a hypervisor document: what an unattended installation is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from blocks.manifest.fields import CRYPT
from blocks.model import Model

Distro = Literal[
    "oraclelinux8",
    "oraclelinux9",
    "oraclelinux10",
    "rhel8",
    "rhel9",
    "rhel10",
    "rocky8",
    "rocky9",
    "rocky10",
    "alma8",
    "alma9",
    "alma10",
    "fedora",
    "ubuntu2204",
    "ubuntu2404",
    "ubuntu2604",
    "debian12",
    "debian13",
    "sles15",
    "leap15",
    "sles16",
    "leap16",
    "leap161",
]

# The families whose installers set SELinux up are all others.
WITHOUT_SELINUX = frozenset(
    {"ubuntu2204", "ubuntu2404", "ubuntu2604", "debian12", "debian13", "sles15", "leap15"}
)


def _crypt(secret: SecretStr) -> SecretStr:
    if not CRYPT.fullmatch(secret.get_secret_value()):
        raise ValueError(
            "is no crypt(3) hash, and nor is what ${gen:password:24} gives; make one with "
            "'openssl passwd -6' or 'mkpasswd', and name where it is, such as ${env:ROOT_HASH}"
        )
    return secret


CryptHash = Annotated[SecretStr, AfterValidator(_crypt)]


class Sudo(Model):
    """Rights of administrators."""

    wheel_nopasswd: bool = Field(
        default=False, description="Members of wheel (sudo on Debian) need no password"
    )


class Packages(Model):
    """Packages beyond the minimal system."""

    base: tuple[str, ...] = Field(
        default=(), description="Installed by the installer", examples=[["chrony"]]
    )
    post: tuple[str, ...] = Field(
        default=(), description="Installed when the system stands", examples=[["postgresql-server"]]
    )


class Repo(Model):
    """A package repository."""

    name: str = Field(min_length=1, description="Name of the repository", examples=["epel"])
    baseurl: str | None = Field(
        default=None, description="Its address", examples=["https://mirror.example.com/el9/"]
    )
    mirrorlist: str | None = Field(
        default=None,
        description="Address of its list of mirrors",
        examples=["https://mirrors.example.com/?repo=el9"],
    )
    cost: int | None = Field(default=None, ge=0, description="Lower is preferred", examples=[100])
    gpg_key: str | None = Field(
        default=None,
        description="Address of the key that it is signed with, where the system lacks that",
        examples=["https://mirror.example.com/RPM-GPG-KEY"],
    )


class Firewall(Model):
    """The firewall inside the guest."""

    enabled: bool = Field(default=True, description="Switch it on, with SSH let through")


class AdditionalUser(Model):
    """A user besides root."""

    name: str = Field(
        pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="Login name", examples=["postgres"]
    )
    wheel: bool = Field(default=False, description="May become root with sudo")
    ssh_key: str | None = Field(
        default=None,
        description="Public key, or the path of a public key file",
        examples=["~/.ssh/id_ed25519.pub"],
    )
    ssh_keys: tuple[str, ...] = Field(default=(), description="Further public keys")
    password_hash: CryptHash | None = Field(
        default=None, description="crypt(3) hash of a password", examples=["${env:OPS_HASH}"]
    )


class Kickstart(Model):
    """Everything that the installer of the distribution is told, whatever its format."""

    distro: Distro = Field(description="The distribution on the ISO", examples=["rocky9"])
    timezone: str = Field(default="UTC", description="Time zone", examples=["Europe/Berlin"])
    keyboard_layout: str = Field(default="us", description="Keyboard layout", examples=["de"])
    lang: str = Field(default="en_US.UTF-8", description="Locale", examples=["en_US.UTF-8"])
    mode: Literal["text", "graphical"] = Field(default="text", description="Look of the installer")
    ipv6: bool = Field(default=True, description="Use IPv6 in the guest")
    install_url: str | None = Field(
        default=None,
        description="Install from here instead of from the ISO",
        examples=["https://mirror.example.com/rocky/9/BaseOS/x86_64/os/"],
    )
    chrony_servers: tuple[str, ...] = Field(
        default=(), description="Time servers", examples=[["0.pool.ntp.org"]]
    )
    sudo: Sudo = Field(default=Sudo(), description="Rights of administrators")
    packages: Packages = Field(default=Packages(), description="Packages to install")
    repos: tuple[Repo, ...] = Field(default=(), description="Further package repositories")
    firewall: Firewall = Field(default=Firewall(), description="Firewall inside the guest")
    selinux: Literal["enforcing", "permissive", "disabled"] | None = Field(
        default=None,
        description="State of SELinux, where the distribution has it; enforcing if unset",
        examples=["permissive"],
    )
    update_system: bool = Field(default=False, description="Update all packages at the end")
    ssh_keys: dict[str, tuple[str, ...]] = Field(
        default={},
        description="User to public keys, or to paths of public key files",
        examples=[{"root": ["~/.ssh/id_ed25519.pub"]}],
    )
    additional_users: tuple[AdditionalUser, ...] = Field(
        default=(), description="Users besides root"
    )
    root_password_hash: CryptHash | None = Field(
        default=None,
        description="crypt(3) hash of the password of root; without it root has no password",
        examples=["${env:ROOT_HASH}"],
    )
