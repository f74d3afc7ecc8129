"""What must hold between network cards, zones and addresses."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from blocks.manifest.faults import Fault, suggestion
from blocks.manifest.layers import Layers, address_of, interface_of, network_of
from blocks.manifest.tree import Item


def check_nics(env: Layers, node: Item) -> Iterator[Fault]:
    """Zones exist, addresses lie in them, and no card is there twice."""
    names: dict[str, Item] = {}
    for nic in node.elements("nics"):
        name = nic.text("name")
        if name and names.setdefault(name, nic) is not nic:
            yield nic.fault(
                f"the network card {name!r} is there twice (also at {names[name].place})",
                "choose another name",
            )
        if nic.text("bootproto") == "static" and not nic.get("ipv4"):
            role = nic.text("usage")
            if not (role and node.get("ips", role) and nic.text("network")):
                yield nic.fault(
                    "bootproto is static, but there is no address",
                    "add 'ipv4: {address: 10.0.0.11/24}'",
                )
        zone_name, zone_item = nic.text("network"), nic.get("network")
        cidr = None
        if zone_name is not None and zone_item is not None and env.networks is not None:
            if zone_name not in env.zones:
                yield zone_item.fault(
                    f"unknown zone {zone_name!r}", suggestion(zone_name, env.zones, "zones")
                )
            else:
                cidr = network_of(env.zones[zone_name].text("cidr"))
        yield from _placed(nic, zone_name, cidr)
        yield from _role_address(node, nic, zone_name, cidr)


def _placed(nic: Item, zone: str | None, cidr: IPv4Network | IPv6Network | None) -> Iterator[Fault]:
    """The addresses of a card lie in its zone, the gateway in its network."""
    item = nic.get("ipv4", "address")
    address = interface_of(nic.text("ipv4", "address"))
    if item is not None and address is not None and cidr is not None and address.ip not in cidr:
        yield item.fault(
            f"{address.ip} is outside the zone {zone!r}", f"choose an address in {cidr}"
        )
    gateway_item = nic.get("ipv4", "gateway")
    gateway = address_of(nic.text("ipv4", "gateway"))
    if gateway_item is not None and gateway is not None and address is not None:
        if gateway not in address.network:
            yield gateway_item.fault(
                f"the gateway {gateway} cannot be reached from {address}",
                f"choose an address in {address.network}",
            )
        elif gateway == address.ip:
            yield gateway_item.fault(
                "the gateway is the address of the guest itself", "name the router"
            )
    for other in nic.elements("ipv4_addresses"):
        extra = interface_of(other.text())
        if extra is not None and cidr is not None and extra.ip not in cidr:
            yield other.fault(
                f"{extra.ip} is outside the zone {zone!r}", f"choose an address in {cidr}"
            )


def _role_address(
    node: Item, nic: Item, zone: str | None, cidr: IPv4Network | IPv6Network | None
) -> Iterator[Fault]:
    """An address under ``ips`` that a card takes over lies in the zone of that card."""
    role = nic.text("usage")
    if role is None or nic.get("ipv4") or nic.text("bootproto") not in (None, "static"):
        return
    item, address = node.get("ips", role), address_of(node.text("ips", role))
    if item is not None and address is not None and cidr is not None and address not in cidr:
        yield item.fault(f"{address} is outside the zone {zone!r}", f"choose an address in {cidr}")


def check_addresses(env: Layers) -> Iterator[Fault]:
    """In one zone no address belongs to two nodes, or to the gateway."""
    seen: dict[tuple[str, str], tuple[Item, Item]] = {}
    for node in env.nodes.values():
        told: set[str] = set()
        for zone, address, item in _claims(node):
            gateway = env.zones[zone].text("gateway") if zone in env.zones else None
            if gateway is not None and address_of(gateway) == address and str(address) not in told:
                told.add(str(address))
                yield item.fault(
                    f"the address {address} is the gateway of the zone {zone!r}",
                    "choose another one",
                )
            owner, first = seen.setdefault((zone, str(address)), (node, item))
            if owner is not node and str(address) not in told:
                told.add(str(address))
                yield item.fault(
                    f"the address {address} is taken at {first.place} ({first.key})",
                    "give each guest its own",
                )


def _claims(node: Item) -> Iterator[tuple[str, IPv4Address | IPv6Address, Item]]:
    """Zone, address and place of each address that is this node's alone."""
    zone_of_role: dict[str, str] = {}
    for nic in node.elements("nics"):
        zone, role = nic.text("network") or "", nic.text("usage") or ""
        zone_of_role.setdefault(role, zone)
        if nic.flag("shared_with_cluster") or role == "scan":
            continue
        item, found = nic.get("ipv4", "address"), interface_of(nic.text("ipv4", "address"))
        if item is not None and found is not None:
            yield zone, found.ip, item
        for other in nic.elements("ipv4_addresses"):
            extra = interface_of(other.text())
            if extra is not None:
                yield zone, extra.ip, other
    for role, item in node.entries("ips").items():
        address = address_of(item.text())
        if address is not None and role != "scan":
            yield zone_of_role.get(role, role), address, item
