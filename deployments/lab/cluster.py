"""The simulated cluster: nodes, storages, guests, tasks and time, all kept in one state folder."""

from __future__ import annotations

import ipaddress
import secrets
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from deployments.lab.access import Access
from deployments.lab.clock import Clock
from deployments.lab.errors import failure
from deployments.lab.faults import Faults
from deployments.lab.files import read_json, write_json
from deployments.lab.guests import GuestStore
from deployments.lab.mappings import PciDevice, PciMappings
from deployments.lab.storage import Storage, StorageConfig, Storages
from deployments.lab.tasks import Tasks

VERSION = "9.2.11"
RELEASE = "9.2"
REPOID = "1ab5c2d3e4f56789"
CREATION_QEMU = "10.1.2"
Part = TypeVar("Part")


@dataclass
class Bridge:
    """A bridge of a node; ``cidr`` is the node's address on it and gives the DHCP range."""

    name: str
    cidr: str | None = None
    vlan_aware: bool = False


@dataclass
class Node:
    """A cluster node; ``memory`` in bytes."""

    name: str
    ip: str
    cores: int = 8
    memory: int = 64 << 30
    bridges: list[Bridge] = field(default_factory=list)
    pci: list[PciDevice] = field(default_factory=list)

    @property
    def devices(self) -> dict[str, PciDevice]:
        """PCI devices by address."""
        return {device.path: device for device in self.pci}


@dataclass
class ClusterConfig:
    """What a seed decides. One node means: no cluster, as on a stand-alone host."""

    name: str = "lab"
    nodes: list[Node] = field(default_factory=list)
    storages: list[StorageConfig] = field(default_factory=list)
    realms: list[dict[str, str]] = field(default_factory=list)
    creation_qemu: str = CREATION_QEMU


class Lab:
    """One running lab. All parts share the state folder ``root``."""

    def __init__(self, root: Path, time_scale: float = 1.0) -> None:
        from deployments.lab.guestos import GuestLife

        self.root = root
        data = read_json(root / "etc" / "cluster.json", None)
        if data is None:
            raise FileNotFoundError(f"{root} holds no lab")
        self.config = load_cluster_config(data)
        self.clock = Clock(time_scale)
        self.faults = Faults()
        self.access = Access(root / "etc")
        self.nodes = {node.name: node for node in self.config.nodes}
        self.storages = Storages(self.config.storages, root / "storage")
        self.mappings = PciMappings(root / "etc" / "mapping-pci.json")
        self.guests = GuestStore(root / "etc" / "nodes", list(self.nodes), self.clock, self.faults)
        self.tasks = Tasks(root / "tasks", self.faults)
        self.life = GuestLife(self)
        self.born = time.time()
        self.web: dict[str, str] = {}
        self._parts: dict[type, Any] = {}
        (root / "tmp").mkdir(parents=True, exist_ok=True)

    @property
    def local_node(self) -> str:
        """The node that answers API calls."""
        return next(iter(self.nodes))

    @property
    def clustered(self) -> bool:
        """Whether there is more than one node."""
        return len(self.nodes) > 1

    def require_node(self, name: str) -> Node:
        """A node that exists and answers."""
        node = self.nodes.get(name)
        if node is None:
            raise failure(
                f"hostname lookup '{name}' failed - failed to get address info for: {name}: "
                "Name or service not known"
            )
        return node

    def online(self, name: str) -> bool:
        """Whether a node is up."""
        return name not in self.faults.offline

    @property
    def quorate(self) -> bool:
        """Whether the answering node sees a majority of the cluster."""
        if self.faults.no_quorum:
            return False
        return sum(self.online(name) for name in self.nodes) * 2 > len(self.nodes)

    def require_quorum(self) -> None:
        """Refuse what would write to the cluster's file system while it is read-only."""
        if not self.quorate:
            raise failure("cluster not ready - no quorum?")

    def usage(self, storage: Storage, node: str) -> tuple[int, int]:
        """Used and total bytes of a storage as a node sees it."""
        return storage.usage(node, storage.id in self.faults.full)

    def recent_usage(self, storage: Storage, node: str) -> tuple[int, int]:
        """Used and total bytes as of a moment ago, for lists that are asked for often."""
        return storage.usage(node, storage.id in self.faults.full, recent=True)

    def part(self, kind: type[Part]) -> Part:
        """The lab's one object of a class that is made without arguments, made when first used."""
        if kind not in self._parts:
            self._parts[kind] = kind()
        return cast(Part, self._parts[kind])

    def check_space(self, storage: Storage, node: str, size: int, what: str) -> None:
        """Refuse when ``size`` bytes do not fit."""
        used, total = self.recent_usage(storage, node)
        if size > (total - used) // 2:
            used, total = self.usage(storage, node)
        if size > total - used:
            raise failure(f"{what}: No space left on device")

    def bridge(self, node: str, name: str) -> Bridge | None:
        """A bridge of a node by name."""
        return next((b for b in self.nodes[node].bridges if b.name == name), None)

    def network_of(self, node: str, bridge: str) -> ipaddress.IPv4Interface | None:
        """The node's address on a bridge."""
        found = self.bridge(node, bridge)
        return ipaddress.IPv4Interface(found.cidr) if found and found.cidr else None


def load_cluster_config(data: dict[str, Any]) -> ClusterConfig:
    """The configuration as written by :func:`save_cluster_config`."""
    nodes = [
        Node(
            **{
                **node,
                "bridges": [Bridge(**bridge) for bridge in node["bridges"]],
                "pci": [PciDevice(**device) for device in node.get("pci", ())],
            }
        )
        for node in data["nodes"]
    ]
    storages = [StorageConfig(**entry) for entry in data["storages"]]
    return ClusterConfig(data["name"], nodes, storages, data["realms"], data["creation_qemu"])


def save_cluster_config(root: Path, config: ClusterConfig) -> None:
    """Write nodes, storages and names to the state folder."""
    write_json(root / "etc" / "cluster.json", asdict(config))


def new_mac() -> str:
    """A MAC address in the range that Proxmox VE gives its guests."""
    return "BC:24:11:" + ":".join(f"{secrets.randbelow(256):02X}" for _ in range(3))
