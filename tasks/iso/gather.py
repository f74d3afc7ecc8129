"""Checks a guest, value by value, and gathers what its installer files are made from."""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

from pydantic import SecretStr

from blocks.manifest.guest import Guest, HostsEntry, Installation, Nic, Repository
from tasks.iso import checks
from tasks.iso.checks import RenderError
from tasks.iso.distros import Distro, UnknownDistro, distro
from tasks.iso.facts import Account, Card, Facts, RootDisk

_WITHOUT_SELINUX = frozenset({"subiquity", "debian-installer", "autoyast"})


def gather(guest: Guest, *, env: str, content: str) -> Facts:
    """Checks a guest and gathers what its installer files need.

    ``content`` is the hash for the marker file. Raises RenderError, with the key of the first
    value that cannot be rendered.
    """
    if guest.install is None or guest.install.kind != "iso":
        raise RenderError("source", f"guest {guest.label} is not installed from an ISO")
    inst = guest.install.installation
    try:
        which = distro(inst.distro)
    except UnknownDistro as error:
        raise RenderError("installation.distro", str(error)) from None
    checks.timezone("installation.timezone", inst.timezone)
    checks.lang("installation.lang", inst.lang)
    layout, variant = checks.keyboard("installation.keyboard", inst.keyboard)
    if inst.install_url is not None:
        checks.url("installation.install_url", inst.install_url)
    if inst.selinux is not None and which.family in _WITHOUT_SELINUX:
        raise RenderError("installation.selinux", f"the installer of {which.title} sets up none")
    for field in ("packages", "packages_post"):
        for index, package in enumerate(getattr(inst, field)):
            _package(f"installation.{field}[{index}]", package, which)
    cards = _cards(guest, inst)
    if all(card.method == "none" for card in cards):
        for field in ("install_url", "repositories"):
            if getattr(inst, field):
                raise RenderError(
                    f"installation.{field}", "no network card has an address to reach it from"
                )
    return Facts(
        env=checks.name("env", env),
        guest=_named(guest),
        distro=which,
        installation=inst,
        content=content,
        hostname=checks.hostname("installation.hostname", inst.hostname),
        domain=(
            checks.domain("installation.domain", inst.domain) if inst.domain is not None else ""
        ),
        layout=layout,
        variant=variant,
        disk=_root_disk(guest, inst.root_disk),
        cards=cards,
        root=_account(
            "root",
            keys=inst.root_ssh_keys,
            crypt=inst.root_password_hash,
            at="installation.root",
        ),
        users=_users(inst),
        ntp=tuple(
            checks.server(f"installation.ntp_servers[{index}]", server)
            for index, server in enumerate(inst.ntp_servers)
        ),
        hosts=_hosts(inst),
        repositories=_repositories(inst),
    )


def _named(guest: Guest) -> Guest:
    checks.name("label", guest.label)
    checks.name("node", guest.node)
    return guest


def _package(key: str, value: str, which: Distro) -> None:
    """Groups (``@name``, spaces allowed) and exclusions are Anaconda's; ``task^`` is apt's."""
    word = r"[A-Za-z0-9][A-Za-z0-9+._:~*=/-]{0,127}"
    pattern = {
        "anaconda": rf"-?(?:{word}|@\^?[A-Za-z0-9](?:[A-Za-z0-9 ._+-]*[A-Za-z0-9])?)",
        "subiquity": rf"{word}\^?",
        "debian-installer": rf"{word}\^?",
        "autoyast": rf"(?:pattern:)?{word}",
        "agama": rf"(?:pattern:)?{word}",
    }[which.family]
    post = key.startswith("installation.packages_post")
    if re.fullmatch(pattern, value) is None or (post and value.startswith(("-", "pattern:"))):
        raise RenderError(key, f"{value[:60]!r} is not a package name of {which.title}")


def _root_disk(guest: Guest, slot: str) -> RootDisk:
    """By what QEMU shows the guest, never by size or by kernel name.

    A SCSI disk carries ``drive-scsiN`` as device id since machine version 10.0, whatever its
    serial number; before that the serial number came first. Other buses show a name of ours only
    with a serial number.
    """
    disk = guest.disk(slot)
    if disk is None:
        known = ", ".join(disk.slot for disk in guest.disks) or "none"
        raise RenderError("installation.root_disk", f"there is no disk {slot!r}; disks: {known}")
    key = f"disks[{slot}].serial"
    serial = checks.serial(key, disk.serial) if disk.serial is not None else None
    bus = slot.rstrip("0123456789")
    if bus == "scsi":
        checks.serial("installation.root_disk", slot)
        pinned = re.search(r"-(\d+)\.\d+", guest.firmware.machine)
        old = pinned is not None and int(pinned[1]) < 10
        ident = serial if serial and old else f"drive-{slot}"
        return RootDisk(f"0QEMU_QEMU_HARDDISK_{ident}", f"scsi-0QEMU_QEMU_HARDDISK_{ident}")
    if serial is None:
        raise RenderError(
            key, f"a {bus} disk is found by its serial number only; set one, or use a scsi slot"
        )
    if bus == "virtio":
        return RootDisk(serial, f"virtio-{serial}")
    return RootDisk(f"QEMU_HARDDISK_{serial}", f"ata-QEMU_HARDDISK_{serial}")


def _cards(guest: Guest, inst: Installation) -> tuple[Card, ...]:
    cards = tuple(_card(nic, inst) for nic in guest.nics)
    for what in ("mac", "name"):
        seen: dict[str, str] = {}
        for card in cards:
            value = getattr(card, what)
            if value and value in seen:
                raise RenderError(
                    f"nics[{card.slot}].{what}", f"{value} is {seen[value]}'s already"
                )
            seen[value] = card.slot
    return _with_servers_in_reach(cards)


def _with_servers_in_reach(cards: tuple[Card, ...]) -> tuple[Card, ...]:
    """The same cards; a name server whose protocol a card does not speak goes to one that does.

    NetworkManager refuses an IPv4 server on a card without IPv4, and systemd-resolved would ask it
    through that card alone, in vain. The order of all servers together stays what it was.
    """
    found: dict[str, list[IPv4Address | IPv6Address]] = {card.slot: [] for card in cards}
    for card in cards:
        for index, server in enumerate(card.dns):
            home = next((each for each in (card, *cards) if _speaks(each, server)), None)
            if home is None:
                raise RenderError(
                    f"nics[{card.slot}].inet.dns[{index}]",
                    f"{server} is IPv4, and no card has an IPv4 address to reach it from",
                )
            found[home.slot].append(server)
    return tuple(replace(card, dns=tuple(dict.fromkeys(found[card.slot]))) for card in cards)


def _speaks(card: Card, server: IPv4Address | IPv6Address) -> bool:
    """Whether a card has addresses of the server's protocol; IPv6 has them by router, at least."""
    return isinstance(server, IPv6Address) or bool(card.v4) or card.method == "dhcp"


def _card(nic: Nic, inst: Installation) -> Card:
    key, inet = f"nics[{nic.slot}]", nic.inet
    checks.interface(f"{key}.slot", nic.slot)
    v4 = tuple(a for a in inet.addresses if isinstance(a, IPv4Interface))
    v6 = tuple(a for a in inet.addresses if isinstance(a, IPv6Interface))
    if inet.method == "static" and not inet.addresses:
        raise RenderError(f"{key}.inet.addresses", "a static card needs an address")
    if inet.method == "none" and (inet.addresses or inet.gateway):
        raise RenderError(f"{key}.inet.method", "none takes no addresses and no gateway")
    if inet.method == "none" and (inet.dns or inet.search):
        what = "dns" if inet.dns else "search"
        raise RenderError(
            f"{key}.inet.{what}", "a card without an address asks nobody; move it to another card"
        )
    if inet.method == "dhcp" and (inet.addresses or inet.gateway):
        raise RenderError(
            f"{key}.inet.method", "dhcp takes no addresses and no gateway; use static"
        )
    six = [*v6, *(h for h in (inet.gateway, *inet.dns) if isinstance(h, IPv6Address))]
    if six and not inst.ipv6:
        raise RenderError(f"{key}.inet", f"{six[0]} is IPv6, which installation.ipv6 switches off")
    for address in (inet.gateway, *inet.dns, *inet.addresses):
        if getattr(address, "scope_id", None):
            raise RenderError(f"{key}.inet", f"{address}: a zone (%) has no meaning before boot")
    if inet.gateway is not None:
        family = v4 if isinstance(inet.gateway, IPv4Address) else v6
        local = inet.gateway.is_link_local
        if not family or not (local or any(inet.gateway in a.network for a in family)):
            raise RenderError(
                f"{key}.inet.gateway", f"{inet.gateway} is in none of the card's networks"
            )
    return Card(
        slot=nic.slot,
        mac=checks.mac(f"{key}.mac", nic.mac),
        name=checks.interface(f"{key}.name", nic.name) if nic.name is not None else "",
        method=inet.method,
        v4=v4,
        v6=v6,
        gateway4=inet.gateway if isinstance(inet.gateway, IPv4Address) else None,
        gateway6=inet.gateway if isinstance(inet.gateway, IPv6Address) else None,
        dns=inet.dns,
        search=tuple(
            checks.domain(f"{key}.inet.search[{index}]", value)
            for index, value in enumerate(inet.search)
        ),
    )


def _account(
    name: str, *, keys: tuple[str, ...], crypt: SecretStr | None, at: str, sudo: bool = False
) -> Account:
    separator = "_" if name == "root" else "."
    return Account(
        name=name,
        sudo=sudo,
        keys=tuple(
            checks.ssh_key(f"{at}{separator}ssh_keys[{index}]", text)
            for index, text in enumerate(keys)
        ),
        hash=(
            checks.crypt_hash(f"{at}{separator}password_hash", crypt.get_secret_value())
            if crypt is not None
            else ""
        ),
    )


def _users(inst: Installation) -> tuple[Account, ...]:
    accounts: list[Account] = []
    for index, user in enumerate(inst.users):
        key = f"installation.users[{index}]"
        checks.user(f"{key}.name", user.name)
        if user.name == "root":
            raise RenderError(f"{key}.name", "root has keys of its own: root_ssh_keys")
        if any(user.name == other.name for other in accounts):
            raise RenderError(f"{key}.name", f"{user.name} is there already")
        accounts.append(
            _account(
                user.name, keys=user.ssh_keys, crypt=user.password_hash, at=key, sudo=user.sudo
            )
        )
    return tuple(accounts)


def _hosts(inst: Installation) -> tuple[HostsEntry, ...]:
    for index, entry in enumerate(inst.hosts):
        key = f"installation.hosts[{index}]"
        if not entry.names:
            raise RenderError(f"{key}.names", "needs a name at least")
        if getattr(entry.ip, "scope_id", None):
            raise RenderError(f"{key}.ip", f"{entry.ip}: a zone (%) has no meaning in /etc/hosts")
        for name in entry.names:
            checks.alias(f"{key}.names", name)
    return inst.hosts


def _repositories(inst: Installation) -> tuple[Repository, ...]:
    for index, repo in enumerate(inst.repositories):
        key = f"installation.repositories[{index}]"
        checks.repository(f"{key}.name", repo.name)
        if (repo.baseurl is None) == (repo.mirrorlist is None):
            raise RenderError(key, "needs either baseurl or mirrorlist")
        if repo.gpg_key is not None:
            checks.url(f"{key}.gpg_key", repo.gpg_key, ("http", "https"))
    return inst.repositories
