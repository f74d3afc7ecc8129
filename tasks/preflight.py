"""Stage preflight: everything that would go wrong, found before anything is changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from blocks.manifest.guest import Guest
from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.inventory import (
    Inventory,
    bridges,
    permissions,
    storage_content,
)
from tasks.capacity import check_inventory, did_you_mean
from tasks.findings import Finding, error, refuse
from tasks.found import READERS, FoundGuest, all_guests
from tasks.media_checks import check_media
from tasks.rights import check_rights
from tasks.session import session
from tasks.ssh import ssh_banner
from tasks.stage import RunRef
from tasks.whole import whole

OLDEST_RELEASE = 8
_ADDRESS = re.compile(r"(?:^|,)ip6?=(?P<ip>[0-9A-Fa-f.:]+)(?:/\d+)?")
_MAC = re.compile(r"(?:[0-9A-F]{2}:){5}[0-9A-F]{2}", re.IGNORECASE)

T = TypeVar("T")


@whole("preflight")
def preflight(
    run: RunRef,
    guests: Sequence[Guest],
    inventory: Inventory,
    known: Sequence[Finding] = (),
    changing: Sequence[Guest] = (),
) -> tuple[Finding, ...]:
    """The warnings about the guests that are to be created or changed.

    ``changing``: existing guests with the parts that change; their bridges must be there.
    ``known``: what the plan has shown. Raises PreflightFailed with all findings, those included,
    where there is an error among them.
    """
    here = session(run)
    return refuse(joined(known, find(here.client, here.connection, guests, inventory, changing)))


def joined(*several: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of several checks, errors first, each once."""
    every = dict.fromkeys(finding for found in several for finding in found)
    return tuple(sorted(every, key=lambda finding: finding.severity))


def find(
    client: Client,
    connection: Connection,
    guests: Sequence[Guest],
    inventory: Inventory,
    changing: Sequence[Guest] = (),
) -> tuple[Finding, ...]:
    """All findings for the guests that are to be created or changed, errors first.

    Reads, several at once: version, permissions, bridges of each node, ISOs of each storage, and
    every guest's configuration for MAC and IP addresses. Raises ProxmoxError where the cluster
    cannot be read at all.
    """
    if not guests:
        return joined(_switched(client, changing, inventory))
    with ThreadPoolExecutor(READERS) as pool:
        strangers = pool.submit(all_guests, client, inventory)
        rights = pool.submit(permissions, client)
        switches = {
            node: pool.submit(optional, partial(bridge_names, client, node))
            for node in _nodes_online(guests, inventory)
        }
        isos = {
            place: pool.submit(optional, lambda p=place: storage_content(client, p[0], p[1], "iso"))
            for place in _iso_places(guests, inventory)
        }
        banners = {
            (guest.label, str(address)): pool.submit(
                ssh_banner, str(address), proxy=connection.guest_proxy, timeout=1.0
            )
            for guest in guests
            for address in guest.ssh_addresses[:1]
        }
        who = connection.token_id or connection.user or "the caller"
        return joined(
            version_findings(client),
            check_rights(guests, rights.result(), who),
            check_inventory(guests, inventory),
            bridge_findings(guests, {node: job.result() for node, job in switches.items()}),
            _switched(client, changing, inventory),
            _isos(guests, {place: job.result() for place, job in isos.items()}),
            check_media(guests, inventory, {place: job.result() for place, job in isos.items()}),
            address_findings(guests, strangers.result()),
            answering({key: job.result() for key, job in banners.items()}),
        )


def bridge_names(client: Client, node: str) -> list[str]:
    """The bridges that guests on a node may use."""
    return [row.name for row in bridges(client, node)]


def _switched(client: Client, changing: Sequence[Guest], inventory: Inventory) -> list[Finding]:
    """The bridges of changed cards that their nodes do not have; a call a node."""
    cards = [guest for guest in changing if guest.nics]
    there = {
        node: optional(partial(bridge_names, client, node))
        for node in _nodes_online(cards, inventory)
    }
    return bridge_findings(cards, there)


def optional(read: Callable[[], T]) -> T | None:
    """What the caller may not read is reported by the check of the privileges."""
    try:
        return read()
    except ProxmoxError:
        return None


def version_findings(client: Client) -> list[Finding]:
    """A server that is older than what Proxflow knows."""
    release = client.version().release
    major = int(release.partition(".")[0])
    if major >= OLDEST_RELEASE:
        return []
    return [error(f"Proxmox VE {release} is too old", f"{OLDEST_RELEASE}.0 or newer is needed")]


def _nodes_online(guests: Sequence[Guest], inventory: Inventory) -> set[str]:
    return {
        guest.node
        for guest in guests
        if (row := inventory.node(guest.node)) is not None and row.online
    }


def _iso_places(guests: Sequence[Guest], inventory: Inventory) -> set[tuple[str, str]]:
    online = _nodes_online(guests, inventory)
    places = {
        (guest.node, guest.install.iso.partition(":")[0])
        for guest in guests
        if guest.install is not None and guest.node in online
    }
    return {
        (node, storage)
        for node, storage in places
        if (row := inventory.storage(node, storage)) is not None and row.active
    }


def bridge_findings(
    guests: Sequence[Guest], there: Mapping[str, Sequence[str] | None]
) -> list[Finding]:
    """Bridges that a guest's node does not have; None: they could not be read."""
    found = []
    for guest in guests:
        known = there.get(guest.node)
        if known is None:
            continue
        for name in dict.fromkeys(nic.bridge for nic in guest.nics):
            if name not in known:
                found.append(
                    error(
                        f"node {guest.node} has no bridge {name}; the VM would not start with it",
                        did_you_mean(name, known),
                        guest=guest.label,
                    )
                )
    return found


def _isos(guests: Sequence[Guest], there: Mapping[tuple[str, str], Any]) -> list[Finding]:
    found = []
    for guest in guests:
        if guest.install is None or guest.install.origin is not None:
            continue
        storage = guest.install.iso.partition(":")[0]
        rows = there.get((guest.node, storage))
        if rows is None:
            continue
        volumes = [row.volid for row in rows]
        if guest.install.iso not in volumes:
            found.append(
                error(
                    f"node {guest.node} has no {guest.install.iso}",
                    f"upload it, or {did_you_mean(guest.install.iso, volumes)}",
                    guest=guest.label,
                )
            )
    return found


def address_findings(guests: Sequence[Guest], others: Sequence[FoundGuest]) -> list[Finding]:
    """MAC and IP addresses that the configuration of another guest has."""
    declared = {guest.vmid for guest in guests}
    macs: dict[str, FoundGuest] = {}
    ips: dict[str, FoundGuest] = {}
    for other in others:
        if other.row.vmid in declared:
            continue
        for key, value in other.live.config.items():
            if not isinstance(value, str):
                continue
            if key.startswith("net"):
                macs.update((m.upper(), other) for m in _MAC.findall(value))
            if key.startswith(("net", "ipconfig")):
                ips.update((m["ip"].lower(), other) for m in _ADDRESS.finditer(value))
    found = []
    for guest in guests:
        for nic in guest.nics:
            if nic.mac and nic.mac.upper() in macs:
                found.append(
                    error(
                        f"MAC address {nic.mac} of {nic.slot} is taken by {macs[nic.mac.upper()]}",
                        "leave `mac` out, or give another",
                        guest=guest.label,
                    )
                )
            for address in nic.inet.addresses:
                if str(address.ip) in ips:
                    found.append(
                        error(
                            f"address {address.ip} is configured for {ips[str(address.ip)]}",
                            "give another address",
                            guest=guest.label,
                        )
                    )
    return found


def answering(banners: Mapping[tuple[str, str], str | None]) -> list[Finding]:
    """A machine that answers at the address of a guest that does not exist yet."""
    return [
        error(
            f"something answers at {address} already: {banner}",
            "the address belongs to another machine; give another",
            guest=label,
        )
        for (label, address), banner in banners.items()
        if banner
    ]
