"""Makes guests of a validated environment document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from blocks.manifest.cards import MOVING_USAGES, Card, cards_of, derived_mac, nic
from blocks.manifest.document import Env
from blocks.manifest.fields import normal_tag
from blocks.manifest.guest import (
    Disk,
    Firmware,
    Guest,
    Host,
    HostsEntry,
    Installation,
    IsoSource,
    Repository,
    SharedDisk,
    User,
)
from blocks.manifest.hypervisor import DiskSpec, NodeSpec, Resources
from blocks.manifest.kickstart import Kickstart
from blocks.units import parse_size

_LOGIN_ROLES = ("management", "public", "private")
# An installed guest has both of its CD drives, empty.
_EMPTY_DRIVES = {"ide2": "none", "ide3": "none"}


def compile_guests(env: Env) -> tuple[Guest, ...]:
    """The guests of an environment, in manifest order.

    The document has passed all checks, and each node has what it is installed from.
    """
    plans = tuple(_plans(env))
    macs = _macs(env, plans)
    hosts = _hosts(env, plans)
    guests: list[Guest] = []
    owners: dict[int, SharedDisk] = {}
    users = _shared_ids(env)
    for plan in plans:
        disks = _disks(env, plan, owners, users)
        guests.append(_guest(env, plan, disks, macs, hosts))
    return tuple(guests)


@dataclass(frozen=True)
class _Plan:
    label: str
    node: NodeSpec
    cards: tuple[Card, ...]

    @property
    def hostname(self) -> str:
        return self.node.hostname or self.label

    @property
    def vmid(self) -> int:
        return self.node.proxmox.vm_id

    @property
    def resources(self) -> Resources:
        return self.node.resources or Resources()

    @property
    def login_addresses(self) -> tuple[Host, ...]:
        """Where the SSH server is to be looked for, best first."""
        found: list[Host] = []
        for role in _LOGIN_ROLES:
            found += [
                card.inet.addresses[0].ip
                for card in self.cards
                if card.spec.usage == role and card.inet.addresses
            ]
        found += [self.node.ips[role] for role in _LOGIN_ROLES if role in self.node.ips]
        if not found:
            found += [card.inet.addresses[0].ip for card in self.cards if card.inet.addresses]
            found += [ip for role, ip in self.node.ips.items() if role not in MOVING_USAGES]
            found = found[:1]
        return tuple(dict.fromkeys(found))


def _plans(env: Env) -> Iterator[_Plan]:
    zones = env.spec.networks.zones
    for label, node in env.spec.hypervisor.nodes.items():
        yield _Plan(label, node, cards_of(node, zones))


def _macs(env: Env, plans: tuple[_Plan, ...]) -> dict[tuple[int, str], str]:
    """A MAC for each card: the given one, else one that is derived from where the card is."""
    macs = {
        (plan.vmid, card.slot): card.spec.mac
        for plan in plans
        for card in plan.cards
        if card.spec.mac not in (None, "auto")
    }
    taken = {mac for mac in macs.values() if mac is not None}
    made: dict[tuple[int, str], str] = {key: mac for key, mac in macs.items() if mac is not None}
    for plan in plans:
        for card in plan.cards:
            if (plan.vmid, card.slot) in made:
                continue
            mac = derived_mac(env.metadata.name, plan.vmid, card.slot)
            attempt = 1
            while mac in taken:
                mac = derived_mac(env.metadata.name, plan.vmid, f"{card.slot}/{attempt}")
                attempt += 1
            taken.add(mac)
            made[plan.vmid, card.slot] = mac
    return made


def _hosts(env: Env, plans: tuple[_Plan, ...]) -> tuple[HostsEntry, ...]:
    """The lines of /etc/hosts: the declared ones, then the nodes' own. One line an address."""
    lines: dict[Host, list[str]] = {}
    cluster = env.spec.cluster
    for entry in cluster.hosts_entries if cluster is not None else ():
        lines.setdefault(entry.ip, []).extend(entry.names)
    for plan in plans:
        for address in plan.login_addresses[:1]:
            lines.setdefault(address, []).extend(_names(plan.hostname, env.metadata.domain))
        for card in plan.cards:
            for interface in card.inet.addresses[:1]:
                if card.spec.hostname_aliases:
                    lines.setdefault(interface.ip, []).extend(card.spec.hostname_aliases)
    return tuple(
        HostsEntry(ip=address, names=tuple(dict.fromkeys(names)))
        for address, names in lines.items()
    )


def _names(hostname: str, domain: str | None) -> list[str]:
    short = hostname.partition(".")[0]
    full = hostname if "." in hostname or not domain else f"{hostname}.{domain}"
    return [full] if full == short else [full, short]


def _shared_ids(env: Env) -> set[int]:
    """The ids of disks that really are on several nodes."""
    count: dict[int, int] = {}
    for node in env.spec.hypervisor.nodes.values():
        for disk in node.disks:
            if disk.shared:
                count[disk.id] = count.get(disk.id, 0) + 1
    return {number for number, nodes in count.items() if nodes > 1}


def _disks(
    env: Env, plan: _Plan, owners: dict[int, SharedDisk], shared_ids: set[int]
) -> tuple[Disk, ...]:
    """The disks of a node. The first node with a shared disk owns its volume."""
    specs = plan.node.disks
    taken = {spec.interface for spec in specs if spec.interface}
    disks: list[Disk] = []
    for index, spec in enumerate(specs):
        slot = spec.interface or f"scsi{index}"
        number = index
        while spec.interface is None and slot in taken:
            number += 1
            slot = f"scsi{number}"
        taken.add(slot)
        several = spec.shared and spec.id in shared_ids
        owner = owners.get(spec.id) if several else None
        if several and owner is None:
            owners[spec.id] = SharedDisk(vmid=plan.vmid, slot=slot)
        # SSD emulation and I/O threads are for buses that have them.
        bus = slot.rstrip("0123456789")
        disks.append(
            Disk(
                slot=slot,
                storage=_storage(env, spec),
                size=parse_size(spec.size),
                shared=several and owner is None,
                shared_with=owner,
                discard=spec.discard,
                ssd=spec.ssd and bus != "virtio",
                iothread=spec.iothread and bus in ("scsi", "virtio"),
                cache=spec.cache,
                format=spec.format,
                backup=spec.backup,
                serial=spec.serial,
                tag=spec.tag,
                role=spec.role,
            )
        )
    return tuple(disks)


def _storage(env: Env, spec: DiskSpec) -> str:
    if spec.storage is not None:
        return spec.storage
    return env.spec.storage_classes.classes[spec.storage_class or ""].backend


def _backend(env: Env, name: str) -> str:
    """The storage behind a class, or the storage itself where no class has that name."""
    found = env.spec.storage_classes.classes.get(name)
    return found.backend if found is not None else name


def _root(disks: tuple[Disk, ...]) -> Disk | None:
    by_role = next((disk for disk in disks if disk.role == "root"), None)
    by_slot = next((disk for disk in disks if disk.slot == "scsi0"), None)
    return by_role or by_slot or (disks[0] if disks else None)


def _guest(
    env: Env,
    plan: _Plan,
    disks: tuple[Disk, ...],
    macs: dict[tuple[int, str], str],
    hosts: tuple[HostsEntry, ...],
) -> Guest:
    node, resources = plan.node, plan.resources
    root = _root(disks)
    iso = node.iso
    source = _source(env, plan, hosts, root.slot if root is not None else None)
    tags = {normal_tag(tag) for tag in (*env.metadata.tags, *node.tags)}
    optional = {} if resources.cpu is None else {"cpu": resources.cpu}
    return Guest(
        label=plan.label,
        node=node.proxmox.node_name,
        vmid=plan.vmid,
        name=plan.hostname,
        cores=resources.cores,
        sockets=resources.sockets,
        memory=resources.memory,
        balloon=resources.balloon,
        ostype=iso.guest_os_type if iso is not None else "l26",
        firmware=_firmware(env, resources, root),
        disks=disks,
        nics=tuple(nic(card, macs[plan.vmid, card.slot]) for card in plan.cards),
        drives=dict(_EMPTY_DRIVES) if source is not None else {},
        boot=(root.slot,) if root is not None else (),
        agent=True if node.agent is None else node.agent,
        onboot=bool(node.onboot),
        tags=tuple(sorted(tags)),
        pool=node.pool,
        description=node.description or env.metadata.description,
        ssh_addresses=plan.login_addresses,
        source=source,
        **optional,
    )


def _firmware(env: Env, resources: Resources, root: Disk | None) -> Firmware:
    uefi = resources.bios == "ovmf"
    machine = resources.machine or ("q35" if uefi else "i440fx")
    efi = None
    if uefi and resources.efi_storage is not None:
        efi = _backend(env, resources.efi_storage)
    elif uefi and root is not None:
        efi = root.storage
    tpm = resources.tpm_storage
    return Firmware(
        bios=resources.bios,
        machine="i440fx" if machine == "pc" else machine,
        efi_storage=efi,
        secure_boot=resources.secure_boot and uefi,
        tpm_storage=_backend(env, tpm) if tpm is not None else None,
    )


def _source(
    env: Env, plan: _Plan, hosts: tuple[HostsEntry, ...], root_slot: str | None
) -> IsoSource | None:
    iso, kickstart = plan.node.iso, plan.node.kickstart
    if iso is None or kickstart is None or root_slot is None:
        return None
    whole = re.match(r"[A-Za-z][A-Za-z0-9_.-]*:", iso.image)
    return IsoSource(
        iso=iso.image if whole else f"{iso.storage}:iso/{iso.image.removeprefix('iso/')}",
        origin=iso.source,
        sha256=iso.checksum.removeprefix("sha256:") if iso.checksum else None,
        seed_storage=iso.kickstart_storage or iso.storage,
        installation=_installation(env, plan, kickstart, hosts, root_slot),
    )


def _installation(
    env: Env,
    plan: _Plan,
    kickstart: Kickstart,
    hosts: tuple[HostsEntry, ...],
    root_slot: str,
) -> Installation:
    host, _, own_domain = plan.hostname.partition(".")
    return Installation(
        distro=kickstart.distro,
        hostname=host,
        domain=own_domain or env.metadata.domain,
        timezone=kickstart.timezone,
        keyboard=kickstart.keyboard_layout,
        lang=kickstart.lang,
        mode=kickstart.mode,
        ipv6=kickstart.ipv6,
        install_url=kickstart.install_url,
        ntp_servers=kickstart.chrony_servers,
        sudo_nopasswd=kickstart.sudo.wheel_nopasswd,
        packages=kickstart.packages.base,
        packages_post=kickstart.packages.post,
        repositories=tuple(
            Repository(
                name=repo.name,
                baseurl=repo.baseurl,
                mirrorlist=repo.mirrorlist,
                cost=repo.cost,
                gpg_key=repo.gpg_key,
            )
            for repo in kickstart.repos
        ),
        firewall=kickstart.firewall.enabled,
        selinux=kickstart.selinux,
        update_system=kickstart.update_system,
        root_password_hash=kickstart.root_password_hash,
        root_ssh_keys=tuple(dict.fromkeys(kickstart.ssh_keys.get("root", ()))),
        users=_users(kickstart),
        hosts=hosts,
        root_disk=root_slot,
    )


def _users(kickstart: Kickstart) -> tuple[User, ...]:
    """The declared users, and one for each other name that has SSH keys."""
    users: list[User] = []
    for spec in kickstart.additional_users:
        keys = (spec.ssh_key, *spec.ssh_keys, *kickstart.ssh_keys.get(spec.name, ()))
        users.append(
            User(
                name=spec.name,
                sudo=spec.wheel,
                ssh_keys=tuple(dict.fromkeys(key for key in keys if key)),
                password_hash=spec.password_hash,
            )
        )
    declared = {user.name for user in users} | {"root"}
    users += [
        User(name=name, ssh_keys=tuple(dict.fromkeys(keys)))
        for name, keys in kickstart.ssh_keys.items()
        if name not in declared
    ]
    return tuple(users)
