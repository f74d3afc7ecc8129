"""What a Proxmox VE property string may hold, as a table: one row a kind of string.

Facts from the server's published parameter formats and from recorded configs. A key that is not
in the table is no error: it is kept as text, since a newer server may know more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Type = Literal["text", "bool", "int", "number", "size", "list", "urlencoded"]

NIC_MODELS = frozenset(
    [
        "e1000",
        "e1000-82540em",
        "e1000-82544gc",
        "e1000-82545em",
        "e1000e",
        "i82551",
        "i82557b",
        "i82559er",
        "ne2k_isa",
        "ne2k_pci",
        "pcnet",
        "rtl8139",
        "virtio",
        "vmxnet3",
    ]
)


@dataclass(frozen=True)
class Kind:
    """One kind of property string.

    ``default``: the key whose value may stand alone. ``required``: keys that the server writes
    right after it. ``types``: how to read a value; anything else is text. ``aliases``: another
    spelling of a key.
    """

    default: str | None = None
    required: tuple[str, ...] = ()
    types: Mapping[str, Type] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


def _types(**words: str) -> dict[str, Type]:
    """Turn ``bool="a b"`` into ``{"a": "bool", "b": "bool"}``."""
    known: dict[str, Type] = {
        "text": "text",
        "bool": "bool",
        "int": "int",
        "number": "number",
        "size": "size",
        "list": "list",
        "urlencoded": "urlencoded",
    }
    return {key: known[name] for name, keys in words.items() for key in keys.split()}


_MOUNT = _types(size="size", bool="acl backup quota replicate ro shared", list="mountoptions")
_FILE = {"volume": "file"}

KINDS: Mapping[str, Kind] = {
    "net": Kind(
        default="model",
        types=_types(bool="firewall link_down", int="tag mtu queues", number="rate", list="trunks"),
    ),
    "lxc-net": Kind(
        required=("name",),
        types=_types(
            bool="firewall link_down host-managed", int="tag mtu", number="rate", list="trunks"
        ),
    ),
    "disk": Kind(
        default="file",
        types=_types(
            bool="backup detect_zeroes iothread replicate ro shared snapshot ssd",
            int="bps bps_max_length bps_rd bps_rd_max_length bps_wr bps_wr_max_length cyls heads "
            "iops iops_max iops_max_length iops_rd iops_rd_max iops_rd_max_length iops_wr "
            "iops_wr_max iops_wr_max_length queues scsiblock secs",
            number="mbps mbps_max mbps_rd mbps_rd_max mbps_wr mbps_wr_max",
            size="size",
            urlencoded="model serial",
        ),
        aliases=_FILE,
    ),
    "efidisk": Kind(
        default="file", types=_types(bool="pre-enrolled-keys", size="size"), aliases=_FILE
    ),
    "tpmstate": Kind(default="file", types=_types(size="size"), aliases=_FILE),
    "unused": Kind(default="file", aliases=_FILE),
    "ipconfig": Kind(),
    "agent": Kind(
        default="enabled",
        types=_types(
            bool="enabled fstrim_cloned_disks freeze-fs freeze-fs-on-backup guest-fsfreeze"
        ),
    ),
    "boot": Kind(default="legacy", types=_types(list="order")),
    "hostpci": Kind(default="host", types=_types(bool="legacy-igd pcie rombar x-vga", list="host")),
    "usb": Kind(default="host", types=_types(bool="usb3")),
    "serial": Kind(default="target"),
    "vga": Kind(default="type", types=_types(int="memory")),
    "rng": Kind(default="source", types=_types(int="max_bytes period")),
    "cpu": Kind(default="cputype", types=_types(bool="hidden", list="flags")),
    "machine": Kind(default="type", types=_types(bool="enable-s3 enable-s4")),
    "memory": Kind(default="current", types=_types(int="current")),
    "smbios1": Kind(types=_types(bool="base64")),
    "numa": Kind(types=_types(list="cpus hostnodes", number="memory")),
    "startup": Kind(default="order", types=_types(int="order up down")),
    "rootfs": Kind(default="volume", types=_MOUNT),
    "mp": Kind(default="volume", required=("mp",), types=_MOUNT),
    "features": Kind(types=_types(bool="force_rw_sys fuse keyctl mknod nesting", list="mount")),
    "cicustom": Kind(),
    "meta": Kind(types=_types(int="ctime")),
    "audio": Kind(),
    "watchdog": Kind(default="model"),
    "virtiofs": Kind(default="dirid", types=_types(bool="direct-io expose-acl expose-xattr")),
}

_NUMBERED = {
    "net": "net",
    "ide": "disk",
    "sata": "disk",
    "scsi": "disk",
    "virtio": "disk",
    "efidisk": "efidisk",
    "tpmstate": "tpmstate",
    "unused": "unused",
    "ipconfig": "ipconfig",
    "hostpci": "hostpci",
    "usb": "usb",
    "serial": "serial",
    "rng": "rng",
    "numa": "numa",
    "mp": "mp",
    "audio": "audio",
    "virtiofs": "virtiofs",
}
_PLAIN = frozenset(
    [
        "agent",
        "boot",
        "vga",
        "cpu",
        "machine",
        "memory",
        "smbios1",
        "startup",
        "rootfs",
        "features",
        "cicustom",
        "meta",
        "watchdog",
    ]
)
_KEY = re.compile(r"(?P<stem>[a-z]+)(?P<number>\d+)")


def kind_of(key: str, guest: Literal["qemu", "lxc"] = "qemu") -> str | None:
    """The kind of string that a config key holds, None where it holds none: ``scsi1`` -> ``disk``.

    ``memory`` of a container is a plain number, ``net0`` of one has another format.
    """
    if key in _PLAIN:
        return None if guest == "lxc" and key == "memory" else key
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    kind = _NUMBERED.get(found["stem"])
    return "lxc-net" if kind == "net" and guest == "lxc" else kind
