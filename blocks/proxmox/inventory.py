"""What is there, as typed rows: nodes, storages, guests, volumes, bridges, rights.

Reads only. Lists are silently cut by the caller's rights: what is missing here may exist
(recorded in 02-auth-errors and 01-discovery).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

from blocks.model import Model
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import AlreadyExists, NotFound

GuestKind = Literal["qemu", "lxc"]


class NodeRow(Model):
    """A node; sizes in bytes. The numbers are 0 where the caller may not see them."""

    name: str
    online: bool
    maxcpu: int = 0
    maxmem: int = 0
    mem: int = 0
    cpu: float = 0.0
    uptime: int = 0


class StorageRow(Model):
    """A storage as one node has it; bytes. A shared storage has a row for each node."""

    storage: str
    node: str
    shared: bool
    active: bool
    content: frozenset[str]
    plugin: str
    total: int
    used: int

    @property
    def available(self) -> int:
        """Free bytes."""
        return max(0, self.total - self.used)


class GuestRow(Model):
    """A guest; ``status`` is ``unknown`` for some seconds after its creation."""

    kind: GuestKind
    vmid: int
    name: str
    node: str
    status: str
    template: bool
    tags: tuple[str, ...]
    pool: str | None
    lock: str | None
    maxcpu: float
    maxmem: int
    maxdisk: int
    uptime: int


class VolumeRow(Model):
    """A volume; ``size`` in bytes, of the file for uploads and of the disk for guests' disks."""

    volid: str
    content: str
    format: str
    size: int
    vmid: int | None = None

    @property
    def name(self) -> str:
        """Without storage and folder: ``a.iso`` of ``local:iso/a.iso``."""
        return self.volid.rpartition("/")[2].rpartition(":")[2]


class BridgeRow(Model):
    """A bridge of a node. ``vlan_aware``: guests' tags pass it."""

    name: str
    active: bool
    kind: str
    cidr: str | None
    vlan_aware: bool


class Inventory(Model):
    """The cluster at one moment, from one call."""

    nodes: tuple[NodeRow, ...]
    storages: tuple[StorageRow, ...]
    guests: tuple[GuestRow, ...]
    pools: frozenset[str]

    def online(self) -> frozenset[str]:
        """Names of the nodes that are online."""
        return frozenset(node.name for node in self.nodes if node.online)

    def node(self, name: str) -> NodeRow | None:
        """The node of that name."""
        return next((row for row in self.nodes if row.name == name), None)

    def guest(self, vmid: int) -> GuestRow | None:
        """The guest with that id."""
        return next((row for row in self.guests if row.vmid == vmid), None)

    def named(self, name: str) -> tuple[GuestRow, ...]:
        """All guests of that name: names are not unique on Proxmox VE."""
        return tuple(row for row in self.guests if row.name == name)

    def storage(self, node: str, storage: str) -> StorageRow | None:
        """The storage as that node has it."""
        return next(
            (row for row in self.storages if row.node == node and row.storage == storage), None
        )

    def storages_of(self, node: str) -> tuple[StorageRow, ...]:
        """All storages of a node."""
        return tuple(row for row in self.storages if row.node == node)


def read_inventory(client: Client) -> Inventory:
    """Nodes, storages, guests and pools, sorted, from one GET /cluster/resources."""
    rows: list[dict[str, Any]] = client.get("/cluster/resources")
    by_type: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_type.setdefault(str(row.get("type")), []).append(row)
    guests = [*by_type.get("qemu", ()), *by_type.get("lxc", ())]
    return Inventory(
        nodes=tuple(sorted(map(_node, by_type.get("node", ())), key=lambda row: row.name)),
        storages=tuple(
            sorted(
                map(_storage, by_type.get("storage", ())), key=lambda row: (row.node, row.storage)
            )
        ),
        guests=tuple(sorted(map(_guest, guests), key=lambda row: row.vmid)),
        pools=frozenset(str(row["pool"]) for row in by_type.get("pool", ()) if "pool" in row),
    )


def _node(row: Mapping[str, Any]) -> NodeRow:
    return NodeRow(
        name=row["node"],
        online=row.get("status") == "online",
        maxcpu=int(row.get("maxcpu") or 0),
        maxmem=int(row.get("maxmem") or 0),
        mem=int(row.get("mem") or 0),
        cpu=float(row.get("cpu") or 0),
        uptime=int(row.get("uptime") or 0),
    )


def _storage(row: Mapping[str, Any]) -> StorageRow:
    return StorageRow(
        storage=row["storage"],
        node=row["node"],
        shared=bool(int(row.get("shared") or 0)),
        active=row.get("status") == "available",
        content=_words(row.get("content"), ","),
        plugin=str(row.get("plugintype") or ""),
        total=int(row.get("maxdisk") or 0),
        used=int(row.get("disk") or 0),
    )


def _guest(row: Mapping[str, Any]) -> GuestRow:
    return GuestRow(
        kind=row["type"],
        vmid=int(row["vmid"]),
        name=str(row.get("name") or ""),
        node=row["node"],
        status=str(row.get("status") or "unknown"),
        template=bool(int(row.get("template") or 0)),
        tags=tuple(sorted(_words(row.get("tags"), ";"))),
        pool=row.get("pool"),
        lock=row.get("lock"),
        maxcpu=float(row.get("maxcpu") or 0),
        maxmem=int(row.get("maxmem") or 0),
        maxdisk=int(row.get("maxdisk") or 0),
        uptime=int(row.get("uptime") or 0),
    )


def _words(text: object, separator: str) -> frozenset[str]:
    return frozenset(word for part in str(text or "").split(separator) if (word := part.strip()))


def guest_path(kind: GuestKind, node: str, vmid: int) -> str:
    """``/nodes/NODE/KIND/VMID``."""
    return api_path("nodes", node, kind, vmid)


class GuestAddress(Protocol):
    """Whatever knows kind, node and vmid of a guest: a GuestRow, a declared guest."""

    @property
    def kind(self) -> GuestKind:
        """``qemu`` or ``lxc``."""
        ...

    @property
    def node(self) -> str:
        """The node it is on."""
        ...

    @property
    def vmid(self) -> int:
        """Its id."""
        ...


def guest_config(client: Client, guest: GuestAddress) -> dict[str, Any]:
    """A guest's config as the server gives it; pending changes are in it (12b-hardware-running).

    Raises NotFound.
    """
    path = guest_path(guest.kind, guest.node, guest.vmid)
    config: dict[str, Any] = client.get(path + "/config")
    return config


def storage_content(
    client: Client, node: str, storage: str, content: str | None = None
) -> tuple[VolumeRow, ...]:
    """The volumes of a storage, sorted by id; ``content``: ``iso``, ``import``, ``images``, ..."""
    rows = client.get(api_path("nodes", node, "storage", storage, "content"), content=content)
    return tuple(sorted(map(_volume, rows), key=lambda row: row.volid))


def _volume(row: Mapping[str, Any]) -> VolumeRow:
    vmid = row.get("vmid")
    return VolumeRow(
        volid=row["volid"],
        content=str(row.get("content") or ""),
        format=str(row.get("format") or ""),
        size=int(row.get("size") or 0),
        vmid=None if vmid is None else int(vmid),
    )


def bridges(client: Client, node: str) -> tuple[BridgeRow, ...]:
    """The bridges that guests on a node may use, Open vSwitch and SDN ones included."""
    rows = client.get(api_path("nodes", node, "network"), type="any_bridge")
    return tuple(
        sorted(
            (
                BridgeRow(
                    name=row["iface"],
                    active=bool(int(row.get("active") or 0)),
                    kind=str(row.get("type") or ""),
                    cidr=row.get("cidr"),
                    vlan_aware=bool(int(row.get("bridge_vlan_aware") or 0)),
                )
                for row in rows
            ),
            key=lambda row: row.name,
        )
    )


def next_vmid(client: Client) -> int:
    """The lowest free id now. Another client may take it first: be ready for AlreadyExists."""
    return int(client.get("/cluster/nextid"))


def vmid_is_free(client: Client, vmid: int) -> bool:
    """Whether no guest of the whole cluster has that id, hidden ones included."""
    try:
        client.get("/cluster/nextid", vmid=vmid)
    except AlreadyExists:
        return False
    return True


class Permissions(Model):
    """What the caller may do: privileges by path, with the flag whether they go down from there."""

    by_path: Mapping[str, Mapping[str, bool]]

    def privileges(self, path: str) -> frozenset[str]:
        """The privileges on a path: those listed there, else what the nearest listed parent passes.

        A list that was read without this very path cannot tell a path below which all was taken
        away (role NoAccess) from one that has no entry: name paths to ``permissions`` to be sure.
        """
        path = "/" + path.strip("/")
        if path in self.by_path:
            return frozenset(self.by_path[path])
        parent = path
        while parent != "/":
            parent = parent.rpartition("/")[0] or "/"
            if parent in self.by_path:
                inherited = self.by_path[parent]
                return frozenset(name for name, passes in inherited.items() if passes)
        return frozenset()

    def missing(
        self, path: str, privileges: Iterable[str], *, pool: str | None = None
    ) -> tuple[str, ...]:
        """Which of the privileges the caller lacks on a path, in the order given.

        ``pool``: of the guest; privileges on ``/pool/NAME`` count for its members.
        """
        held = self.privileges(path)
        if pool is not None:
            held |= self.privileges(f"/pool/{pool}")
        return tuple(name for name in privileges if name not in held)


def permissions(client: Client, *paths: str) -> Permissions:
    """The caller's permissions: as listed, and exactly for each of ``paths`` (one call more each).

    A token with privilege separation gets its own, not its user's.
    """
    found: dict[str, dict[str, bool]] = _flags(client.get("/access/permissions"))
    for path in dict.fromkeys("/" + path.strip("/") for path in paths):
        exact = _flags(client.get("/access/permissions", path=path))
        found[path] = exact.get(path, {})
    return Permissions(by_path=found)


def _flags(answer: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, bool]]:
    return {
        path: {name: bool(int(flag)) for name, flag in flags.items()}
        for path, flags in answer.items()
    }


def find_guest(client: Client, vmid: int) -> GuestRow:
    """The guest with that id, wherever in the cluster it is. Raises NotFound."""
    row = read_inventory(client).guest(vmid)
    if row is None:
        raise NotFound(f"there is no guest {vmid} that this user may see")
    return row
