"""The kinds of values that several manifest documents share."""

from __future__ import annotations

import re
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_interface,
    ip_network,
)
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyAddress, WithJsonSchema

from blocks.units import parse_size

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_TAG = re.compile(r"[a-z0-9_][a-z0-9_.+-]*")
_MAC = re.compile(r"[0-9A-F]{2}(?::[0-9A-F]{2}){5}")
_CHECKSUM = re.compile(r"(?:sha256:)?(?P<hex>[0-9A-Fa-f]{64})")
CRYPT = re.compile(r"\$(?:1|5|6|y|gy|7|2[abxy])\$[./A-Za-z0-9$=,+-]{8,250}")
URL = re.compile(r"https?://[^\s/@?#]+/[^\s#]*")
_STORAGE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_BRIDGE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
# These would end a value in a property string of Proxmox VE, or the line that it is on.
_UNFIT = re.compile(r"[,\x00-\x1f\x7f]")
DISK_SLOT = re.compile(r"scsi(?:[12]?[0-9]|30)|virtio(?:[0-9]|1[0-5])|sata[0-5]|ide[0-3]")

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
    if not DISK_SLOT.fullmatch(text):
        raise ValueError("is no disk slot; use scsi0 to scsi30, virtio0 to 15, sata0 to 5, ide0, 1")
    return text


def _storage(text: str) -> str:
    if not _STORAGE.fullmatch(text):
        raise ValueError(
            "is no storage id; write it as Proxmox VE lists it: a letter first,"
            " then letters, digits, '-', '_' and '.'"
        )
    return text


def _class_or_storage(text: str) -> str:
    if not text or ":" in text or _UNFIT.search(text):
        raise ValueError(
            "names neither a storage class nor a storage; commas, colons and control characters"
            " are in no such name"
        )
    return text


def _bridge(text: str) -> str:
    if not _BRIDGE.fullmatch(text):
        raise ValueError(
            "is no name of a bridge; use up to 15 letters, digits, '-', '_' and '.', such as vmbr0"
        )
    return text


def _card_model(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", text):
        raise ValueError("is no model of a network card; write one such as virtio or e1000")
    return text


def _iso_image(text: str) -> str:
    if _UNFIT.search(text):
        raise ValueError(
            "has a comma or a control character; rename the ISO: Proxmox VE cannot attach it"
        )
    storage, colon, volume = text.rpartition(":")
    name = volume.removeprefix("iso/")
    if colon and not _STORAGE.fullmatch(storage):
        raise ValueError("is no volume id; write STORAGE:iso/NAME.iso")
    if not name or name in {".", ".."} or "/" in name or "\\" in name:
        raise ValueError(
            "is no file name of an ISO; write NAME.iso without a folder, or STORAGE:iso/NAME.iso"
        )
    return text


def _address(value: Any) -> Any:
    if isinstance(value, IPv4Address | IPv6Address):
        return value
    # A number is one to ipaddress too, and true is 0.0.0.1.
    if not isinstance(value, str) or "%" in value:
        raise ValueError("is no IP address; write it such as 10.0.0.11")
    return value.strip()


def refuse_reserved(address: IPv4Interface | IPv6Interface) -> None:
    """Refuse what no host of a network can have. Raises ValueError."""
    network = address.network
    if network.prefixlen < network.max_prefixlen - 1:
        if address.ip == network.network_address:
            raise ValueError(f"is the address of the network {network} itself; choose one inside")
        if address.version == 4 and address.ip == network.broadcast_address:
            raise ValueError(
                f"is the broadcast address of the network {network}; choose one inside"
            )


def _interface(text: Any) -> Any:
    if not isinstance(text, str) or "/" not in text or "%" in text:
        raise ValueError("needs its prefix length, such as 10.0.0.11/24")
    try:
        address = ip_interface(text.strip())
    except ValueError:
        raise ValueError("is no address with a prefix length, such as 10.0.0.11/24") from None
    refuse_reserved(address)
    return str(address)


def _network(text: Any) -> Any:
    if not isinstance(text, str) or "/" not in text or "%" in text:
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
        ip_interface(text.strip() if isinstance(text, str) and "%" not in text else "")
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
    if "://" in origin and not URL.fullmatch(origin):
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
IsoImage = Annotated[str, AfterValidator(_iso_image)]
StorageId = Annotated[str, AfterValidator(_storage)]
ClassOrStorage = Annotated[str, AfterValidator(_class_or_storage)]
Bridge = Annotated[str, AfterValidator(_bridge)]
CardModel = Annotated[str, AfterValidator(_card_model)]
Ip = Annotated[IPvAnyAddress, BeforeValidator(_address)]
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
