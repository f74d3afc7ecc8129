"""Where a guest is reached: its declared addresses, else the one that its agent reports."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from blocks.manifest.guest import Guest
from blocks.proxmox.client import Client
from blocks.proxmox.errors import ProxmoxError


def addresses(client: Client, guest: Guest) -> tuple[str, ...]:
    """Addresses to look for the guest's SSH server at, best first; none as long as none is known.

    The declared ones if there are any. Else one call asks the agent, for the addresses of the
    declared network cards: by MAC, since agents name loopback and bridges of containers first.
    """
    if guest.ssh_addresses:
        return tuple(map(str, guest.ssh_addresses))
    if not guest.agent:
        return ()
    path = f"/nodes/{guest.node}/qemu/{guest.vmid}/agent/network-get-interfaces"
    try:
        answer = client.get(path)
    except ProxmoxError:
        return ()
    return reported(guest, answer.get("result", []))


def reported(guest: Guest, interfaces: list[dict[str, Any]]) -> tuple[str, ...]:
    """The usable addresses of the guest's own cards, in the order of the cards, IPv4 first."""
    by_mac = {str(i.get("hardware-address", "")).upper(): i for i in interfaces}
    found: list[IPv4Address | IPv6Address] = []
    for nic in guest.nics:
        entry = by_mac.get((nic.mac or "").upper(), {})
        own = [ip_address(a["ip-address"]) for a in entry.get("ip-addresses", [])]
        usable = [a for a in own if not (a.is_loopback or a.is_link_local)]
        found += sorted(usable, key=lambda address: address.version)
    return tuple(map(str, found))
