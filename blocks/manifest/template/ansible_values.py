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


def words(value: Any) -> list[str] | None:
    """As ``listed``. None where there is nothing."""
    return listed(value) or None


def lines(value: Any) -> list[str] | None:
    """As ``listed``, parted by line breaks only. None where there is nothing."""
    return listed(value, lines=True) or None


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


def tags_of(value: Any) -> list[str] | None:
    """Tags as Proxmox VE keeps them; what is no tag becomes dashes. None where there is none."""
    found = []
    for word in listed(value):
        clean = re.sub(r"[^a-z0-9_.+-]+", "-", word.lower()).strip("-.+")
        if clean:
            found.append(normal_tag(clean))
    return list(dict.fromkeys(found)) or None


def nic_of(found: Vars, *names: str) -> dict[str, Any]:
    """A card of ``virtio,bridge=vmbr0,tag=20``; nothing where there is none."""
    nic: dict[str, Any] = {}
    value = found.take(*names, into=word)
    for part in value.split(",") if value else ():
        key, _, given = part.strip().partition("=")
        if key == "bridge" and given:
            nic["bridge"] = given
        elif key in ("tag", "mtu") and given.isdecimal():
            nic["vlan" if key == "tag" else "mtu"] = int(given)
        elif key == "firewall" and given in ("0", "1"):
            nic |= {"firewall": True} if given == "1" else {}
        elif re.fullmatch(r"virtio|e1000e?|rtl8139|vmxnet3", key):
            nic["model"] = key
            if given:
                found.leave("net0", f"address {given}", "each card gets one of its own")
        elif part.strip():
            found.leave("net0", part.strip())
    return nic


def address_of(found: Vars) -> tuple[str | None, str | None]:
    """The address and the gateway that variables say, in one of their many ways."""
    mode = found.take(
        "ip_mode", "ip_type", "ip_config", "network_mode", "bootproto", "ip_method", into=_mode
    )
    text = found.take(*_ADDRESSES)
    length = found.take(*_LENGTHS)
    gateway = found.take(*_GATEWAYS)
    config = found.take("ipconfig0", "vm_ipconfig0", "ipconfig", into=word)
    options = dict(part.strip().partition("=")[::2] for part in config.split(",")) if config else {}
    for key, value in options.items():
        if key == "ip" and text is None:
            text = value
        elif key == "gw" and gateway is None:
            gateway = value
        elif key:
            found.leave("ipconfig0", f"{key}={value}")
    if isinstance(length, str) and "/" in length:
        if text is not None:
            found.leave("ip", str(text), f"since {length} is given, too")
        text, length = length, None
    if mode == "dhcp" or str(text).lower() == "dhcp":
        given = {"ip": text, "netmask": length, "gateway": gateway}
        for name, value in given.items():
            if value is not None and str(value).lower() != "dhcp":
                found.leave(name, str(value), "since DHCP gives it")
        return "dhcp", None
    return _static(found, text, length, gateway)


def _static(found: Vars, text: Any, length: Any, gateway: Any) -> tuple[str | None, str | None]:
    gate = gateway if isinstance(gateway, str) and _is_address(gateway) else None
    if gateway is not None and gate is None:
        found.notes.append(f"{found.prefix}gateway: {gateway!r} is no address; left out")
    if text is None:
        if length is not None:
            found.leave("netmask", str(length), "since there is no address for it")
        return None, gate
    whole = _interface(str(text), length)
    if whole is None:
        found.notes.append(f"{found.prefix}ip: {text!r} is no address; left out")
        return None, gate
    if "/" not in str(text) and length is None:
        found.notes.append(
            f"{found.prefix}ip: {text} has no prefix length; /{_DEFAULT_LENGTH} was put in"
        )
    if "/" in str(text) and length is not None:
        found.leave("netmask", str(length), f"since {text} says it already")
    if gate is not None and ip_address(gate) not in ip_interface(whole).network:
        found.notes.append(
            f"{found.prefix}gateway: {gate} is outside the network of {whole}; left out"
        )
        gate = None
    return whole, gate


def _mode(value: Any) -> str | None:
    mode = str(value).lower()
    return mode if mode in {"dhcp", "static", "manual", "none"} else None


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
