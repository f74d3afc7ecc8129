"""What must hold between the layers of an environment.

The checks read the tree, not the models, so that they also run where a model was refused: all that
is wrong is said at once. A value of the wrong type is passed over here; the models name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blocks.manifest.address_checks import check_addresses, check_nics
from blocks.manifest.disk_checks import check_disk_tags, check_disks, check_shared_disks
from blocks.manifest.faults import Fault
from blocks.manifest.fields import DNS_RULE, name_trouble
from blocks.manifest.kickstart import WITHOUT_SELINUX
from blocks.manifest.layers import Layers, interface_of, network_of
from blocks.manifest.tree import Item


def check(env: Layers) -> Iterator[Fault]:
    """Everything that does not fit together."""
    yield from check_empty(env)
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


def check_empty(env: Layers) -> Iterator[Fault]:
    """No node, zone or class is a bare name: it would vanish without a word."""
    nodes = env.hypervisor.get("nodes") if env.hypervisor is not None else None
    for what, layer in (
        ("node", nodes),
        ("zone", env.networks),
        ("storage class", env.storage_classes),
    ):
        if layer is None or not isinstance(layer.value, dict):
            continue
        for item in layer.value.values():
            if item.value is None and not item.broken:
                yield item.fault(f"the {what} is empty", "say what it has, or remove it")


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
    if kickstart is not None:
        yield from _check_selinux(kickstart)


def _check_selinux(kickstart: Item) -> Iterator[Fault]:
    """A state of SELinux only where there is SELinux."""
    item, distro = kickstart.get("selinux"), kickstart.text("distro")
    if item is not None and item.value is not None and distro in WITHOUT_SELINUX:
        yield item.fault(
            f"the installer of {distro} sets up no SELinux",
            "remove it, or say 'selinux: null' in the kickstart of this node",
        )


def check_rac(env: Layers) -> Iterator[Fault]:
    """What Oracle RAC needs."""
    cluster = env.cluster
    if cluster is None or cluster.text("type") != "oracle-rac":
        return
    count = len(cluster.elements("scan_ips"))
    if count < 3:
        yield cluster.fault(
            f"oracle-rac needs at least 3 SCAN addresses, not {count}",
            "list them as 'scan_ips: [...]'",
            below="scan_ips",
        )
    if cluster.get("interconnect_subnet") is None:
        yield cluster.fault(
            "oracle-rac needs the network between the nodes",
            "add 'interconnect_subnet: 10.10.1.0/24'",
            below="interconnect_subnet",
        )
    if env.hypervisor is None:
        return
    where = env.hypervisor.get("nodes") or env.hypervisor
    if len(env.nodes) < 2:
        yield where.fault(f"oracle-rac needs at least 2 nodes, not {len(env.nodes)}", "add a node")
    elif not _have_shared_disk(env):
        yield where.fault(
            "oracle-rac needs a shared disk", "give the nodes a disk of one id with 'shared: true'"
        )
    for node in env.nodes.values():
        yield from _check_rac_cards(node, cluster)


def _check_rac_cards(node: Item, cluster: Item) -> Iterator[Fault]:
    """A public and a private card, the private one in the interconnect."""
    usages = {nic.text("usage") for nic in node.elements("nics")}
    for usage in ("public", "private"):
        if usage not in usages:
            yield node.fault(
                f"oracle-rac needs a {usage} network card on each node",
                f"add a nic with 'usage: {usage}'",
            )
    subnet = network_of(cluster.text("interconnect_subnet"))
    for nic in node.elements("nics"):
        item, address = nic.get("ipv4", "address"), interface_of(nic.text("ipv4", "address"))
        if nic.text("usage") != "private" or item is None or address is None or subnet is None:
            continue
        if address.ip not in subnet:
            yield item.fault(
                f"{address.ip} is outside the interconnect subnet", f"choose one in {subnet}"
            )


def _have_shared_disk(env: Layers) -> bool:
    """Whether any shared disk is on several nodes."""
    seen: set[int] = set()
    for node in env.nodes.values():
        ids = {disk.number("id") for disk in node.elements("disks") if disk.flag("shared")}
        numbers = {number for number in ids if number is not None}
        if numbers & seen:
            return True
        seen |= numbers
    return False
