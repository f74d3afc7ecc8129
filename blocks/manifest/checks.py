"""What must hold between the layers of an environment.

The checks read the tree, not the models, so that they also run where a model was refused: all that
is wrong is said at once. A value of the wrong type is passed over here; the models name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

from blocks.manifest.faults import Fault, suggestion
from blocks.manifest.fields import DNS_RULE, name_trouble
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


def check(env: Layers) -> Iterator[Fault]:
    """Everything that does not fit together."""
    yield from check_names(env)
    yield from _unique(env, "vmid", _vmids)
    yield from _unique(env, "MAC address", _macs)
    for node in env.nodes.values():
        yield from check_nics(env, node)
        yield from check_disks(env, node)
        yield from check_installation(env, node)
    yield from check_addresses(env)
    yield from check_shared_disks(env)
    yield from check_disk_tags(env)
    yield from check_rac(env)


def _named(layer: Item | None) -> dict[str, Item]:
    entries = layer.entries() if layer is not None else {}
    return {name: item for name, item in entries.items() if name != "kind"}


def check_names(env: Layers) -> Iterator[Fault]:
    """Labels and host names are DNS names, and each is there once."""
    seen: dict[str, Item] = {}
    for label, node in env.nodes.items():
        trouble = name_trouble(label)
        if trouble:
            yield node.fault(f"the name {label!r} {trouble}; Proxmox VE refuses it", DNS_RULE)
        given = node.get("hostname")
        where = given or node
        name = (node.text("hostname") if given else label) or ""
        first = seen.setdefault(name.lower(), where)
        if first is not where and name:
            yield where.fault(
                f"the host name {name!r} is taken at {first.place} ({first.key})",
                "choose another one",
            )


def _unique(
    env: Layers, what: str, find: Callable[[Item], Iterator[tuple[str, Item]]]
) -> Iterator[Fault]:
    """A fault for every value that was taken before, naming both places."""
    seen: dict[str, tuple[Item, Item]] = {}
    for node in env.nodes.values():
        for value, item in find(node):
            _, first = seen.setdefault(value, (node, item))
            if first is not item:
                yield item.fault(
                    f"the {what} {value} is taken at {first.place} ({first.key})",
                    "give each guest its own",
                )
            elif seen[value][0] is not node:
                owner = seen[value][0]
                yield item.fault(
                    f"the {what} {value} is given to several nodes ({owner.key}, {node.key})",
                    "give each guest its own",
                )


def _vmids(node: Item) -> Iterator[tuple[str, Item]]:
    item, number = node.get("proxmox", "vm_id"), node.number("proxmox", "vm_id")
    if item is not None and number is not None:
        yield str(number), item


def _macs(node: Item) -> Iterator[tuple[str, Item]]:
    for nic in node.elements("nics"):
        item, mac = nic.get("mac"), nic.text("mac")
        if item is not None and mac and mac.lower() != "auto":
            yield mac.upper().replace("-", ":"), item


def check_nics(env: Layers, node: Item) -> Iterator[Fault]:
    """Zones exist, addresses lie in them, and no card is there twice."""
    names: dict[str, Item] = {}
    for nic in node.elements("nics"):
        name = nic.text("name")
        if name and names.setdefault(name, nic) is not nic:
            yield nic.fault(
                f"the network card {name!r} is there twice (also at {names[name].place})",
                "choose another name",
            )
        if nic.text("bootproto") == "static" and not nic.get("ipv4"):
            role = nic.text("usage")
            if not (role and node.get("ips", role) and nic.text("network")):
                yield nic.fault(
                    "bootproto is static, but there is no address",
                    "add 'ipv4: {address: 10.0.0.11/24}'",
                )
        zone_name, zone_item = nic.text("network"), nic.get("network")
        cidr = None
        if zone_name is not None and zone_item is not None and env.networks is not None:
            if zone_name not in env.zones:
                yield zone_item.fault(
                    f"unknown zone {zone_name!r}", suggestion(zone_name, env.zones, "zones")
                )
            else:
                cidr = _network(env.zones[zone_name].text("cidr"))
        yield from _placed(nic, zone_name, cidr)
        yield from _role_address(node, nic, zone_name, cidr)


def _placed(nic: Item, zone: str | None, cidr: IPv4Network | IPv6Network | None) -> Iterator[Fault]:
    """The addresses of a card lie in its zone, the gateway in its network."""
    item = nic.get("ipv4", "address")
    address = _interface(nic.text("ipv4", "address"))
    if item is not None and address is not None and cidr is not None and address.ip not in cidr:
        yield item.fault(
            f"{address.ip} is outside the zone {zone!r}", f"choose an address in {cidr}"
        )
    gateway_item = nic.get("ipv4", "gateway")
    gateway = _address(nic.text("ipv4", "gateway"))
    if gateway_item is not None and gateway is not None and address is not None:
        if gateway not in address.network:
            yield gateway_item.fault(
                f"the gateway {gateway} cannot be reached from {address}",
                f"choose an address in {address.network}",
            )
        elif gateway == address.ip:
            yield gateway_item.fault(
                "the gateway is the address of the guest itself", "name the router"
            )
    for other in nic.elements("ipv4_addresses"):
        extra = _interface(other.text())
        if extra is not None and cidr is not None and extra.ip not in cidr:
            yield other.fault(
                f"{extra.ip} is outside the zone {zone!r}", f"choose an address in {cidr}"
            )


def _role_address(
    node: Item, nic: Item, zone: str | None, cidr: IPv4Network | IPv6Network | None
) -> Iterator[Fault]:
    """An address under ``ips`` that a card takes over lies in the zone of that card."""
    role = nic.text("usage")
    if role is None or nic.get("ipv4") or nic.text("bootproto") not in (None, "static"):
        return
    item, address = node.get("ips", role), _address(node.text("ips", role))
    if item is not None and address is not None and cidr is not None and address not in cidr:
        yield item.fault(f"{address} is outside the zone {zone!r}", f"choose an address in {cidr}")


def check_addresses(env: Layers) -> Iterator[Fault]:
    """In one zone no address belongs to two nodes, or to the gateway."""
    seen: dict[tuple[str, str], tuple[Item, Item]] = {}
    for node in env.nodes.values():
        told: set[str] = set()
        for zone, address, item in _claims(node):
            gateway = env.zones[zone].text("gateway") if zone in env.zones else None
            if gateway is not None and _address(gateway) == address and str(address) not in told:
                told.add(str(address))
                yield item.fault(
                    f"the address {address} is the gateway of the zone {zone!r}",
                    "choose another one",
                )
            owner, first = seen.setdefault((zone, str(address)), (node, item))
            if owner is not node and str(address) not in told:
                told.add(str(address))
                yield item.fault(
                    f"the address {address} is taken at {first.place} ({first.key})",
                    "give each guest its own",
                )


def _claims(node: Item) -> Iterator[tuple[str, IPv4Address | IPv6Address, Item]]:
    """Zone, address and place of each address that is this node's alone."""
    zone_of_role: dict[str, str] = {}
    for nic in node.elements("nics"):
        zone, role = nic.text("network") or "", nic.text("usage") or ""
        zone_of_role.setdefault(role, zone)
        if nic.flag("shared_with_cluster") or role == "scan":
            continue
        item, found = nic.get("ipv4", "address"), _interface(nic.text("ipv4", "address"))
        if item is not None and found is not None:
            yield zone, found.ip, item
        for other in nic.elements("ipv4_addresses"):
            extra = _interface(other.text())
            if extra is not None:
                yield zone, extra.ip, other
    for role, item in node.entries("ips").items():
        address = _address(item.text())
        if address is not None and role != "scan":
            yield zone_of_role.get(role, role), address, item


def check_disks(env: Layers, node: Item) -> Iterator[Fault]:
    """Storage classes exist; ids and slots are there once."""
    ids: dict[int, Item] = {}
    slots: dict[str, Item] = {}
    for disk in node.elements("disks"):
        number, slot = disk.number("id"), disk.text("interface")
        if number is not None and ids.setdefault(number, disk) is not disk:
            yield disk.fault(
                f"the disk id {number} is there twice (also at {ids[number].place})",
                "choose another id",
            )
        if slot and slots.setdefault(slot, disk) is not disk:
            yield (disk.get("interface") or disk).fault(
                f"the slot {slot} is taken at {slots[slot].place}", "choose another one"
            )
        name, item = disk.text("storage_class"), disk.get("storage_class")
        if name is None and disk.get("storage") is None and item is None:
            classes = ", ".join(sorted(env.classes)) or "none yet"
            yield disk.fault(
                "the disk is on no storage", f"add 'storage_class: ...' (classes: {classes})"
            )
        elif name is not None and item is not None and env.storage_classes is not None:
            if name not in env.classes:
                yield item.fault(
                    f"unknown storage class {name!r}",
                    suggestion(name, env.classes, "storage classes"),
                )


def check_shared_disks(env: Layers) -> Iterator[Fault]:
    """Disks that are one volume agree in size and storage, and that storage is shared."""
    first: dict[int, tuple[Item, Item]] = {}
    for node in env.nodes.values():
        root = root_disk(node)
        for disk in node.elements("disks"):
            number = disk.number("id")
            if not disk.flag("shared") or number is None:
                continue
            flag = disk.get("shared") or disk
            if disk is root:
                yield flag.fault(
                    "the disk to install on cannot be shared", "give each node its own root disk"
                )
                continue
            backend, shared = _backend(env, disk)
            if env.storage_classes is not None and backend is not None and not shared:
                yield flag.fault(
                    f"the disk is shared, but its storage {backend!r} is not",
                    "use a storage class with 'shared: true'",
                )
            owner, original = first.setdefault(number, (node, disk))
            if owner is node or original is disk:
                continue
            other, _ = _backend(env, original)
            if backend is not None and other is not None and backend != other:
                yield disk.fault(
                    f"the shared disk {number} is on {backend!r} here, but on {other!r} at "
                    f"{original.place}",
                    "put both on one storage",
                )
            here, there = _size(disk.text("size")), _size(original.text("size"))
            if here is not None and there is not None and here != there:
                yield (disk.get("size") or disk).fault(
                    f"the shared disk {number} has another size at {original.place}",
                    f"write {original.text('size')} in both places",
                )


def root_disk(node: Item) -> Item | None:
    """The disk to install on: the one of role root, else that on scsi0, else the first."""
    disks = node.elements("disks")
    for wanted in (("role", "root"), ("interface", "scsi0")):
        for disk in disks:
            if disk.text(wanted[0]) == wanted[1]:
                return disk
    return disks[0] if disks else None


def _backend(env: Layers, disk: Item) -> tuple[str | None, bool]:
    """The storage of a disk, and whether a class says that it is shared."""
    literal, name = disk.text("storage"), disk.text("storage_class")
    if literal is not None:
        named = [each for each in env.classes.values() if each.text("backend") == literal]
        return literal, any(each.flag("shared") for each in named)
    found = env.classes.get(name or "")
    return (found.text("backend"), found.flag("shared")) if found is not None else (None, False)


def check_installation(env: Layers, node: Item) -> Iterator[Fault]:
    """ISO and kickstart belong together, and need a disk."""
    layer = env.hypervisor
    if layer is None:
        return
    iso = node.get("iso") or layer.get("iso")
    kickstart = node.get("kickstart") or layer.get("kickstart")
    if iso is not None and kickstart is None:
        yield iso.fault("there is no kickstart for this iso", "add 'kickstart: {distro: ...}'")
    if kickstart is not None and iso is None:
        yield kickstart.fault(
            "there is no iso for this kickstart",
            "add 'iso: {storage: local, image: NAME.iso}'",
        )
    if iso is not None and not node.elements("disks"):
        yield node.fault("there is no disk to install on", "add 'disks: [{id: 0, size: 32G, ...}]'")


def check_disk_tags(env: Layers) -> Iterator[Fault]:
    """Tags that other layers refer to are on a disk."""
    if env.hypervisor is None:
        return
    known = {
        tag
        for node in env.nodes.values()
        for disk in node.elements("disks")
        if (tag := disk.text("tag"))
    }
    spec = env.root.get("spec")
    readers = [spec.get("linux"), *spec.elements("databases")] if spec is not None else []
    for reader in readers:
        for entry in reader.elements("disk_layout", "additional") if reader is not None else []:
            item, tag = entry.get("tag"), entry.text("tag")
            if item is not None and tag and tag not in known and "${" not in tag:
                yield item.fault(
                    f"no disk has the tag {tag!r}", suggestion(tag, known, "disk tags")
                )


def check_rac(env: Layers) -> Iterator[Fault]:
    """What Oracle RAC needs."""
    cluster = env.cluster
    if cluster is None or cluster.text("type") != "oracle-rac":
        return
    count = len(cluster.elements("scan_ips"))
    if count < 3:
        where = cluster.get("scan_ips")
        problem, remedy = f"oracle-rac needs at least 3 SCAN addresses, not {count}", "list three"
        yield (
            where.fault(problem, remedy)
            if where
            else cluster.fault(problem, remedy, below="scan_ips")
        )
    subnet_item = cluster.get("interconnect_subnet")
    if subnet_item is None:
        yield cluster.fault(
            "oracle-rac needs the network between the nodes",
            "add 'interconnect_subnet: 10.10.1.0/24'",
            below="interconnect_subnet",
        )
    if env.hypervisor is None:
        return
    nodes = env.nodes
    if len(nodes) < 2:
        where = env.hypervisor.get("nodes") or env.hypervisor
        yield where.fault(f"oracle-rac needs at least 2 nodes, not {len(nodes)}", "add a node")
    subnet = _network(cluster.text("interconnect_subnet"))
    for node in nodes.values():
        usages = {nic.text("usage") for nic in node.elements("nics")}
        for usage in ("public", "private"):
            if usage not in usages:
                yield node.fault(
                    f"oracle-rac needs a {usage} network card on each node",
                    f"add a nic with 'usage: {usage}'",
                )
        for nic in node.elements("nics"):
            item, address = nic.get("ipv4", "address"), _interface(nic.text("ipv4", "address"))
            if item is None or address is None or subnet is None:
                continue
            if nic.text("usage") == "private" and address.ip not in subnet:
                yield item.fault(
                    f"{address.ip} is outside the interconnect subnet", f"choose one in {subnet}"
                )
    counts: dict[int, int] = {}
    for node in nodes.values():
        for disk in node.elements("disks"):
            number = disk.number("id")
            if disk.flag("shared") and number is not None:
                counts[number] = counts.get(number, 0) + 1
    if len(nodes) > 1 and not any(count > 1 for count in counts.values()):
        where = env.hypervisor.get("nodes") or env.hypervisor
        yield where.fault(
            "oracle-rac needs a shared disk", "give the nodes a disk of one id with 'shared: true'"
        )


def _network(text: str | None) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text) if text else None
    except ValueError:
        return None


def _interface(text: str | None) -> IPv4Interface | IPv6Interface | None:
    try:
        return ip_interface(text) if text else None
    except ValueError:
        return None


def _address(text: str | None) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text) if text else None
    except ValueError:
        return None


def _size(text: str | None) -> int | None:
    try:
        return parse_size(text) if text else None
    except ValueError:
        return None
