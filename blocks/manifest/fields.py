"""The kinds of values that several manifest documents share."""

from __future__ import annotations

import re
from ipaddress import ip_interface, ip_network
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyAddress, WithJsonSchema

from blocks.units import parse_size

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_TAG = re.compile(r"[a-z0-9_][a-z0-9_.+-]*")
_MAC = re.compile(r"[0-9A-F]{2}(?::[0-9A-F]{2}){5}")
_CHECKSUM = re.compile(r"(?:sha256:)?(?P<hex>[0-9A-Fa-f]{64})")
_URL = re.compile(r"https?://[^\s/@?#]+/[^\s#]*")
_SLOT = re.compile(r"scsi(?:[12]?[0-9]|30)|virtio(?:[0-9]|1[0-5])|sata[0-5]|ide[0-3]")

DNS_RULE = "use letters, digits and dashes, at most 63, no dash at either end"


def name_trouble(name: str, *, dots: bool = False) -> str | None:
    """What makes a name unfit as a DNS name (RFC 1123), or None.

    Proxmox VE refuses such names for guests too; ``dots`` allows several labels.
    """
    if not name:
        return "is empty"
    labels = name.split(".") if dots else [name]
    if len(name) > 253:
        return "is longer than 253 characters"
    for label in labels:
        if len(label) > 63:
            return f"is longer than 63 characters ({len(label)})"
        if label.startswith("-") or label.endswith("-"):
            return "begins or ends with a dash"
        if not _LABEL.fullmatch(label):
            wrong = sorted({char for char in label if not re.fullmatch(r"[A-Za-z0-9-]", char)})
            return f"has {' '.join(map(repr, wrong))}" if wrong else "has an empty part"
    return None


def _dns_label(name: str) -> str:
    trouble = name_trouble(name)
    if trouble:
        raise ValueError(f"the name {trouble}; {DNS_RULE}")
    return name


def _dns_name(name: str) -> str:
    trouble = name_trouble(name, dots=True)
    if trouble:
        raise ValueError(f"the name {trouble}; {DNS_RULE}, in each part between dots")
    return name


def _size(text: Any) -> str:
    if isinstance(text, int) and not isinstance(text, bool):
        raise ValueError(f"has no unit; did you mean '{text}G'?")  # noqa: TRY004 - for pydantic
    if not isinstance(text, str):
        raise ValueError("is no size; write a number and a unit, such as 64G, 512M or 4T")  # noqa: TRY004
    parse_size(text)
    return text


def _mac(text: str) -> str:
    if text.lower() == "auto":
        return "auto"
    mac = text.upper().replace("-", ":")
    if not _MAC.fullmatch(mac):
        raise ValueError("is no MAC address; write six pairs such as 02:00:5E:10:20:30, or auto")
    if int(mac[:2], 16) & 1:
        raise ValueError("is a multicast MAC address; the second digit must be even")
    return mac


def _slot(text: str) -> str:
    if text in {"ide2", "ide3"}:
        raise ValueError("is kept for the installation drives; use another slot, such as scsi1")
    if not _SLOT.fullmatch(text):
        raise ValueError("is no disk slot; use scsi0 to scsi30, virtio0 to 15, sata0 to 5, ide0, 1")
    return text


def _interface(text: Any) -> Any:
    if not isinstance(text, str) or "/" not in text:
        raise ValueError("needs its prefix length, such as 10.0.0.11/24")
    try:
        address = ip_interface(text.strip())
    except ValueError:
        raise ValueError("is no address with a prefix length, such as 10.0.0.11/24") from None
    network = address.network
    if network.prefixlen < network.max_prefixlen - 1:
        if address.ip == network.network_address:
            raise ValueError(f"is the address of the network {network} itself")
        if address.version == 4 and address.ip == network.broadcast_address:
            raise ValueError(f"is the broadcast address of the network {network}")
    return str(address)


def _network(text: Any) -> Any:
    if not isinstance(text, str) or "/" not in text:
        raise ValueError("is no network; write it with its prefix length, such as 10.0.0.0/24")
    try:
        return str(ip_network(text.strip()))
    except ValueError:
        pass
    try:
        meant = ip_network(text.strip(), strict=False)
    except ValueError:
        raise ValueError("is no network; write it as 10.0.0.0/24") from None
    raise ValueError(f"is the address of a host; did you mean {str(meant)!r}?")


def _address_or_interface(text: Any) -> Any:
    try:
        ip_interface(text if isinstance(text, str) else "")
    except ValueError:
        raise ValueError("is no IP address, such as 10.0.0.11 or 10.0.0.11/24") from None
    return text.strip()


def _list_of_tags(value: Any) -> Any:
    """The list form of tags; a map becomes ``key-value``, and a bare ``key`` where it is true."""
    if isinstance(value, str):
        return [part for part in re.split(r"[;,\s]+", value) if part]
    if isinstance(value, dict):
        return [
            str(key) if item is True or item == "" else f"{key}-{item}"
            for key, item in value.items()
            if item is not None and item is not False
        ]
    return value


def normal_tag(text: str) -> str:
    """A tag as Proxmox VE keeps it: lower case, of letters, digits and ``_ - + .``."""
    tag = text.strip().lower()
    if not _TAG.fullmatch(tag):
        raise ValueError(f"{text!r} is no tag; use letters, digits, '_', '-', '+' and '.'")
    return tag


def _checksum(text: str) -> str:
    found = _CHECKSUM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            "is no SHA-256 checksum; write sha256: and the 64 hexadecimal digits of sha256sum"
        )
    return f"sha256:{found['hex'].lower()}"


def _iso_origin(text: str) -> str:
    origin = text.strip()
    if not origin:
        raise ValueError("is empty; write the path of an ISO, or its URL")
    if "://" in origin and not _URL.fullmatch(origin):
        raise ValueError("is no URL of an ISO; write https://HOST/PATH, without a password in it")
    return origin


_TAGS_SCHEMA = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
        {"type": "string"},
    ]
}

DnsLabel = Annotated[str, AfterValidator(_dns_label), Field(examples=["db1"])]
DnsName = Annotated[str, AfterValidator(_dns_name), Field(examples=["db1", "db1.example.com"])]
Size = Annotated[
    str, BeforeValidator(_size), WithJsonSchema({"type": "string"}), Field(examples=["64G", "4T"])
]
Mac = Annotated[str, AfterValidator(_mac)]
Slot = Annotated[str, AfterValidator(_slot)]
Checksum = Annotated[str, AfterValidator(_checksum)]
IsoOrigin = Annotated[str, AfterValidator(_iso_origin)]
Ip = IPvAnyAddress
Interface = Annotated[
    str, BeforeValidator(_interface), WithJsonSchema({"type": "string", "pattern": "/|\\$\\{"})
]
Network = Annotated[
    str, BeforeValidator(_network), WithJsonSchema({"type": "string", "pattern": "/|\\$\\{"})
]
AddressOrInterface = Annotated[
    str, BeforeValidator(_address_or_interface), WithJsonSchema({"type": "string"})
]
Tags = Annotated[
    tuple[Annotated[str, AfterValidator(normal_tag)], ...],
    BeforeValidator(_list_of_tags),
    WithJsonSchema(_TAGS_SCHEMA),
]
