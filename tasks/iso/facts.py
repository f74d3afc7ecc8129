"""What the installer files are made from: a guest, looked at as its operating system will."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from itertools import chain

from blocks.manifest.guest import Guest, HostsEntry, Installation, Repository
from tasks.iso.distros import Distro


@dataclass(frozen=True)
class Card:
    """A network card. ``name`` is empty where the system may choose; ``mac`` is in lower case."""

    slot: str
    mac: str
    name: str
    method: str
    v4: tuple[IPv4Interface, ...]
    v6: tuple[IPv6Interface, ...]
    gateway4: IPv4Address | None
    gateway6: IPv6Address | None
    dns: tuple[IPv4Address | IPv6Address, ...]
    search: tuple[str, ...]

    @property
    def addresses(self) -> tuple[IPv4Interface | IPv6Interface, ...]:
        """All addresses, IPv4 first."""
        return (*self.v4, *self.v6)

    @property
    def dns4(self) -> tuple[IPv4Address, ...]:
        """Name servers with an IPv4 address."""
        return tuple(server for server in self.dns if isinstance(server, IPv4Address))

    @property
    def dns6(self) -> tuple[IPv6Address, ...]:
        """Name servers with an IPv6 address."""
        return tuple(server for server in self.dns if isinstance(server, IPv6Address))


@dataclass(frozen=True)
class RootDisk:
    """The disk to install on, as udev names it: ``ID_SERIAL`` and the link in by-id."""

    udev_serial: str
    by_id: str

    @property
    def path(self) -> str:
        """The stable device path."""
        return f"/dev/disk/by-id/{self.by_id}"


@dataclass(frozen=True, repr=False)
class Account:
    """A user, checked. ``hash`` is the crypt string or empty; it has no repr for that reason."""

    name: str
    sudo: bool
    keys: tuple[str, ...]
    hash: str


@dataclass(frozen=True, repr=False)
class Facts:
    """Everything a template may ask for. It holds secrets, so it has no repr."""

    env: str
    guest: Guest
    distro: Distro
    installation: Installation
    content: str
    hostname: str
    domain: str
    layout: str
    variant: str
    disk: RootDisk
    cards: tuple[Card, ...]
    root: Account
    users: tuple[Account, ...]
    ntp: tuple[str, ...]
    hosts: tuple[HostsEntry, ...]
    repositories: tuple[Repository, ...]

    @property
    def fqdn(self) -> str:
        """Host name with domain, if there is one."""
        return f"{self.hostname}.{self.domain}" if self.domain else self.hostname

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Root and the users."""
        return (self.root, *self.users)

    @property
    def early_packages(self) -> tuple[str, ...]:
        """Packages that the installer installs.

        Only Anaconda knows the declared repositories by then. Others get packages that may come
        from one when the system stands.
        """
        waits = self.repositories and self.distro.family != "anaconda"
        return () if waits else self.installation.packages

    @property
    def late_packages(self) -> tuple[str, ...]:
        """Packages that are installed when the system and its repositories stand."""
        named = (*self.installation.packages, *self.installation.packages_post)
        return named[len(self.early_packages) :]

    @property
    def volume_group(self) -> str:
        """Name of the LVM group on the root disk: letters, digits and underscores, at most 70.

        It has the guest's label in it, so that a disk that comes from another guest never holds a
        group of that name; two of one name keep a system from booting. LVM doubles hyphens in
        device names, and ``/dev`` has entries that a bare label might be.
        """
        return f"system_{re.sub('[^A-Za-z0-9]', '_', self.guest.label)}"

    @property
    def uefi(self) -> bool:
        """Whether the firmware is UEFI."""
        return self.guest.firmware.bios == "ovmf"

    @property
    def kernel_args(self) -> str:
        """Kernel arguments of the installed system: screen and serial console both speak."""
        return "console=tty0 console=ttyS0,115200" if self.guest.serial_console else ""

    @property
    def install_card(self) -> Card | None:
        """The card that the installer may use: with a gateway, else DHCP, else any address."""
        cards = self.cards
        routed = (card for card in cards if card.gateway4 or card.gateway6)
        automatic = (card for card in cards if card.method == "dhcp")
        addressed = (card for card in cards if card.method == "static")
        return next(chain(routed, automatic, addressed), None)

    @property
    def dns(self) -> tuple[IPv4Address | IPv6Address, ...]:
        """Name servers of all cards, each once, in order."""
        return tuple(dict.fromkeys(server for card in self.cards for server in card.dns))

    @property
    def search(self) -> tuple[str, ...]:
        """Search domains of all cards, each once, in order."""
        return tuple(dict.fromkeys(name for card in self.cards for name in card.search))

    @property
    def hosts_lines(self) -> tuple[str, ...]:
        """/etc/hosts: loopback, the machine itself, then what the operator listed.

        The machine's own name points to its first static address, never to loopback where there
        is a better choice: clustered databases refuse to start otherwise.
        """
        names = " ".join(dict.fromkeys((self.fqdn, self.hostname)))
        listed = {name.lower() for entry in self.hosts for name in entry.names}
        own = next((str(a.ip) for card in self.cards for a in card.addresses), "127.0.1.1")
        lines = ["127.0.0.1 localhost localhost.localdomain"]
        if self.installation.ipv6:
            lines.append("::1 localhost ip6-localhost ip6-loopback")
        if not {self.fqdn.lower(), self.hostname.lower()} & listed:
            lines.append(f"{own} {names}")
        lines.extend(f"{entry.ip} {' '.join(entry.names)}" for entry in self.hosts)
        return tuple(lines)

    @property
    def release_lines(self) -> tuple[str, ...]:
        """The marker file, in the syntax of os-release."""
        return (
            f"PROXFLOW_ENVIRONMENT={self.env}",
            f"PROXFLOW_GUEST={self.guest.label}",
            f"PROXFLOW_NODE={self.guest.node}",
            f"PROXFLOW_CONTENT={self.content}",
        )
