"""The configuration options of a container and their property strings."""

from __future__ import annotations

import ipaddress

from deployments.lab import formats
from deployments.lab.schema import Prop, PropertyFormat, Schema, boolean, enum, integer, string

MOUNT_KEYS = ("rootfs", *(f"mp{n}" for n in range(256)))
NET_KEYS = tuple(f"net{n}" for n in range(32))
UNUSED_KEYS = tuple(f"unused{n}" for n in range(256))
LIVE_KEYS = frozenset(
    {
        *("cores", "cpulimit", "cpuunits", "description", "hookscript", "hostname", "memory"),
        *("nameserver", "onboot", "protection", "searchdomain", "startup", "swap", "tags"),
    }
)

NET_FORMAT: PropertyFormat = {
    "name": string(optional=False, pattern=r"[-_.\w\d]+"),
    "type": enum("veth"),
    "bridge": string(pattern=r"[-_.\w\d]+"),
    "hwaddr": string(formats.mac_address),
    "mtu": integer(64, 65535),
    "ip": string(formats.ipv4_config_or_manual),
    "gw": string(formats.ip_address(ipaddress.IPv4Address)),
    "ip6": string(formats.ipv6_config_or_manual),
    "gw6": string(formats.ip_address(ipaddress.IPv6Address)),
    "firewall": boolean(),
    "link_down": boolean(),
    "tag": integer(1, 4094),
    "trunks": string(pattern=r"\d+(?:;\d+)*"),
    "rate": Prop("number", minimum=0),
    "host-managed": boolean(),
}
ROOTFS_FORMAT: PropertyFormat = {
    "volume": string(optional=False, default_key=True),
    "size": string(pattern=r"\d+(?:\.\d+)?[KMGT]?"),
    "acl": boolean(),
    "mountoptions": string(),
    "quota": boolean(),
    "replicate": boolean(),
    "ro": boolean(),
    "shared": boolean(),
}
MOUNT_FORMAT: PropertyFormat = {
    **ROOTFS_FORMAT,
    "mp": string(optional=False, pattern=r"/.*"),
    "backup": boolean(),
}
FEATURES_FORMAT: PropertyFormat = {
    "nesting": boolean(),
    "keyctl": boolean(),
    "fuse": boolean(),
    "mknod": boolean(),
    "force_rw_sys": boolean(),
    "mount": string(),
}
STARTUP_FORMAT: PropertyFormat = {
    "order": integer(0, default_key=True),
    "up": integer(0),
    "down": integer(0),
}


def mount_format(key: str) -> PropertyFormat:
    """The property string of ``rootfs`` or ``mpN``."""
    return ROOTFS_FORMAT if key == "rootfs" else MOUNT_FORMAT


OPTIONS: Schema = {
    "arch": enum("amd64", "i386", "arm64", "armhf", "riscv32", "riscv64"),
    "cmode": enum("shell", "console", "tty"),
    "console": boolean(),
    "cores": integer(1, 8192),
    "cpulimit": Prop("number", minimum=0, maximum=8192),
    "cpuunits": integer(0, 500000),
    "debug": boolean(),
    "entrypoint": string(modelled=False),
    "env": string(modelled=False),
    "description": string(max_length=8192),
    "features": string(FEATURES_FORMAT),
    "hookscript": string(),
    "hostname": string(formats.dns_name, max_length=255),
    "lock": string(),
    "memory": integer(16),
    "nameserver": string(formats.address_list),
    "onboot": boolean(),
    "ostype": enum(
        *("debian", "devuan", "ubuntu", "centos", "fedora", "opensuse", "archlinux", "alpine"),
        *("gentoo", "nixos", "unmanaged"),
    ),
    "protection": boolean(),
    "searchdomain": string(),
    "startup": string(STARTUP_FORMAT),
    "swap": integer(0),
    "tags": string(formats.tag_list),
    "template": boolean(),
    "timezone": string(),
    "tty": integer(0, 6),
    "unprivileged": boolean(),
    **{key: string(mount_format(key)) for key in MOUNT_KEYS},
    **{key: string(NET_FORMAT) for key in NET_KEYS},
    **{f"dev{n}": string(modelled=False) for n in range(256)},
}
NUMBER_KEYS = frozenset(
    key for key, prop in OPTIONS.items() if prop.type in ("integer", "number", "boolean")
)


def shown(key: str, value: str) -> str | int | float:
    """A stored text as the API shows it; descriptions end with a newline."""
    if key in NUMBER_KEYS or key == "snaptime":
        number = float(value)
        return int(number) if number.is_integer() else number
    if key == "description" and value:
        return value + "\n"
    return value
