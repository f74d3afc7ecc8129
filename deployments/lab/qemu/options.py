"""The configuration options of a virtual machine and their property strings.

Names, types, ranges and enumerations as the API of a Proxmox VE 9.2 server checks them.
"""

from __future__ import annotations

import ipaddress
import re

from deployments.lab import formats
from deployments.lab.schema import Prop, PropertyFormat, Schema, boolean, enum, integer, string

NET_MODELS = (
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
)
DISK_KEYS = (
    *(f"ide{n}" for n in range(4)),
    *(f"scsi{n}" for n in range(31)),
    *(f"virtio{n}" for n in range(16)),
    *(f"sata{n}" for n in range(6)),
    "efidisk0",
    "tpmstate0",
)
NET_KEYS = tuple(f"net{n}" for n in range(32))
UNUSED_KEYS = tuple(f"unused{n}" for n in range(256))
CLOUDINIT_KEYS = (
    "cicustom",
    "cipassword",
    "citype",
    "ciupgrade",
    "ciuser",
    "nameserver",
    "searchdomain",
    "sshkeys",
    *(f"ipconfig{n}" for n in range(32)),
)
FAST_KEYS = frozenset(
    {
        "description",
        "hookscript",
        "lock",
        "migrate_downtime",
        "migrate_speed",
        "name",
        "onboot",
        "protection",
        "shares",
        "startup",
        "tags",
        "vmstatestorage",
    }
)
ROOT_ONLY_KEYS = ("args", "lock")
OSTYPES = (
    *("other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11"),
    *("l24", "l26", "solaris"),
)
LOCKS = ("backup", "clone", "create", "migrate", "rollback", "snapshot", "snapshot-delete")

NET_FORMAT: PropertyFormat = {
    "model": enum(*NET_MODELS, optional=False, default_key=True),
    "macaddr": string(formats.mac_address),
    "bridge": string(pattern=r"[-_.\w\d]+"),
    "queues": integer(0, 64),
    "rate": Prop("number", minimum=0),
    "tag": integer(1, 4094),
    "trunks": string(pattern=r"\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*"),
    "firewall": boolean(),
    "link_down": boolean(),
    "mtu": integer(1, 65520),
} | {model: Prop(alias="macaddr", key_to="model") for model in NET_MODELS}

_SIZE = r"\d+(?:\.\d+)?[KMGT]?"
_DRIVE: dict[str, Prop] = {
    "file": string(optional=False, default_key=True),
    "media": enum("cdrom", "disk"),
    "size": string(pattern=_SIZE),
    "cache": enum("none", "writethrough", "writeback", "unsafe", "directsync"),
    "format": enum("raw", "qcow", "qed", "qcow2", "vmdk", "cloop"),
    "import-from": string(),
    "aio": enum("native", "threads", "io_uring"),
    "discard": enum("ignore", "on"),
    "detect_zeroes": boolean(),
    "backup": boolean(),
    "replicate": boolean(),
    "snapshot": boolean(),
    "shared": boolean(),
    "rerror": enum("ignore", "report", "stop"),
    "werror": enum("enospc", "ignore", "report", "stop"),
    "serial": string(max_length=60),
} | {
    f"{name}{suffix}": Prop("number" if name == "mbps" else "integer", minimum=0)
    for name in ("bps", "mbps", "iops")
    for suffix in ("", "_rd", "_wr", "_max", "_rd_max", "_wr_max")
}
_SCSI = _DRIVE | {
    "iothread": boolean(),
    "ssd": boolean(),
    "ro": boolean(),
    "queues": integer(2),
    "scsiblock": boolean(),
    "wwn": string(pattern=r"0x[0-9a-fA-F]{16}"),
    "product": string(pattern=r"[A-Za-z0-9\-_\s]{1,16}"),
    "vendor": string(pattern=r"[A-Za-z0-9\-_\s]{1,8}"),
}
_VIRTIO = _DRIVE | {"iothread": boolean(), "ro": boolean()}
_SATA = _DRIVE | {"ssd": boolean(), "wwn": string(pattern=r"0x[0-9a-fA-F]{16}")}
_IDE = _SATA | {"model": string(max_length=120)}
_EFI: PropertyFormat = {
    "file": string(optional=False, default_key=True),
    "format": _DRIVE["format"],
    "size": _DRIVE["size"],
    "efitype": enum("2m", "4m"),
    "pre-enrolled-keys": boolean(),
    "ms-cert": enum("2011", "2023", "2023w", "2023k"),
    "import-from": string(),
}
_TPM: PropertyFormat = {
    "file": string(optional=False, default_key=True),
    "format": _DRIVE["format"],
    "size": _DRIVE["size"],
    "version": enum("v1.2", "v2.0"),
    "import-from": string(),
}


def drive_format(key: str) -> PropertyFormat:
    """The property string of a drive by its option name."""
    bus = re.sub(r"\d+$", "", key)
    known: dict[str, PropertyFormat] = {
        "scsi": _SCSI,
        "virtio": _VIRTIO,
        "sata": _SATA,
        "ide": _IDE,
        "efidisk": _EFI,
        "tpmstate": _TPM,
        "unused": {"file": string(optional=False, default_key=True), "size": _DRIVE["size"]},
    }
    return known[bus]


_DEVICE = r"[a-z]+\d+"
BOOT_FORMAT: PropertyFormat = {
    "legacy": string(default_key=True, pattern=r"[acdn]{1,4}"),
    "order": string(pattern=rf"(?:{_DEVICE})?(?:;{_DEVICE})*"),
}
AGENT_FORMAT: PropertyFormat = {
    "enabled": boolean(optional=False, default_key=True),
    "fstrim_cloned_disks": boolean(),
    "freeze-fs": boolean(),
    "freeze-fs-on-backup": Prop(alias="freeze-fs"),
    "guest-fsfreeze": Prop(alias="freeze-fs"),
    "type": enum("virtio", "isa"),
}
IPCONFIG_FORMAT: PropertyFormat = {
    "ip": string(formats.ipv4_config),
    "gw": string(formats.ip_address(ipaddress.IPv4Address), requires="ip"),
    "ip6": string(formats.ipv6_config),
    "gw6": string(formats.ip_address(ipaddress.IPv6Address), requires="ip6"),
}
MACHINE_FORMAT: PropertyFormat = {
    "type": string(
        default_key=True,
        pattern=r"(?:pc|pc(?:-i440fx)?-\d+(?:\.\d+)+(?:\+pve\d+)?(?:\.pxe)?|q35"
        r"|pc-q35-\d+(?:\.\d+)+(?:\+pve\d+)?(?:\.pxe)?|virt(?:-\d+(?:\.\d+)+)?(?:\+pve\d+)?)",
    ),
    "viommu": enum("intel", "virtio"),
    "enable-s3": boolean(),
    "enable-s4": boolean(),
    "aw-bits": integer(32, 64),
}
CPU_FORMAT: PropertyFormat = {
    "cputype": string(default_key=True, pattern=r"[A-Za-z0-9._+-]+"),
    "flags": string(pattern=r"[+-][A-Za-z0-9_-]+(?:;[+-][A-Za-z0-9_-]+)*"),
    "hidden": boolean(),
    "hv-vendor-id": string(pattern=r"[A-Za-z0-9]{1,12}"),
    "phys-bits": string(pattern=r"host|\d+"),
    "reported-model": string(),
    "guest-phys-bits": integer(32, 64),
}
MEMORY_FORMAT: PropertyFormat = {"current": integer(16, default_key=True)}
STARTUP_FORMAT: PropertyFormat = {
    "order": integer(0, default_key=True),
    "up": integer(0),
    "down": integer(0),
}
SMBIOS_FORMAT: PropertyFormat = {
    "uuid": string(pattern=r"[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}"),
    "base64": boolean(),
} | {k: string() for k in ("version", "serial", "manufacturer", "product", "sku", "family")}
VGA_FORMAT: PropertyFormat = {
    "type": enum(
        *("cirrus", "none", "qxl", "qxl2", "qxl3", "qxl4", "serial0", "serial1", "serial2"),
        *("serial3", "std", "virtio", "virtio-gl", "vmware"),
        default_key=True,
    ),
    "memory": integer(4, 512),
    "clipboard": enum("vnc"),
}
WATCHDOG_FORMAT: PropertyFormat = {
    "model": enum("i6300esb", "ib700", default_key=True),
    "action": enum("reset", "shutdown", "poweroff", "pause", "debug", "none"),
}
RNG_FORMAT: PropertyFormat = {
    "source": enum("/dev/urandom", "/dev/random", "/dev/hwrng", optional=False, default_key=True),
    "max_bytes": integer(),
    "period": integer(),
}
HOSTPCI_FORMAT: PropertyFormat = {
    "host": string(default_key=True),
    "mapping": string(formats.config_id),
    "rombar": boolean(),
    "romfile": string(),
    "pcie": boolean(),
    "x-vga": boolean(),
    "mdev": string(),
    "legacy-igd": boolean(),
}
USB_FORMAT: PropertyFormat = {
    "host": string(default_key=True),
    "mapping": string(formats.config_id),
    "usb3": boolean(),
}
CICUSTOM_FORMAT: PropertyFormat = {key: string() for key in ("meta", "network", "user", "vendor")}
AUDIO_FORMAT: PropertyFormat = {
    "device": enum("ich9-intel-hda", "intel-hda", "AC97", optional=False),
    "driver": enum("spice", "none"),
}

OPTIONS: Schema = {
    "acpi": boolean(),
    "affinity": string(),
    "agent": string(AGENT_FORMAT),
    "allow-ksm": boolean(modelled=False),
    "amd-sev": string(modelled=False),
    "arch": enum("x86_64", "aarch64"),
    "args": string(),
    "audio0": string(AUDIO_FORMAT),
    "autostart": boolean(),
    "balloon": integer(0),
    "bios": enum("seabios", "ovmf"),
    "boot": string(BOOT_FORMAT),
    "bootdisk": string(pattern=r"(?:ide|sata|scsi|virtio)\d+"),
    "cdrom": string(),
    "cicustom": string(CICUSTOM_FORMAT),
    "cipassword": string(),
    "citype": enum("configdrive2", "nocloud", "opennebula"),
    "ciupgrade": boolean(),
    "ciuser": string(),
    "cores": integer(1),
    "cpu": string(CPU_FORMAT),
    "cpulimit": Prop("number", minimum=0, maximum=128),
    "cpuunits": integer(1, 262144),
    "description": string(max_length=8192),
    "freeze": boolean(),
    "hookscript": string(),
    "hotplug": string(),
    "hugepages": enum("any", "2", "1024"),
    "intel-tdx": string(modelled=False),
    "ivshmem": string(modelled=False),
    "keephugepages": boolean(),
    "keyboard": string(),
    "kvm": boolean(),
    "localtime": boolean(),
    "lock": enum(*LOCKS, "suspended", "suspending"),
    "machine": string(MACHINE_FORMAT),
    "memory": string(MEMORY_FORMAT),
    "migrate_downtime": Prop("number", minimum=0),
    "migrate_speed": integer(0),
    "name": string(formats.dns_name),
    "nameserver": string(formats.address_list),
    "numa": boolean(),
    "onboot": boolean(),
    "ostype": enum(*OSTYPES),
    "protection": boolean(),
    "reboot": boolean(),
    "rng0": string(RNG_FORMAT),
    "scsihw": enum(
        *("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi")
    ),
    "searchdomain": string(),
    "shares": integer(0, 50000),
    "smbios1": string(SMBIOS_FORMAT, max_length=512),
    "smp": integer(1),
    "sockets": integer(1),
    "spice_enhancements": string(),
    "sshkeys": string(formats.url_encoded),
    "startdate": string(pattern=r"now|\d{4}-\d{1,2}-\d{1,2}(?:T\d{1,2}:\d{1,2}:\d{1,2})?"),
    "startup": string(STARTUP_FORMAT),
    "tablet": boolean(),
    "tags": string(formats.tag_list),
    "tdf": boolean(),
    "template": boolean(),
    "vcpus": integer(1),
    "vga": string(VGA_FORMAT),
    "vmgenid": string(pattern=r"(?:[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}|[01])"),
    "vmstatestorage": string(formats.storage_id),
    "watchdog": string(WATCHDOG_FORMAT),
    **{key: string(drive_format(key)) for key in DISK_KEYS},
    **{key: string(NET_FORMAT) for key in NET_KEYS},
    **{f"ipconfig{n}": string(IPCONFIG_FORMAT) for n in range(32)},
    **{f"hostpci{n}": string(HOSTPCI_FORMAT) for n in range(16)},
    **{f"usb{n}": string(USB_FORMAT) for n in range(14)},
    **{f"serial{n}": string(pattern=r"/dev/.+|socket") for n in range(4)},
    **{f"parallel{n}": string(pattern=r"/dev/.+") for n in range(3)},
    **{f"numa{n}": string() for n in range(8)},
    **{f"virtiofs{n}": string(modelled=False) for n in range(10)},
}
NUMBER_KEYS = frozenset(
    key for key, prop in OPTIONS.items() if prop.type in ("integer", "number", "boolean")
)
UNSETTABLE_KEYS = ("meta", "parent", "snaptime", "vmstate", "runningmachine", "snapstate")


def typed(key: str, value: str) -> str | int | float:
    """A stored text as the API shows it: numbers where the schema says number."""
    if key in NUMBER_KEYS or key in ("snaptime",):
        number = float(value)
        return int(number) if number.is_integer() else number
    return value
