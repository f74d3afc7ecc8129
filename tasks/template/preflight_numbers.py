"""Preflight of templates: numbers, names and addresses that somebody else has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address

from blocks.manifest.guest import Address, Guest, Nic
from blocks.manifest.recipe import TEMPLATE
from blocks.proxmox.inventory import GuestRow, Inventory
from tasks.capacity import next_free
from tasks.findings import Finding, error, warning
from tasks.found import FoundGuest
from tasks.template.preflight_scope import Scope, source_of
from tasks.template.unmarked import how_to_adopt, lost_its_mark, what_is_lost

_POINT_TO_POINT = {4: 31, 6: 127}


def number_findings(
    scope: Scope, inventory: Inventory, found: Iterable[FoundGuest]
) -> list[Finding]:
    """Numbers and names that are taken, twice declared or ours on another node. No call."""
    live = {guest.row.vmid: guest for guest in found}
    declared = (scope.template, *scope.recipe.clones)
    asked = _asked(scope)
    return [
        *_twice(asked, declared),
        *(
            finding
            for guest in asked
            if (row := inventory.guest(guest.vmid)) is not None
            for finding in _taken(scope, guest, row, live.get(guest.vmid), inventory)
        ),
        *_names(scope, asked, inventory, live),
        *_generations(scope, inventory),
    ]


def order_findings(scope: Scope) -> list[Finding]:
    """Stages that need what no stage of this run makes."""
    there = scope.ours.get(TEMPLATE)
    label = scope.template.label
    here = f"VM {scope.template.vmid} ({scope.template.name})"
    if there is None and not scope.creating:
        for stage in ("configure", "template"):
            if stage in scope.stages:
                return [
                    error(
                        f"{here} does not exist, and stage `create` is left out",
                        "add it to --stages, or begin with --from create",
                        guest=label,
                    )
                ]
    if scope.missing and not (scope.finished or "template" in scope.stages):
        return [
            error(
                f"clones are asked for, and {here} is no template yet",
                "run the stages before `clones` too",
                guest=label,
            )
        ]
    return []


def network_findings(guests: Iterable[Guest]) -> list[Finding]:
    """Addresses, gateways and name servers that cannot work, or are given twice. No call."""
    found: list[Finding] = []
    users: dict[str, list[str]] = defaultdict(list)
    for guest in guests:
        for nic in guest.nics:
            found += _card(guest, nic)
            for address in nic.inet.addresses:
                users[str(address.ip)].append(guest.label)
    found += [
        error(
            f"address {address} is given to {' and to '.join(labels)}",
            "give each an address of its own",
        )
        for address, labels in users.items()
        if len(labels) > 1
    ]
    return found


def rebuild_findings(scope: Scope) -> list[Finding]:
    """Running linked clones that keep the present generation of a template in place."""
    if scope.recipe.rebuild.when == "never" or not scope.stages & {"create", "template"}:
        return []
    linked = {clone.label for clone in scope.recipe.clones if not source_of(clone).full}
    running = [
        f"{guest.row.name} ({guest.row.vmid})"
        for guest in scope.marked
        if guest.mark is not None
        and guest.row.status == "running"
        and (guest.mark.guest in linked or _is_linked(guest))
    ]
    if not running:
        return []
    return [
        warning(
            f"linked clones of the template are running: {', '.join(running)}; they stay as they "
            "are, and so does their generation where the storage needs it for them",
            "remove them to have the old generation retired",
            guest=scope.template.label,
        )
    ]


def _asked(scope: Scope) -> tuple[Guest, ...]:
    template = (scope.template,) if scope.stages & {"create", "configure", "template"} else ()
    return template + (scope.recipe.clones if "clones" in scope.stages else ())


def _twice(asked: Iterable[Guest], declared: Iterable[Guest]) -> list[Finding]:
    found = []
    numbers: dict[int, list[str]] = defaultdict(list)
    names: dict[str, list[str]] = defaultdict(list)
    for guest in declared:
        numbers[guest.vmid].append(guest.label)
        names[guest.name].append(guest.label)
    for guest in asked:
        for users, what in ((numbers[guest.vmid], guest.vmid), (names[guest.name], guest.name)):
            if len(users) > 1 and users[-1] == guest.label:
                found.append(
                    error(
                        f"{what} is given to {' and to '.join(users)}",
                        "give each its own",
                        guest=guest.label,
                    )
                )
    return found


def _taken(
    scope: Scope, guest: Guest, row: GuestRow, live: FoundGuest | None, inventory: Inventory
) -> list[Finding]:
    ours = scope.ours.get(guest.label)
    if ours is None and live is not None and lost_its_mark(guest, live.live.config):
        return [error(what_is_lost(guest), how_to_adopt(scope.env, guest), guest=guest.label)]
    if ours is None:
        return [
            error(
                f"vm_id {guest.vmid} is taken by {_kind(row)} {row.name or '(no name)'} on "
                f"{row.node}, {_whose(scope, live)}",
                _other_number(scope, guest, inventory)
                if live is not None
                else f"it may be {guest.label} itself: look when node {row.node} can be read",
                guest=guest.label,
            )
        ]
    if row.node != guest.node:
        return [
            error(
                f"{row.name} ({row.vmid}) lives on {row.node}, and the manifest says {guest.node}",
                f"write node: {row.node}, or migrate it back",
                guest=guest.label,
            )
        ]
    return []


def _kind(row: GuestRow) -> str:
    return "container" if row.kind == "lxc" else "VM"


def _whose(scope: Scope, live: FoundGuest | None) -> str:
    if live is None:
        return "whose configuration cannot be read"
    mark = live.live.mark
    if mark is None:
        return "which Proxflow did not make"
    if mark.vmid != live.row.vmid:
        return f"which is a copy of VM {mark.vmid}"
    if mark.env != scope.env:
        return f"which belongs to {mark.env}"
    return f"which is {mark.guest} of this manifest"


def _other_number(scope: Scope, guest: Guest, inventory: Inventory) -> str:
    taken = {row.vmid for row in inventory.guests}
    taken |= {each.vmid for each in (scope.template, *scope.recipe.clones)}
    return f"choose another; the next free one is {next_free(guest.vmid, taken)}"


def _names(
    scope: Scope,
    asked: Iterable[Guest],
    inventory: Inventory,
    live: Mapping[int, FoundGuest],
) -> list[Finding]:
    declared = {guest.vmid for guest in (scope.template, *scope.recipe.clones)}
    generations = {
        guest.row.vmid
        for guest in scope.marked
        if guest.mark is not None and guest.mark.guest == TEMPLATE
    }
    others = {row.name: row for row in inventory.guests if row.vmid not in declared | generations}
    return [
        error(
            f"the name {guest.name} is taken by {_kind(row)} {row.vmid} on {row.node}"
            + (f", {_whose(scope, live[row.vmid])}" if row.vmid in live else ""),
            "rename one of them; two guests of one name are told apart by nobody",
            guest=guest.label,
        )
        for guest in asked
        if guest.label not in scope.ours and (row := others.get(guest.name)) is not None
    ]


def _generations(scope: Scope, inventory: Inventory) -> list[Finding]:
    """A rebuild that finds no number for its next generation."""
    rebuild = scope.recipe.rebuild
    if rebuild.when == "never" or "create" not in scope.stages:
        return []
    first, last = rebuild.vmids
    taken = {row.vmid for row in inventory.guests}
    taken |= {clone.vmid for clone in scope.recipe.clones}
    if any(number not in taken for number in range(first, last + 1)):
        return []
    text = f"all numbers for generations, {first} to {last}, are taken"
    advice = "widen `rebuild.vm_ids`, or remove generations that nobody uses"
    if TEMPLATE in scope.ours:
        return [warning(text, advice, guest=scope.template.label)]
    return [error(text, advice, guest=scope.template.label)]


def _is_linked(guest: FoundGuest) -> bool:
    """Whether a disk lies on the base of a template; told by the names on directories only."""
    return any(
        isinstance(line, str)
        and "/base-" in line.partition(",")[0].replace(":", ":/")
        and f"vm-{guest.row.vmid}-" in line
        for line in guest.live.config.values()
    )


def _card(guest: Guest, nic: Nic) -> list[Finding]:
    found = []
    inet = nic.inet
    for address in inet.addresses:
        network = address.network
        reserved = {network.network_address: "the network's own address"}
        if network.version == 4:
            reserved[network.broadcast_address] = "the broadcast address"
        narrow = network.prefixlen >= _POINT_TO_POINT[network.version]
        if not narrow and address.ip in reserved:
            found.append(
                error(
                    f"{address.ip} of {nic.slot} is {reserved[address.ip]} of {network}",
                    "give an address between them",
                    guest=guest.label,
                )
            )
        if address.ip in {inet.gateway, inet.gateway6}:
            found.append(
                error(
                    f"{address.ip} of {nic.slot} is its own gateway",
                    "one of the two is another machine's",
                    guest=guest.label,
                )
            )
    for gateway in (inet.gateway, inet.gateway6):
        if gateway is not None and not _reaches(inet.addresses, gateway):
            networks = ", ".join(str(address.network) for address in inet.addresses)
            found.append(
                error(
                    f"gateway {gateway} of {nic.slot} is in none of its networks ({networks})",
                    "give a gateway inside, or correct the prefix length of the address",
                    guest=guest.label,
                )
            )
    servers = dict.fromkeys((*inet.dns, *(guest.cloud_init.dns if guest.cloud_init else ())))
    found += [
        error(
            f"name server {server} is no address of a machine",
            "give the address of a DNS server",
            guest=guest.label,
        )
        for server in servers
        if server.is_unspecified or server.is_multicast
    ]
    return found


def _reaches(addresses: Iterable[Address], gateway: IPv4Address | IPv6Address) -> bool:
    same = [each for each in addresses if each.version == gateway.version]
    if gateway.version == 6 and gateway.is_link_local:
        return True
    # With DHCP or SLAAC for that protocol there is no network to compare with.
    return not same or any(gateway in each.network for each in same)
