"""Checks of single values, each with the text that the real server gives."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from urllib.parse import unquote

from deployments.lab.schema import FormatError

CONTENT_TYPES = ("images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_\-+.]*")


def vmid(text: str) -> None:
    """100 to 999999999."""
    if not re.fullmatch(r"[1-9][0-9]{2,8}", text):
        raise FormatError("value does not look like a valid VM ID")


def dns_name(text: str) -> None:
    """Host name, dots allowed."""
    if not re.fullmatch(rf"{_LABEL}(?:\.{_LABEL})*", text):
        raise FormatError("value does not look like a valid DNS name")


def mac_address(text: str) -> None:
    """Unicast MAC address."""
    if not re.fullmatch(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}", text) or int(text[1], 16) % 2:
        raise FormatError("value does not look like a valid unicast MAC address")


def config_id(text: str) -> None:
    """Names of storages, pools and snapshots: a letter first, two characters at least."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]+", text):
        raise FormatError(f"invalid configuration ID '{text}'")


def storage_id(text: str) -> None:
    """Name of a storage."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9\-_.]*[A-Za-z0-9]", text):
        raise FormatError(f"storage ID '{text}' contains illegal characters")


def node_name(text: str) -> None:
    """Name of a cluster node."""
    if not re.fullmatch(_LABEL, text):
        raise FormatError("value does not look like a valid node name")


def pool_id(text: str) -> None:
    """Name of a pool, nested by slashes."""
    if not re.fullmatch(r"[A-Za-z0-9._\-]+(?:/[A-Za-z0-9._\-]+){0,2}", text):
        raise FormatError("value does not look like a valid poolid")


def tag_list(text: str) -> None:
    """Tags separated by semicolon, comma or blank."""
    for tag in split_list(text):
        if not _TAG.fullmatch(tag):
            raise FormatError("invalid characters in tag")


def content_list(text: str) -> None:
    """Content types of a storage."""
    for word in split_list(text):
        if word not in CONTENT_TYPES:
            raise FormatError(f"invalid content type '{word}'")


def task_status_list(text: str) -> None:
    """Words by which a task list can be cut."""
    for word in split_list(text):
        if word not in ("ok", "error", "warning", "unknown"):
            raise FormatError(f"invalid status '{word}'")


def config_key_list(text: str) -> None:
    """Names of configuration options."""
    for word in split_list(text):
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", word):
            raise FormatError(f"invalid configuration ID '{word}'")


def ipv4_config(text: str) -> None:
    """``dhcp`` or an IPv4 address with prefix length."""
    if text == "dhcp":
        return
    try:
        interface = ipaddress.IPv4Interface(text)
    except ValueError:
        interface = None
    if interface is None or "/" not in text:
        raise FormatError("value does not look like a valid ipv4 network configuration")


def ipv4_config_or_manual(text: str) -> None:
    """As for machines, or ``manual``."""
    if text != "manual":
        ipv4_config(text)


def ipv6_config_or_manual(text: str) -> None:
    """As for machines, or ``manual``."""
    if text != "manual":
        ipv6_config(text)


def ipv6_config(text: str) -> None:
    """``dhcp``, ``auto`` or an IPv6 address with prefix length."""
    if text in ("dhcp", "auto"):
        return
    try:
        interface = ipaddress.IPv6Interface(text)
    except ValueError:
        interface = None
    if interface is None or "/" not in text:
        raise FormatError("value does not look like a valid ipv6 network configuration")


def ip_address(
    kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address],
) -> Callable[[str], None]:
    """A check for one address of the given kind."""
    version = 4 if kind is ipaddress.IPv4Address else 6

    def check(text: str) -> None:
        try:
            kind(text)
        except ValueError:
            message = f"value does not look like a valid ipv{version} address"
            raise FormatError(message) from None

    return check


def cidr(text: str) -> None:
    """A network with its prefix length."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise FormatError("value does not look like a valid CIDR network") from None
    if "/" not in text:
        raise FormatError("value does not look like a valid CIDR network")


def address_list(text: str) -> None:
    """Name servers, separated by blanks or commas."""
    for word in split_list(text):
        try:
            ipaddress.ip_address(word)
        except ValueError:
            raise FormatError("value does not look like a valid IP address") from None


def url_encoded(text: str) -> None:
    """Text of which only unreserved characters stand unescaped."""
    if not re.fullmatch(r"(?:[-A-Za-z0-9_.!~*'()]|%[0-9A-Fa-f]{2})*", text):
        raise FormatError(f"invalid urlencoded string: {text}")


def split_list(text: str) -> list[str]:
    """Words of a list separated by comma, semicolon, blank or NUL."""
    return [word for word in re.split(r"[\s,;\0]+", text) if word]


def ssh_keys_valid(encoded: str) -> bool:
    """Whether every line of url-encoded text looks like a public key."""
    lines = [line for line in unquote(encoded).splitlines() if line.strip()]
    key = re.compile(
        r"(?:\S+\s+)?(ssh-(?:dss|rsa|ed25519)|ecdsa-sha2-\S+|sk-\S+)\s+[A-Za-z0-9+/]{20,}={0,3}(?:\s.*)?"
    )
    return all(key.fullmatch(line.strip()) for line in lines)


def format_size(size: int) -> str:
    """Bytes with the largest unit that divides them, as configs show sizes: ``366K``, ``4G``."""
    value, unit = size, ""
    for larger in ("K", "M", "G", "T"):
        if value == 0 or value % 1024:
            break
        value, unit = value // 1024, larger
    return f"{value}{unit}"


def parse_size(text: str) -> int | None:
    """Bytes of ``4G`` and the like; None when it is no size."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])?", text)
    if match is None:
        return None
    factor = {None: 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[match.group(2)]
    return int(float(match.group(1)) * factor)
