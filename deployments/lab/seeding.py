"""What a new lab begins with: the default cluster, or one described by a YAML file."""

from __future__ import annotations

import contextlib
import json
import secrets
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from deployments.lab import images
from deployments.lab.access import ROOT, Access, AclEntry, Pool
from deployments.lab.bootmenus import MENUS, REWRITTEN, menu_path
from deployments.lab.cluster import (
    CREATION_QEMU,
    Bridge,
    ClusterConfig,
    Lab,
    Node,
    save_cluster_config,
)
from deployments.lab.credentials import CREDENTIALS, Credentials
from deployments.lab.errors import ApiError, SeedError
from deployments.lab.files import write_json
from deployments.lab.isos import make_iso
from deployments.lab.mappings import PciDevice, PciMapping, parse_entry
from deployments.lab.roles import ROLES
from deployments.lab.schema import FormatError
from deployments.lab.seeds import installer_family
from deployments.lab.storage import GIB, StorageConfig

INSTALL_ISOS = (
    "Rocky-9.6-x86_64-dvd.iso",
    "OracleLinux-R9-U6-x86_64-dvd.iso",
    "OracleLinux-R8-U10-x86_64-dvd.iso",
    "ubuntu-24.04.3-live-server-amd64.iso",
    # As clients call an ISO whose boot menu they have rewritten.
    "ubuntu-24.04.3-live-server-amd64.proxflow-7c41d09e52ab.iso",
    "ubuntu-22.04.5-live-server-amd64.iso",
    "debian-13.1.0-amd64-netinst.iso",
    "debian-12.11.0-amd64-netinst.iso",
    "SLE-15-SP7-Full-x86_64-GM-Media1.iso",
    "SLES-16.0-Full-x86_64-GM.install.iso",
    "SLES-16.0-Full-x86_64-GM.install.proxflow-3f60c2a8d915.iso",
    "rhel-9.6-x86_64-dvd.iso",
)
REALMS = [
    {"comment": "Linux PAM standard authentication", "realm": "pam", "type": "pam"},
    {"comment": "Proxmox VE authentication server", "realm": "pve", "type": "pve"},
]


Content = Literal["iso", "vztmpl", "import", "snippets", "images", "rootdir", "backup"]
ALL_CONTENT: list[Content] = [*get_args(Content)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SeedBridge(_Part):
    """A bridge; ``cidr`` is the nodes' gateway address on it."""

    name: str
    cidr: str | None = None
    vlan_aware: bool = False


class SeedPci(_Part):
    """A PCI device of a node; ``id`` is vendor and device."""

    path: str = Field(pattern=r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$")
    id: str = Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")
    iommugroup: int | None = None
    subsystem_id: str | None = Field(default=None, pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")


class SeedMapping(_Part):
    """A PCI resource mapping; ``map`` as the API takes it."""

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]+$")
    map: list[str] = Field(min_length=1)
    description: str | None = None
    mdev: bool = False


class SeedNode(_Part):
    """A node; ``memory_mib`` in MiB."""

    name: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$")
    cores: int = Field(default=8, ge=1)
    memory_mib: int = Field(default=65536, ge=512)
    ip: str | None = None
    bridges: list[SeedBridge] | None = None
    pci: list[SeedPci] = []


class SeedStorage(_Part):
    """A storage; ``size_gib`` in GiB, ``nodes`` empty for all."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]$")
    type: Literal["dir", "lvmthin"] = "dir"
    content: list[Content] = ["images", "rootdir"]
    path: str | None = None
    shared: bool | None = None
    size_gib: float = Field(default=500, gt=0)
    nodes: list[str] = []


class SeedFile(_Part):
    """A file on a storage: a small real ISO, or ``size`` bytes of nothing, or an empty image."""

    storage: str = "local"
    name: str
    content: Literal["iso", "vztmpl", "import", "snippets"] = "iso"
    size: int | None = None
    label: str | None = None
    virtual_size: int | None = None
    text: str | None = None
    nodes: list[str] = []


class SeedToken(_Part):
    """An API token of a user."""

    name: str = Field(pattern=r"^[A-Za-z][\w.-]+$|^[A-Za-z]$")
    secret: str
    privsep: bool = True


class SeedAcl(_Part):
    """A role on a path, for the user or for one of its tokens."""

    path: str = Field(pattern=r"^/")
    role: str
    token: str | None = None
    propagate: bool = True

    @field_validator("role")
    @classmethod
    def _known(cls, role: str) -> str:
        if role not in ROLES:
            raise ValueError(f"there is no role {role}, only {', '.join(sorted(ROLES))}")
        return role


class SeedUser(_Part):
    """A user, its password, tokens and roles."""

    userid: str = Field(pattern=r"^[^@\s:/]+@(pam|pve)$")
    password: str | None = None
    tokens: list[SeedToken] = []
    acl: list[SeedAcl] = []


class SeedGuest(_Part):
    """A guest that exists already: configuration as the API takes it, perhaps running.

    ``count`` makes as many of them with ids in a row; ``{vmid}`` in the configuration's texts is
    then the guest's id, and without ``node`` they are dealt out over the nodes.
    """

    vmid: int = Field(ge=100, le=999999999)
    count: int = Field(default=1, ge=1, le=100000)
    node: str | None = None
    pool: str | None = None
    config: dict[str, Any] = {}
    installed: bool = True
    running: bool = False


class Seed(_Part):
    """A whole cluster."""

    name: str = "lab"
    nodes: list[SeedNode] = Field(
        min_length=1, default=[SeedNode(name=f"pve{n}") for n in (1, 2, 3)]
    )
    bridges: list[SeedBridge] = [
        SeedBridge(name="vmbr0", cidr="10.77.0.1/16"),
        SeedBridge(name="vmbr1", cidr="10.78.0.1/16"),
    ]
    storages: list[SeedStorage] = [
        SeedStorage(name="local", content=ALL_CONTENT, path="/var/lib/vz"),
        SeedStorage(name="local-lvm", type="lvmthin"),
        SeedStorage(
            name="shared", content=ALL_CONTENT, path="/mnt/pve/shared", shared=True, size_gib=2000
        ),
    ]
    default_isos: bool = True
    files: list[SeedFile] = []
    users: list[SeedUser] = []
    pools: list[str] = []
    mappings: list[SeedMapping] = []
    guests: list[SeedGuest] = []
    creation_qemu: str = CREATION_QEMU

    @model_validator(mode="after")
    def _names(self) -> Seed:
        for what, names in (
            ("node", [node.name for node in self.nodes]),
            ("storage", [storage.name for storage in self.storages]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what} {twice[0]} is named twice")
        return self


def load_seed(file: Path | None) -> Seed:
    """Read a seed file; SeedError for anything that is wrong with it."""
    if file is None:
        return Seed()
    from ruamel.yaml.error import YAMLError

    try:
        return Seed.model_validate(_parse(file.read_text()) or {})
    except UnicodeDecodeError:
        raise SeedError(f"{file}: no text in UTF-8") from None
    except OSError as error:
        raise SeedError(f"{file}: cannot be read: {error.strerror}") from None
    except YAMLError as error:
        raise SeedError(f"{file}: no YAML: {error}") from None
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise SeedError(f"{file}: " + "; ".join(lines)) from None


def _parse(text: str) -> Any:
    """A YAML document. JSON, which is YAML too, is read a hundred times as fast."""
    if text.lstrip().startswith("{"):
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(text)
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(text)


def create_state(root: Path, seed_file: Path | None, seed: Seed) -> Credentials:
    """Fill an empty state folder; SeedError for what only turns out on the way."""
    try:
        return _create_state(root, seed)
    except SeedError as error:
        raise SeedError(f"{seed_file}: {error}") from None


def _create_state(root: Path, seed: Seed) -> Credentials:
    nodes = []
    for index, one in enumerate(seed.nodes):
        bridges = [Bridge(**b.model_dump()) for b in one.bridges or seed.bridges]
        ip = one.ip or f"192.0.2.{11 + index}"
        devices = [PciDevice(**device.model_dump()) for device in one.pci]
        nodes.append(Node(one.name, ip, one.cores, one.memory_mib << 20, bridges, devices))
    storages = [
        StorageConfig(
            s.name,
            s.type,
            [str(kind) for kind in s.content],
            s.path or f"/mnt/pve/{s.name}",
            s.shared,
            s.nodes,
            int(s.size_gib * GIB),
        )
        for s in seed.storages
    ]
    config = ClusterConfig(seed.name, nodes, storages, REALMS, seed.creation_qemu)
    save_cluster_config(root, config)
    credentials = _create_access(root, seed)
    lab = Lab(root)
    _create_mappings(lab, seed.mappings)
    if seed.default_isos:
        _default_isos(lab)
    for file in seed.files:
        _create_file(lab, file)
    for guest in seed.guests:
        _create_guests(lab, guest)
    lab.access.save()
    write_json(root / CREDENTIALS, vars(credentials), 0o600)
    return credentials


def _create_access(root: Path, seed: Seed) -> Credentials:
    access = Access(root / "etc")
    credentials = Credentials(
        f"{ROOT}!lab",
        secrets.token_hex(16),
        ROOT,
        secrets.token_urlsafe(12),
        secrets.token_urlsafe(24),
    )
    access.add_user(ROOT, credentials.password)
    access.add_token(credentials.token_id, credentials.token_secret, privsep=False)
    for user in seed.users:
        if user.userid != ROOT or user.password:
            access.add_user(user.userid, user.password)
        for token in user.tokens:
            access.add_token(f"{user.userid}!{token.name}", token.secret, token.privsep)
        for entry in user.acl:
            who = f"{user.userid}!{entry.token}" if entry.token else user.userid
            access.acl.append(AclEntry(entry.path, who, entry.role, entry.propagate))
    access.pools = {name: Pool(name) for name in seed.pools}
    access.save()
    return credentials


def _create_mappings(lab: Lab, mappings: list[SeedMapping]) -> None:
    for one in mappings:
        try:
            for entry in one.map:
                parse_entry(entry)
        except FormatError as error:
            raise SeedError(f"mapping {one.id}: {str(error).strip()}") from None
        lab.mappings.found[one.id] = PciMapping(one.map, one.description, one.mdev)
    if mappings:
        lab.mappings.save()


def _default_isos(lab: Lab) -> None:
    local = lab.storages.find("local")
    if local is None or "iso" not in local.config.content:
        return
    first = None
    for name in INSTALL_ISOS:
        for node in lab.nodes:
            target = local.folder(node) / "template" / "iso" / name
            if target.exists():
                continue
            if first is None or first.name != name:
                menus = REWRITTEN if ".proxflow-" in name else MENUS
                family = installer_family(name) or ""
                menu = {menu_path(family): menus[family]} if family in menus else {}
                files = {"README": f"{name}\n", **menu}
                make_iso(target, name.partition(".")[0][:16].upper(), files)
                first = target
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(first.read_bytes())


def _create_file(lab: Lab, file: SeedFile) -> None:
    try:
        storage = lab.storages.get(file.storage)
        volume = storage.parse(f"{file.content}/{file.name}")
    except ApiError as error:
        raise SeedError(f"file {file.name}: {error.reason}") from None
    for node in file.nodes or list(lab.nodes):
        if not storage.serves(node):
            continue
        target = storage.file(node, volume)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.text is not None:
            target.write_text(file.text)
        elif file.virtual_size is not None:
            images.create_image(target, volume.format, file.virtual_size)
        elif file.size is not None:
            with target.open("wb") as handle:
                handle.truncate(file.size)
        else:
            make_iso(target, file.label or "LAB", {"README": f"{file.name}\n"})
        if file.size is not None and file.virtual_size is not None:
            with target.open("r+b") as handle:
                handle.truncate(file.size)


def _create_guests(lab: Lab, guest: SeedGuest) -> None:
    nodes = list(lab.nodes)
    for number in range(guest.count):
        vmid = guest.vmid + number
        node = guest.node or nodes[number % len(nodes)]
        if node not in lab.nodes:
            raise SeedError(f"guest {vmid}: there is no node {node}, only {', '.join(nodes)}")
        if lab.guests.locate(vmid) is not None:
            raise SeedError(f"guest {vmid} is named twice")
        config = guest.config
        if guest.count > 1:
            config = {key: _with_id(value, vmid) for key, value in config.items()}
        _create_guest(lab, guest, node, vmid, config)


def _with_id(value: Any, vmid: int) -> Any:
    return value.replace("{vmid}", str(vmid)) if isinstance(value, str) else value


def _create_guest(lab: Lab, guest: SeedGuest, node: str, vmid: int, config: dict[str, Any]) -> None:
    from deployments.lab.conffile import GuestConfig
    from deployments.lab.qemu.create import build_values
    from deployments.lab.qemu.devices import first_boot_disk
    from deployments.lab.qemu.pace import AT_ONCE, done

    try:
        values, _ = done(build_values(lab, node, vmid, config, lambda *_: None, AT_ONCE))
    except ApiError as error:
        details = "; ".join(f"{key}: {text}" for key, text in (error.errors or {}).items())
        raise SeedError(f"guest {vmid}: {details or error.reason}") from None
    lab.guests.save(node, "qemu", vmid, GuestConfig(values))
    if guest.pool is not None:
        lab.access.pools.setdefault(guest.pool, Pool(guest.pool)).vms.append(vmid)
    disk = first_boot_disk(values)
    if guest.installed and disk is not None:
        storage, volume = lab.storages.volume(disk.file, node)
        images.write_mark(storage.file(node, volume), {"image": "seed"})
    if guest.running:
        lab.life.power_on(node, vmid, values)
