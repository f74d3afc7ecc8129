"""What the cloud-init drive of a machine would hold."""

from __future__ import annotations

import hashlib
import ipaddress
from urllib.parse import unquote

from deployments.lab.formats import split_list
from deployments.lab.qemu.devices import nets
from deployments.lab.qemu.options import IPCONFIG_FORMAT
from deployments.lab.schema import parse_property_string

Values = dict[str, str]


def user_data(vmid: int, values: Values) -> str:
    """The user document as the server generates it."""
    name = values.get("name", f"VM{vmid}")
    domain = values.get("searchdomain")
    lines = ["#cloud-config", f"hostname: {name}", "manage_etc_hosts: true"]
    if domain:
        lines.append(f"fqdn: {name}.{domain}")
    if values.get("ciuser"):
        lines.append(f"user: {values['ciuser']}")
    if values.get("cipassword"):
        lines.append(f"password: {values['cipassword']}")
    keys = [key for key in unquote(values.get("sshkeys", "")).splitlines() if key.strip()]
    if keys:
        lines += ["ssh_authorized_keys:", *(f"  - {key}" for key in keys)]
    lines += ["chpasswd:", "  expire: False"]
    if values.get("ciuser") != "root":
        lines += ["users:", "  - default"]
    if values.get("ciupgrade", "1") == "1":
        lines.append("package_upgrade: true")
    return "\n".join(lines) + "\n"


def network_data(values: Values) -> str:
    """The network document (version 1) as the server generates it."""
    lines = ["version: 1", "config:"]
    for index, card in nets(values):
        lines += [
            "    - type: physical",
            f"      name: eth{index}",
            f"      mac_address: '{str(card.get('macaddr', '')).lower()}'",
        ]
        option = values.get(f"ipconfig{index}")
        if option:
            lines += ["      subnets:", *_subnets(option)]
    servers = split_list(values.get("nameserver", ""))
    domains = split_list(values.get("searchdomain", ""))
    if servers or domains:
        lines.append("    - type: nameserver")
        lines += ["      address:", *(f"      - '{one}'" for one in servers)] if servers else []
        lines += ["      search:", *(f"      - '{one}'" for one in domains)] if domains else []
    return "\n".join(lines) + "\n"


def _subnets(option: str) -> list[str]:
    parsed = parse_property_string(option, IPCONFIG_FORMAT)
    lines: list[str] = []
    if parsed.get("ip") == "dhcp":
        lines.append("      - type: dhcp4")
    elif parsed.get("ip"):
        interface = ipaddress.IPv4Interface(parsed["ip"])
        lines += ["      - type: static", f"        address: '{interface.ip}'"]
        lines.append(f"        netmask: '{interface.network.netmask}'")
        if parsed.get("gw"):
            lines.append(f"        gateway: '{parsed['gw']}'")
    ip6 = parsed.get("ip6")
    if ip6 in ("dhcp", "auto"):
        lines.append(f"      - type: {'dhcp6' if ip6 == 'dhcp' else 'ipv6_slaac'}")
    elif ip6:
        lines += ["      - type: static6", f"        address: '{ip6}'"]
        if parsed.get("gw6"):
            lines.append(f"        gateway: '{parsed['gw6']}'")
    return lines


def meta_data(vmid: int, values: Values) -> str:
    """The meta document: an instance id that changes with the other two."""
    text = user_data(vmid, values) + network_data(values)
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return f"instance-id: {digest}\n"
