"""Values as Ansible variables write them, as a template writes them."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from blocks.manifest.fields import normal_tag
from blocks.manifest.template.ansible_file import Vars
from blocks.units import MIB, parse_size

_YES = {"yes", "true", "on", "1", "y", "enabled", "socket"}
_NO = {"no", "false", "off", "0", "n", "disabled", "none", ""}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?)(?:i?B)?", re.IGNORECASE)
_DEFAULT_LENGTH = 24
_ADDRESSES = ("ip", "ip_address", "vm_ip", "vm_ip_address", "ipaddr", "address", "static_ip")
_LENGTHS = ("ip_cidr", "cidr", "netmask", "prefix", "ip_prefix", "subnet_mask", "vm_netmask")
_GATEWAYS = ("gateway", "gw", "vm_gateway", "ip_gateway", "default_gateway", "network_gateway")


def flag(value: Any) -> bool | None:
    """A switch, also as text or number; ``enabled=1`` too. None where it is unset or none."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    if isinstance(value, str):
        word = value.strip().lower().removeprefix("enabled=").partition(",")[0]
        return True if word in _YES else False if word in _NO else None
    return None


def number(value: Any) -> int | None:
    """A whole number, also as text; memory such as ``4G`` in MiB. None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and len(value) < 20:
        text = value.strip()
        if text.isdecimal():
            return int(text)
        if re.fullmatch(r"\d+\s*[MGT]i?B?", text, re.IGNORECASE):
            return parse_size(text) // MIB
    return None


def word(value: Any) -> str | None:
    """A text. None for what is none."""
    return value if isinstance(value, str) else None


def size_of(value: Any) -> str | None:
    """A size with its unit; a bare number is GiB. None for what is none, ``+8G`` among it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) and value > 0:
        return f"{value}G"
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        return f"{found['number']}{found['unit'].upper() or 'G'}"
    return None


def listed(value: Any, *, lines: bool = False) -> list[str]:
    """The words of a list or a text; with ``lines`` only line breaks part them."""
    if value is None or isinstance(value, bool):
        return []
    if isinstance(value, list):
        return [
            str(each).strip()
            for each in value
            if isinstance(each, str | int | float) and str(each).strip()
        ]
    if isinstance(value, str | int | float):
        text = str(value)
        # The options of one device are joined by commas.
        between = r"[\s;]+" if "=" in text else r"[\s,;]+"
        parts = text.splitlines() if lines else re.split(between, text)
        return [part.strip() for part in parts if part.strip()]
    return []


def tags_of(value: Any) -> list[str]:
    """Tags as Proxmox VE keeps them; what is no tag becomes dashes."""
    found = []
    for word in listed(value):
        clean = re.sub(r"[^a-z0-9_.+-]+", "-", word.lower()).strip("-.+")
        if clean:
            found.append(normal_tag(clean))
    return list(dict.fromkeys(found))


def nic_of(value: Any) -> dict[str, Any]:
    """A card of ``virtio,bridge=vmbr0,tag=20``; nothing where there is none."""
    nic: dict[str, Any] = {}
    if not isinstance(value, str):
        return nic
    for part in value.split(","):
        key, _, word = part.strip().partition("=")
        if key == "bridge" and word:
            nic["bridge"] = word
        elif key in ("tag", "mtu") and word.isdecimal():
            nic["vlan" if key == "tag" else "mtu"] = int(word)
        elif key == "firewall" and word == "1":
            nic["firewall"] = True
        elif re.fullmatch(r"virtio|e1000e?|rtl8139|vmxnet3", key):
            nic["model"] = key
    return nic


def address_of(found: Vars) -> tuple[str | dict[str, str] | None, str | None]:
    """The address and the gateway that variables say, in one of their many ways."""
    mode = found.take("ip_mode", "ip_type", "ip_config", "network_mode", "bootproto", "ip_method")
    text = found.take(*_ADDRESSES)
    length = found.take(*_LENGTHS)
    gateway = found.take(*_GATEWAYS)
    config = found.take("ipconfig0", "vm_ipconfig0", "ipconfig")
    if text is None and isinstance(config, str):
        options = dict(part.partition("=")[::2] for part in config.split(","))
        text, gateway = options.get("ip"), gateway or options.get("gw")
    if isinstance(length, str) and "/" in length:
        text, length = length, None
    if str(mode).lower() == "dhcp" or (isinstance(text, str) and text.lower() == "dhcp"):
        return "dhcp", None
    gate = gateway if isinstance(gateway, str) and _is_address(gateway) else None
    if gateway is not None and gate is None:
        found.notes.append(f"{found.prefix}gateway: {gateway!r} is no address; left out")
    if text is None:
        return None, gate
    whole = _interface(str(text), length)
    if whole is None:
        found.notes.append(f"{found.prefix}ip: {text!r} is no address; left out")
        return None, gate
    if "/" not in str(text) and length is None:
        found.notes.append(
            f"{found.prefix}ip: {text} has no prefix length; /{_DEFAULT_LENGTH} was put in"
        )
    if gate is not None and ip_address(gate) not in ip_interface(whole).network:
        found.notes.append(
            f"{found.prefix}gateway: {gate} is outside the network of {whole}; left out"
        )
        gate = None
    return whole, gate


def _is_address(text: str) -> bool:
    try:
        ip_address(text.strip())
    except ValueError:
        return False
    return True


def _interface(text: str, length: Any) -> str | None:
    """An address with its prefix length; a netmask such as 255.255.255.0 is one, too."""
    if "/" not in text:
        given = str(length).lstrip("/") if length is not None else str(_DEFAULT_LENGTH)
        text = f"{text.strip()}/{given}"
    try:
        address = ip_interface(text.strip())
        ip_network(address.network)
    except ValueError:
        return None
    if address.version == 4 and address.network.prefixlen < 31:
        edges = (address.network.network_address, address.network.broadcast_address)
        if address.ip in edges:
            return None
    return str(address)
