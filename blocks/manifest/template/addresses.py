"""What must hold between the addresses of a template and its clones."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface

from blocks.manifest.faults import Fault
from blocks.manifest.layers import address_of, interface_of
from blocks.manifest.tree import Item
from blocks.words import count

_FAMILIES = (("address", "gateway"), ("address6", "gateway6"))
_VERSIONS = {"address": 4, "address6": 6}


def check_addresses(spec: Item, clones: list[Item]) -> Iterator[Fault]:
    """Addresses are there once, gateways are inside, and there is a card for each entry."""
    seen: dict[str, Item] = {}
    for owner in (spec, *clones):
        entries = list(_own(owner))
        if owner is not spec and owner.get("ip") is not None and owner.get("cloud_init", "ip"):
            yield (owner.get("ip") or owner).fault(
                "stands beside cloud_init.ip", "say the addresses in one place"
            )
        yield from _cards(spec, owner, entries)
        for entry in entries or _inherited(spec, owner):
            yield from _entry(entry)
            for key, _ in _FAMILIES:
                found = _static(entry, key)
                item = entry.get(key)
                if found is None or item is None:
                    continue
                first = seen.setdefault(str(found.ip), item)
                if not entries:
                    yield owner.fault(
                        f"has the template's address {found.ip}", "give each clone its own 'ip'"
                    )
                elif first is not item:
                    yield item.fault(
                        f"the address {found.ip} is taken at {first.place} ({first.key})",
                        "give each guest its own",
                    )
        yield from _defaults(spec, owner, entries)
    for owner in (spec, *clones):
        yield from _gateways_as_addresses(owner, seen)


def _own(owner: Item) -> list[Item]:
    """The address entries that a guest says itself."""
    return owner.elements("ip") or owner.elements("cloud_init", "ip")


def _inherited(spec: Item, owner: Item) -> list[Item]:
    return [] if owner is spec else _own(spec)


def _static(entry: Item, key: str) -> IPv4Interface | IPv6Interface | None:
    """The address under a key, if it is static and of the version that belongs there."""
    text = entry.text(key)
    found = interface_of(text) if text is not None and "/" in text else None
    return found if found is not None and found.version == _VERSIONS[key] else None


def _cards(spec: Item, owner: Item, entries: list[Item]) -> Iterator[Fault]:
    cards = owner.elements("nics") if owner.get("nics") is not None else spec.elements("nics")
    number = len(cards) if owner.get("nics") is not None or spec.get("nics") is not None else 1
    if len(entries) > number:
        yield entries[number].fault(
            f"is entry {number + 1}, but the guest has {count(number, 'network card')}",
            "add an entry to 'nics', or remove this one",
        )


def _entry(entry: Item) -> Iterator[Fault]:
    """One card: an address before a gateway, and the gateway in its network."""
    for key, gate in _FAMILIES:
        item, gateway = entry.get(gate), address_of(entry.text(gate))
        if item is None or gateway is None:
            continue
        version = _VERSIONS[key]
        if gateway.version != version:
            other = "gateway6" if version == 4 else "gateway"
            yield item.fault(f"is an IPv{gateway.version} address", f"write it under '{other}'")
            continue
        own = _static(entry, key)
        if own is None:
            yield item.fault(
                f"is a gateway, but '{key}' is no static address",
                f"add '{key}: ...', or remove the gateway",
            )
        else:
            yield from _inside(item, own, gateway)


def _inside(item: Item, own: IPv4Interface | IPv6Interface, gateway: object) -> Iterator[Fault]:
    if gateway == own.ip:
        yield item.fault("the gateway is the address of the guest itself", "name the router")
    # A router of IPv6 is often reached by its link-local address.
    elif gateway not in own.network and not getattr(gateway, "is_link_local", False):
        yield item.fault(
            f"the gateway {gateway} is outside the network of {own}",
            f"choose an address in {own.network}",
        )


def _defaults(spec: Item, owner: Item, entries: list[Item]) -> Iterator[Fault]:
    """The gateway that stands for all cards fits the first static address that needs it."""
    for key, gate in _FAMILIES:
        item = owner.get(gate) if owner is not spec else None
        item = item or owner.get("cloud_init", gate) or spec.get("cloud_init", gate)
        gateway = address_of(item.text()) if item is not None else None
        if item is None or gateway is None or any(entry.get(gate) for entry in entries):
            continue
        version = _VERSIONS[key]
        if gateway.version != version:
            other = "gateway6" if version == 4 else "gateway"
            yield item.fault(f"is an IPv{gateway.version} address", f"write it under '{other}'")
            continue
        for entry in entries:
            own, where = _static(entry, key), entry.get(key)
            if own is None or where is None:
                continue
            if gateway not in own.network and not gateway.is_link_local:
                yield where.fault(
                    f"{own.ip} is outside the network of its gateway {gateway} ({item.place})",
                    "choose an address in it, or name another gateway here",
                )
            break


def _gateways_as_addresses(owner: Item, seen: dict[str, Item]) -> Iterator[Fault]:
    """No guest has the address of a gateway."""
    parts = [*_own(owner), owner]
    part = owner.get("cloud_init")
    parts += [part] if part is not None else []
    for entry in parts:
        for _, gate in _FAMILIES:
            gateway = address_of(entry.text(gate))
            taken = seen.get(str(gateway))
            own = {_static(entry, key) for key, _ in _FAMILIES}
            if taken is None or any(each and each.ip == gateway for each in own):
                continue
            yield taken.fault(
                f"the address {gateway} is a gateway's ({entry.place})", "choose another one"
            )
