"""The network cards of a node: slots, MAC addresses, and what the guest does with them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface, ip_network
from typing import Literal

from blocks.manifest.guest import Address, Inet, Nic
from blocks.manifest.hypervisor import NicSpec, NodeSpec
from blocks.manifest.networks import Zone

MOVING_USAGES = ("vip", "scan")
_DEFAULT_BRIDGE = "vmbr0"
_NET_SLOT = re.compile(r"net\d+")


@dataclass(frozen=True)
class Card:
    """A network card of a node with the slot that it gets."""

    slot: str
    spec: NicSpec
    zone: Zone | None
    inet: Inet


def cards_of(node: NodeSpec, zones: dict[str, Zone]) -> tuple[Card, ...]:
    specs = [spec for spec in node.nics if spec.bridge or not _moves(spec)]
    taken = {spec.name for spec in specs if _NET_SLOT.fullmatch(spec.name)}
    free = (slot for number in range(len(specs) * 2) if (slot := f"net{number}") not in taken)
    # Two default routes are one too many: the zone's gateway only stands in where no card of the
    # node names one, and only for the first card that can have it.
    routed = any(spec.ipv4 is not None and spec.ipv4.gateway is not None for spec in specs)
    found: list[Card] = []
    for spec in specs:
        zone = zones.get(spec.network or "")
        inet = _inet(node, spec, zone, stand_in=not routed)
        routed = routed or inet.gateway is not None
        slot = spec.name if spec.name in taken else next(free)
        found.append(Card(slot, spec, zone, inet))
    return tuple(found)


def _moves(spec: NicSpec) -> bool:
    """Whether the addresses move between nodes, so that the cluster software sets them."""
    return spec.usage in MOVING_USAGES or spec.shared_with_cluster


def _inet(node: NodeSpec, spec: NicSpec, zone: Zone | None, *, stand_in: bool) -> Inet:
    method = _method(node, spec, zone)
    if method == "none":
        return Inet(method="none")
    dns = zone.dns if zone is not None else ()
    search = zone.search if zone is not None else ()
    if method == "dhcp":
        return Inet(method="dhcp", search=search)
    if spec.ipv4 is not None:
        first: Address = ip_interface(spec.ipv4.address)
        dns = dns if spec.ipv4.dns is None else spec.ipv4.dns
        gateway = spec.ipv4.gateway
    else:
        assert spec.usage is not None  # noqa: S101 - _method said static, so there is a role
        assert zone is not None  # noqa: S101
        length = ip_network(zone.cidr).prefixlen
        first = ip_interface(f"{node.ips[spec.usage]}/{length}")
        gateway = None
    if gateway is None and zone is not None and stand_in and zone.gateway != first.ip:
        gateway = zone.gateway
    others = (_secondary(text, first) for text in spec.ipv4_addresses)
    addresses = tuple(dict.fromkeys((first, *others)))
    return Inet(method="static", addresses=addresses, gateway=gateway, dns=dns, search=search)


def _method(node: NodeSpec, spec: NicSpec, zone: Zone | None) -> Literal["static", "dhcp", "none"]:
    if _moves(spec) or spec.controlled_by == "crs":
        return "none"
    if spec.bootproto in ("none", "link", "ibft"):
        return "none"
    if spec.bootproto == "dhcp":
        return "dhcp"
    # A role under ips is the address of the card with that usage.
    known = spec.usage is not None and spec.usage in node.ips and zone is not None
    return "static" if spec.ipv4 is not None or known else "dhcp"


def _secondary(text: str, primary: IPv4Interface | IPv6Interface) -> Address:
    if "/" in text:
        return ip_interface(text)
    address = ip_address(text)
    same_family = address.version == primary.version
    return ip_interface(f"{address}/{primary.network.prefixlen}" if same_family else text)


def derived_mac(environment: str, vmid: int, slot: str) -> str:
    """A locally administered MAC address that is the same each time: ``02:...``."""
    digest = hashlib.sha256(f"{environment}/{vmid}/{slot}".encode()).digest()
    return ":".join(f"{byte:02X}" for byte in (0x02, *digest[:5]))


def nic(card: Card, mac: str) -> Nic:
    spec, zone = card.spec, card.zone
    zone_bridge = zone.bridge if zone is not None else None
    zone_vlan = zone.vlan if zone is not None else None
    return Nic(
        slot=card.slot,
        bridge=spec.bridge or zone_bridge or _DEFAULT_BRIDGE,
        mac=mac,
        model=spec.model,
        vlan=spec.vlan if spec.vlan is not None else zone_vlan,
        firewall=spec.firewall,
        mtu=spec.mtu,
        rate=spec.rate,
        queues=spec.queues,
        name=None if _NET_SLOT.fullmatch(spec.name) else spec.name,
        usage=spec.usage,
        inet=card.inet,
    )
