"""The network document: netplan's version 2, each card found by its MAC address."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Guest, Host, Nic
from blocks.proxmox.properties.cloudinit import addresses, gateways, number, search_domains
from tasks.iso import checks

# netplan's own word `default` is newer than some images' renderers; these mean the same to all.
_ANYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


def network_config(guest: Guest) -> dict[str, Any]:
    """The document's content. Raises RenderError for a card without a MAC address.

    Every card is given a name, its own or the ``ethN`` that Proxmox VE gives: several renderers
    of cloud-init configure a name rather than a MAC address. Name servers and search domains of
    the guest go to its first card with a gateway, else to the first that is configured.
    """
    first = _primary(guest)
    ethernets = {nic.slot: _card(guest, nic, whole=nic is first) for nic in guest.nics}
    return {"version": 2, "ethernets": ethernets}


def interface_name(nic: Nic) -> str:
    """What the card is called in the guest."""
    return checks.interface(f"nics.{nic.slot}.name", nic.name or f"eth{number(nic)}")


def _primary(guest: Guest) -> Nic | None:
    configured = [nic for nic in guest.nics if _is_configured(nic)]
    routed = [nic for nic in configured if any(gateways(nic.inet)) or nic.inet.method == "dhcp"]
    return next(iter((*routed, *configured)), None)


def _is_configured(nic: Nic) -> bool:
    return any(addresses(nic.inet)) or nic.inet.method == "dhcp" or nic.inet.ipv6 != "static"


def _card(guest: Guest, nic: Nic, *, whole: bool) -> dict[str, Any]:
    inet = nic.inet
    fourth, sixth = addresses(inet)
    gateway4, gateway6 = gateways(inet)
    # A gateway beside DHCP is DHCP's to tell.
    via4, via6 = (gateway4 if fourth else None), (gateway6 if sixth else None)
    card: dict[str, Any] = {
        "match": {"macaddress": checks.mac(f"nics.{nic.slot}.mac", nic.mac)},
        "set-name": interface_name(nic),
        "dhcp4": inet.method == "dhcp",
        "dhcp6": inet.ipv6 == "dhcp",
    }
    if inet.ipv6 != "static":
        card["accept-ra"] = True
    elif via6 is not None:
        card["accept-ra"] = False
    if not _is_configured(nic):
        # Nothing may wait for a card that never gets an address.
        card["optional"] = True
    if nic.mtu is not None and nic.mtu > 1:
        card["mtu"] = nic.mtu
    if fourth or sixth:
        card["addresses"] = [str(one) for one in (*fourth, *sixth)]
    routes = [_route(nic, via) for via in (via4, via6) if via is not None]
    if routes:
        card["routes"] = routes
    servers = (*(_servers(guest) if whole else ()), *inet.dns)
    domains = (*(search_domains(guest) if whole else ()), *inet.search)
    names = {
        "addresses": [str(one) for one in dict.fromkeys(servers)],
        "search": [checks.domain("cloud_init.search", one) for one in dict.fromkeys(domains)],
    }
    if found := {key: value for key, value in names.items() if value}:
        card["nameservers"] = found
    return card


def _servers(guest: Guest) -> tuple[Host, ...]:
    return guest.cloud_init.dns if guest.cloud_init else ()


def _route(nic: Nic, via: Host) -> dict[str, Any]:
    route: dict[str, Any] = {"to": _ANYWHERE[via.version], "via": str(via)}
    if not any(via in one.network for one in nic.inet.addresses) and not via.is_link_local:
        route["on-link"] = True
    return route
