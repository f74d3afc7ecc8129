"""Addresses of guests: from their seeds, their cloud-init options, or the lab's DHCP."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deployments.lab.lxc.options import NET_FORMAT as CT_NET_FORMAT
from deployments.lab.qemu.devices import nets
from deployments.lab.qemu.options import IPCONFIG_FORMAT
from deployments.lab.schema import parse_property_string

if TYPE_CHECKING:
    from deployments.lab.cluster import Lab

_FIRST_SLOT = 18
_FALLBACK_NETWORK = "10.99.0.1/16"
_LEASE_START = 100


class AddressBook:
    """Leases by MAC, and the form in which the guest agent tells addresses.

    The file has a line for each lease and only grows; of a line that a kill has torn nothing is
    believed.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._file = lab.root / "run" / "leases" / "leases"
        self._leases = _read_leases(self._file)
        self._taken = {interface.ip for interface in self._leases.values()}
        self._next: dict[ipaddress.IPv4Network, int] = {}

    def lease(self, node: str, bridge: str, mac: str) -> str | None:
        """Address with prefix for a card on a bridge; the same for the same MAC."""
        if self._lab.bridge(node, bridge) is None:
            return None
        known = self._leases.get(mac.lower())
        gateway = self._lab.network_of(node, bridge) or ipaddress.IPv4Interface(_FALLBACK_NETWORK)
        network = gateway.network
        if known is None or known.network != network:
            known = self._free(network, gateway)
            if known is None:
                return None
            self._keep(mac.lower(), known)
        return str(known)

    def _free(
        self, network: ipaddress.IPv4Network, gateway: ipaddress.IPv4Interface
    ) -> ipaddress.IPv4Interface | None:
        last = network.num_addresses - 2
        first = _LEASE_START if last > _LEASE_START + 20 else 2
        for offset in range(self._next.get(network, first), last + 1):
            candidate = network.network_address + offset
            if candidate not in self._taken and candidate != gateway.ip:
                self._next[network] = offset + 1
                return ipaddress.IPv4Interface((candidate, network.prefixlen))
        return None

    def _keep(self, mac: str, lease: ipaddress.IPv4Interface) -> None:
        self._leases[mac] = lease
        self._taken.add(lease.ip)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as handle:
            handle.write(f"{mac} {lease}\n")

    def agent_view(self, interfaces: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Interfaces as ``guest-network-get-interfaces`` reports them."""
        rows = [_agent_row("lo", "00:00:00:00:00:00", ["127.0.0.1/8", "::1/128"])]
        for one in interfaces:
            local = _link_local(one["mac"])
            rows.append(_agent_row(one["name"], one["mac"].lower(), [*one["addresses"], local]))
        return rows


def _read_leases(file: Path) -> dict[str, ipaddress.IPv4Interface]:
    leases = {}
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text().splitlines(keepends=True):
            mac, _, address = line.partition(" ")
            if line.endswith("\n"):
                leases[mac] = ipaddress.IPv4Interface(address.strip())
            else:
                file.write_text(file.read_text().removesuffix(line))
    return leases


def _agent_row(name: str, mac: str, addresses: list[str]) -> dict[str, Any]:
    shown = []
    for text in addresses:
        interface = ipaddress.ip_interface(text)
        shown.append(
            {
                "ip-address": str(interface.ip),
                "ip-address-type": f"ipv{interface.version}",
                "prefix": interface.network.prefixlen,
            }
        )
    zero = ("rx-bytes", "rx-dropped", "rx-errs", "rx-packets")
    names = (*zero, *(key.replace("rx", "tx") for key in zero))
    return {
        "name": name,
        "hardware-address": mac,
        "ip-addresses": shown,
        "statistics": dict.fromkeys(names, 0),
    }


def _link_local(mac: str) -> str:
    octets = [int(part, 16) for part in mac.split(":")]
    octets[0] ^= 2
    words = [*octets[:3], 0xFF, 0xFE, *octets[3:]]
    tail = ":".join(f"{words[n] << 8 | words[n + 1]:x}" for n in range(0, 8, 2))
    return f"fe80::{tail}/64"


def guest_interfaces(
    lab: Lab, node: str, values: dict[str, str], mark: dict[str, Any]
) -> list[dict[str, Any]]:
    """Name, MAC and addresses of every card that is plugged in.

    A seed's entry for the card's MAC wins, then one for its place, then ``ipconfigN`` (for disks
    made from images), else DHCP.
    """
    found = []
    for place, (index, card) in enumerate(nets(values)):
        mac = str(card.get("macaddr", ""))
        name = f"ens{_FIRST_SLOT + index}"
        bridge = str(card.get("bridge", ""))
        addresses: list[str] = []
        leased: str | None = None
        if not card.get("link_down"):
            addresses, leased = _addresses(lab, node, values, mark, mac, bridge, place, index)
        found.append(_interface(name, mac, bridge, addresses, leased))
    return found


def _interface(
    name: str, mac: str, bridge: str, addresses: list[str], leased: str | None
) -> dict[str, Any]:
    """A card; a leased address is there only after the guest has asked for it."""
    one: dict[str, Any] = {"name": name, "mac": mac, "bridge": bridge, "addresses": addresses}
    return one | ({"leased": leased} if leased else {})


def take_leases(interfaces: list[dict[str, Any]]) -> bool:
    """Let the guest's DHCP client finish; whether that changed anything."""
    waiting = [one for one in interfaces if one.get("leased")]
    for one in waiting:
        one["addresses"] = [*one["addresses"], one.pop("leased")]
    return bool(waiting)


def container_interfaces(lab: Lab, node: str, values: dict[str, str]) -> list[dict[str, Any]]:
    """Name, MAC and addresses of every card of a container, from its own options."""
    found = []
    for key in sorted(k for k in values if re.fullmatch(r"net\d+", k)):
        card = parse_property_string(values[key], CT_NET_FORMAT)
        mac, bridge = str(card.get("hwaddr", "")), str(card.get("bridge", ""))
        addresses = [str(card[k]) for k in ("ip", "ip6") if "/" in str(card.get(k, ""))]
        leased = None
        if card.get("ip") == "dhcp":
            leased = lab.life.addresses.lease(node, bridge, mac)
        if card.get("link_down"):
            addresses, leased = [], None
        found.append(_interface(str(card["name"]), mac, bridge, addresses, leased))
    return found


def _addresses(
    lab: Lab,
    node: str,
    values: dict[str, str],
    mark: dict[str, Any],
    mac: str,
    bridge: str,
    place: int,
    index: int,
) -> tuple[list[str], str | None]:
    """Fixed addresses, and the one that DHCP will give."""
    entry = _seed_entry(mark.get("interfaces", []), mac, place, index)
    if entry is not None:
        fixed = [str(text) for text in entry.get("addresses", [])]
        leased = lab.life.addresses.lease(node, bridge, mac) if entry.get("dhcp") else None
        return fixed, leased
    option = values.get(f"ipconfig{index}")
    if mark.get("interfaces") and not option:
        return [], None
    fixed = []
    if option:
        parsed = parse_property_string(option, IPCONFIG_FORMAT)
        fixed = [parsed[k] for k in ("ip", "ip6") if "/" in str(parsed.get(k, ""))]
        if parsed.get("ip") != "dhcp":
            return fixed, None
    return fixed, lab.life.addresses.lease(node, bridge, mac)


def _seed_entry(
    entries: list[dict[str, Any]], mac: str, place: int, index: int
) -> dict[str, Any] | None:
    for entry in entries:
        if str(entry.get("mac") or "").lower() == mac.lower() and mac:
            return entry
    for entry in entries:
        device = entry.get("device")
        if not entry.get("mac") and device and _is_device(str(device), place, index):
            return entry
    return None


def _is_device(device: str, place: int, index: int) -> bool:
    if device in ("link", "auto", "bootif"):
        return place == 0
    match = re.fullmatch(r"([a-z]+(?:\d+s)?)(\d+)", device)
    if match is None:
        return False
    number = int(match.group(2))
    return number == (place if match.group(1) == "eth" else _FIRST_SLOT + index)
