"""The layers of an environment as the checks see them: trees, and values where they are whole."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)

from blocks.manifest.tree import Item
from blocks.units import parse_size


@dataclass(frozen=True)
class Layers:
    """The layers to check. A layer that could not be read is None, and is not checked against."""

    root: Item
    hypervisor: Item | None
    networks: Item | None
    storage_classes: Item | None
    cluster: Item | None

    @property
    def nodes(self) -> dict[str, Item]:
        """The guests by label, defaults merged."""
        return self.hypervisor.entries("nodes") if self.hypervisor is not None else {}

    @property
    def zones(self) -> dict[str, Item]:
        """The zones by name."""
        return _named(self.networks)

    @property
    def classes(self) -> dict[str, Item]:
        """The storage classes by name."""
        return _named(self.storage_classes)


def layers(root: Item) -> Layers:
    """The layers of an environment."""

    def whole(name: str) -> Item | None:
        item = root.get("spec", name)
        return item if item is not None and not item.broken else None

    return Layers(
        root, whole("hypervisor"), whole("networks"), whole("storage_classes"), whole("cluster")
    )


def _named(layer: Item | None) -> dict[str, Item]:
    entries = layer.entries() if layer is not None else {}
    return {name: item for name, item in entries.items() if name != "kind"}


def network_of(text: str | None) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text) if text else None
    except ValueError:
        return None


def interface_of(text: str | None) -> IPv4Interface | IPv6Interface | None:
    try:
        return ip_interface(text) if text else None
    except ValueError:
        return None


def address_of(text: str | None) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text) if text else None
    except ValueError:
        return None


def size_of(text: str | None) -> int | None:
    try:
        return parse_size(text) if text else None
    except ValueError:
        return None
