"""Guests for the tests of the installer files."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import (
    Disk,
    Firmware,
    Guest,
    HostsEntry,
    Inet,
    Installation,
    IsoSource,
    Nic,
    User,
)
from blocks.units import GIB

HASH = (
    "$6$rounds0salt$508Qvbe7ObUnxoj15DRCkzC3qO7edjH0VV7BPNRDYK4QR8ofJaEEF2heacn0QgD"
    ".f8pO8SNp83XNdWG6tocBM1"
)
ROOT_HASH = HASH.replace("508Q", "R00T")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPp8cQmFDNlYHpUQ4vXQZ0VJr4hX1yoZkJ8sPLdQbVr"
STATIC = Inet.model_validate(
    {
        "method": "static",
        "addresses": ("10.0.0.5/24", "10.0.0.6/24", "fd00::5/64"),
        "gateway": "10.0.0.1",
        "dns": ("10.0.0.2", "fd00::2"),
        "search": ("corp.example",),
    }
)
V6_ONLY = Inet.model_validate(
    {"method": "static", "addresses": ("fd00::7/64",), "gateway": "fe80::1", "dns": ("fd00::2",)}
)
DHCP_DNS = Inet.model_validate({"method": "dhcp", "dns": ("10.0.0.2",), "search": ("x.example",)})


def nic(index: int, inet: Inet | None = None, **extra: Any) -> Nic:
    mac = f"BC:24:11:00:00:{index:02X}"
    return Nic(slot=f"net{index}", bridge="vmbr0", mac=mac, inet=inet or Inet(), **extra)


def full(distro: str, **changes: Any) -> Guest:
    """A guest that uses everything that an installation can be told, of every distribution."""
    fields: dict[str, Any] = {
        "hostname": "db1",
        "domain": "corp.example",
        "timezone": "Europe/Berlin",
        "keyboard": "de",
        "lang": "de_DE.UTF-8",
        "ntp_servers": ("ntp1.corp.example", "10.0.0.9"),
        "sudo_nopasswd": True,
        "packages": ("vim", "tmux"),
        "packages_post": ("git",),
        "update_system": True,
        "root_password_hash": ROOT_HASH,
        "root_ssh_keys": (f"{KEY} root@corp",),
        "users": (
            User(name="joe", sudo=True, ssh_keys=(f'{KEY} joe\'s "key" é',), password_hash=HASH),
            User(name="ann", ssh_keys=(KEY, f"{KEY} second")),
        ),
        "hosts": (HostsEntry.model_validate({"ip": "10.0.0.9", "names": ("ntp", "ntp.x")}),),
        "install_url": "http://mirror.corp.example/os",
    }
    return plain(
        distro,
        **{
            "nics": (nic(0, STATIC, name="pub0"), nic(1), nic(2, Inet(method="none"))),
            **fields,
            **changes,
        },
    )


def plain(
    distro: str,
    *,
    nics: tuple[Nic, ...] | None = None,
    disks: tuple[Disk, ...] | None = None,
    firmware: Firmware | None = None,
    agent: bool = True,
    **installation: Any,
) -> Guest:
    """A guest that uses little."""
    return Guest(
        label="db1",
        node="pve1",
        vmid=101,
        name="db1",
        agent=agent,
        firmware=firmware or Firmware(),
        disks=disks
        if disks is not None
        else tuple(Disk(slot=f"scsi{i}", storage="local", size=32 * GIB) for i in (0, 1)),
        nics=nics if nics is not None else (nic(0),),
        source=IsoSource(
            iso="local:iso/install.iso",
            seed_storage="local",
            installation=Installation(**{"distro": distro, "hostname": "db1", **installation}),
        ),
    )
