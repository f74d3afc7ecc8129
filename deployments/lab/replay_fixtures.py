"""What the recording server had before a scenario began: users, storages, files, guests.

Preconditions only; no answer is taken from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deployments.lab.images import qcow2_header

NODE = "pve"
ADMIN_PASSWORD = "admin-password"  # noqa: S105 - of the replay's own throw-away lab
TOKEN_SECRET = "00000000-1111-2222-3333-444444444444"  # noqa: S105
TINY_BYTES = 374_784
CLOUD_BYTES = 196_624
GIB = 1 << 30
SSH_KEY_HINT = "ssh-ed25519"

SEED: dict[str, Any] = {
    "name": "lab",
    "nodes": [{"name": NODE, "cores": 2, "memory_mib": 8192}],
    "bridges": [{"name": "vmbr0", "cidr": "10.77.0.1/24"}],
    "storages": [
        {
            "name": "local",
            "path": "/var/lib/vz",
            "shared": False,
            "content": ["images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import"],
        },
        {"name": "local2", "path": "/var/lib/vz2", "content": ["images", "rootdir"]},
        {
            "name": "shared-dir",
            "path": "/mnt/pve/shared-dir",
            "shared": True,
            "content": ["images", "iso", "rootdir", "snippets"],
        },
    ],
    "default_isos": False,
    "files": [
        {"name": "seed.iso", "size": 358_400},
        {"name": "a.iso", "size": 2048},
        {"name": "we_ird_n_me.iso", "size": 2048},
        {"name": "img.qcow2", "content": "import", "virtual_size": 2 * GIB, "size": 196_640},
        {"name": "raw.raw", "content": "import", "size": GIB},
        {"name": "debian-12-mini_12_amd64.tar.zst", "content": "vztmpl", "size": 1000},
    ],
    "users": [
        {
            "userid": "admin@pve",
            "password": ADMIN_PASSWORD,
            "tokens": [{"name": "seed", "secret": TOKEN_SECRET, "privsep": True}],
            "acl": [{"path": "/", "role": "Administrator"}],
        },
        {
            "userid": "low@pve",
            "password": ADMIN_PASSWORD,
            "tokens": [{"name": "seed", "secret": TOKEN_SECRET, "privsep": False}],
            "acl": [{"path": "/", "role": "PVEAuditor"}],
        },
    ],
    "pools": ["seedpool", "recpool"],
    "guests": [
        {"vmid": 9000, "pool": "seedpool", "config": {"name": "seed-template", "template": 1}}
    ],
    "creation_qemu": "7.2.22",
}
THIN_STORAGE = {"name": "local-lvm", "type": "lvmthin", "content": ["images", "rootdir"]}
CONTAINER_200 = "arch: amd64\nhostname: seed-ct\nmemory: 128\nostype: debian\n"
FIXTURE_ROWS = {
    *("qemu/9000", "lxc/200", "9000", "200", "seedpool", "/pool/recpool", "recpool"),
    *("local:iso/seed.iso", "local:iso/a.iso", "local:iso/we_ird_n_me.iso"),
    "local:vztmpl/debian-12-mini_12_amd64.tar.zst",
    *("local:iso/rec-inst.iso", "local:iso/rec-seed.iso", "local:import/rec-cloud.qcow2"),
    *("local:import/img.qcow2", "local:import/raw.raw"),
}


@dataclass(frozen=True)
class Setup:
    """One scenario's own things: files (name, content, size), creations, steps after them."""

    files: list[dict[str, Any]] = field(default_factory=list)
    guests: list[dict[str, Any]] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    template: list[int] = field(default_factory=list)
    snapshots: dict[int, str] = field(default_factory=dict)
    drop_pool: bool = True


_INSTALL = [
    {"name": "rec-inst.iso", "size": TINY_BYTES},
    {"name": "rec-seed.iso", "size": TINY_BYTES},
]
_CLOUD = [
    {"name": "rec-cloud.qcow2", "content": "import", "virtual_size": GIB, "size": CLOUD_BYTES}
]
_SNIPPET = [
    {
        "name": "rec-user.yaml",
        "content": "snippets",
        "storage": "shared-dir",
        "text": "#cloud-config\n",
    }
]

SETUPS: dict[str, Setup] = {
    "01-discovery": Setup(
        guests=[
            {
                "vmid": 1001,
                "name": "disc-a",
                "cores": 2,
                "memory": 256,
                "scsi0": "local:1",
                "tags": "blue;green",
                "pool": "recpool",
            },
            {
                "vmid": 1002,
                "name": "disc-b",
                "memory": 128,
                "scsi0": "local:1",
                "net0": "virtio,bridge=vmbr0",
            },
        ],
        start=[1002],
        drop_pool=False,
    ),
    "02-auth-errors": Setup(
        guests=[
            {
                "vmid": 1020,
                "name": "auth",
                "memory": 64,
                "scsi0": "local:1,format=qcow2",
                "net0": "virtio,bridge=vmbr0",
            }
        ]
    ),
    "05-iso-vm-life": Setup(files=_INSTALL, drop_pool=False),
    "05b-iso-vm-power": Setup(files=_INSTALL),
    "06-cloud-image-template": Setup(files=[*_CLOUD, *_SNIPPET]),
    "06b-template-conversion": Setup(files=_CLOUD),
    "07-clones": Setup(
        files=_CLOUD,
        guests=[
            {
                "vmid": 1100,
                "name": "base",
                "memory": 128,
                "agent": "1",
                "bios": "ovmf",
                "boot": "order=scsi0",
                "ciuser": "u",
                "ipconfig0": "ip=dhcp",
                "description": "golden",
                "onboot": 1,
                "tags": "tmpl",
                "scsihw": "virtio-scsi-single",
                "efidisk0": "local:1,efitype=4m,format=qcow2",
                "scsi0": "local:1,format=qcow2,discard=on",
                "ide2": "local:cloudinit",
                "net0": "virtio,bridge=vmbr0,firewall=1",
                "net1": "virtio=AA:BB:CC:00:11:33,bridge=vmbr0",
            }
        ],
        template=[1100],
        drop_pool=False,
    ),
    "10b-locks": Setup(
        guests=[
            {
                "vmid": 1210,
                "name": "lck",
                "memory": 64,
                "agent": "1",
                "scsi0": "local:1,format=qcow2",
                "ide2": "local:cloudinit",
            }
        ],
        snapshots={1210: "s1"},
    ),
}


def file_content(name: str, size: int) -> bytes:
    """Bytes for an upload or a download of a given name and size."""
    if "junk" in name:
        head = b"this is no image at all "
    elif "backed" in name:
        head = qcow2_header(GIB, "/etc/passwd")
    elif name.endswith(".qcow2") or "cloud" in name:
        head = qcow2_header(GIB)
    else:
        head = b"x"
    return (
        (head * (size // len(head) + 1))[:size]
        if "junk" in name
        else head.ljust(size, b"\0")[:size]
    )


WEB_FILES = {
    "tiny.iso": TINY_BYTES,
    "cloud.qcow2": CLOUD_BYTES,
    "junk.qcow2": 3000,
    "tiny.iso.gz": 500,
}
RECORDED_SUMS = {
    "5d78afc288569eae19a5c0effabdc99bcf575916ecba8240d5ca701363b0b275": "sha256",
    "d670c974cbf86f409d60781de73e8eec": "md5",
}
