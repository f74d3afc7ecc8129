"""The network document, in cloud-init's version 1, which Proxmox VE itself writes too.

Not version 2: there a default route is either ``gateway4``, which new releases report as deprecated
on every boot, or a route to ``::/0``, which releases before 24 render as one to ``::/64`` wherever
netplan is not used (canonical/cloud-init issues 4600 and 4518; seen with 22.4).
"""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Guest, Nic
from blocks.proxmox.properties.cloudinit import (
    addresses,
    gateways,
    name_servers,
    number,
    search_domains,
)
from tasks.iso import checks


def network_config(guest: Guest) -> dict[str, Any]:
    """The document's content. Raises RenderError for a card without a MAC address.

    Every card is found by its MAC address and given a name, its own or the ``ethN`` that Proxmox VE
    gives. Name servers and search domains stand for the whole guest and, once more, with the
    cards: some renderers take only the one, some only the other.
    """
    cards = [_card(guest, nic) for nic in guest.nics]
    names = {
        "address": [str(one) for one in name_servers(guest)],
        "search": _domains(search_domains(guest)),
    }
    if any(names.values()):
        cards.append({"type": "nameserver", **{k: v for k, v in names.items() if v}})
    return {"version": 1, "config": cards}


def interface_name(nic: Nic) -> str:
    """What the card is called in the guest."""
    return checks.interface(f"nics.{nic.slot}.name", nic.name or f"eth{number(nic)}")


def _card(guest: Guest, nic: Nic) -> dict[str, Any]:
    card: dict[str, Any] = {
        "type": "physical",
        "name": interface_name(nic),
        "mac_address": checks.mac(f"nics.{nic.slot}.mac", nic.mac),
    }
    # 1 means to Proxmox VE: as the bridge has it.
    if nic.mtu is not None and nic.mtu > 1:
        card["mtu"] = nic.mtu
    subnets = _subnets(nic)
    if nic.inet.ipv6 != "static":
        card["accept-ra"] = True
    elif any(":" in subnet.get("gateway", "") for subnet in subnets):
        card["accept-ra"] = False
    if subnets:
        subnets[0] |= _resolver(guest, nic)
        card["subnets"] = subnets
    return card


def _subnets(nic: Nic) -> list[dict[str, Any]]:
    """One an address; the first of each family has the gateway, which beside DHCP is DHCP's."""
    inet = nic.inet
    found: list[dict[str, Any]] = [{"type": "dhcp4"}] if inet.method == "dhcp" else []
    for fixed, gateway in zip(addresses(inet), gateways(inet), strict=True):
        subnets = [{"type": "static", "address": str(one)} for one in fixed]
        if subnets and gateway is not None:
            subnets[0]["gateway"] = str(gateway)
        found += subnets
    if inet.ipv6 != "static":
        found.append({"type": "dhcp6" if inet.ipv6 == "dhcp" else "ipv6_slaac"})
    return found


def _resolver(guest: Guest, nic: Nic) -> dict[str, Any]:
    """The card's own name servers and domains, after those of the guest where it has a gateway."""
    told = guest.cloud_init
    whole = told is not None and (any(gateways(nic.inet)) or len(guest.nics) == 1)
    servers = (*(told.dns if told and whole else ()), *nic.inet.dns)
    own = (told.domain,) if told and whole and told.domain else ()
    domains = (*own, *(told.search if told and whole else ()), *nic.inet.search)
    found = {
        "dns_nameservers": [str(one) for one in dict.fromkeys(servers)],
        "dns_search": _domains(tuple(dict.fromkeys(domains))),
    }
    return {key: value for key, value in found.items() if value}


def _domains(names: tuple[str, ...]) -> list[str]:
    return [checks.domain("cloud_init.search", name) for name in names]
