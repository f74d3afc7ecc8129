"""Preflight of templates and clones: everything that would go wrong, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Guest
from blocks.manifest.recipe import TEMPLATE
from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection
from blocks.proxmox.inventory import Inventory, permissions
from tasks.capacity import did_you_mean, node_findings, resource_findings
from tasks.cloudinit.checks import check_cloud_init
from tasks.findings import Finding, error
from tasks.found import READERS, FoundGuest, all_guests
from tasks.image import check_image
from tasks.preflight import (
    address_findings,
    answering,
    bridge_findings,
    bridge_names,
    joined,
    optional,
    version_findings,
)
from tasks.ssh import ssh_banner
from tasks.template.preflight_machine import machine_findings, machine_guests, read_machines
from tasks.template.preflight_numbers import (
    network_findings,
    number_findings,
    order_findings,
    rebuild_findings,
)
from tasks.template.preflight_places import place_findings
from tasks.template.preflight_rights import right_findings
from tasks.template.preflight_scope import Scope, scope
from tasks.template.preflight_snippets import snippet_findings, snippet_places
from tasks.template.unmarked import lost_its_mark

_BANNER_SECONDS = 1.0


def check_template(
    client: Client,
    connection: Connection,
    environment: Environment,
    inventory: Inventory,
    *,
    stages: frozenset[str],
    reconcile: bool = False,
) -> tuple[Finding, ...]:
    """All findings for the stages asked for, errors first; what is finished is not looked at.

    ``environment``: of a ``kind: Template``, with the number of the generation in use.
    ``stages``: of image, create, configure, template, clones. ``reconcile``: existing clones may
    be changed. Reads only, several at once: version, permissions, every guest's configuration,
    and of each node its bridges and, where a guest asks for them, machines, processors and PCI
    mappings; of each new clone's address, whether something answers. Where snippets are to be
    written, the login and the folder are tried. Raises ProxmoxError where the cluster cannot be
    read at all.
    """
    with ThreadPoolExecutor(READERS) as pool:
        reading = pool.submit(all_guests, client, inventory)
        allowed = pool.submit(permissions, client)
        release = pool.submit(version_findings, client)
        found = reading.result()
        seen = scope(environment, found, stages, reconcile=reconcile)
        image = pool.submit(_image, client, seen, inventory)
        nodes = _online(seen.touching, inventory)
        switches = {
            node: pool.submit(optional, partial(bridge_names, client, node)) for node in nodes
        }
        machines = {
            node: pool.submit(read_machines, client, node, there)
            for node in nodes
            if (there := [guest for guest in machine_guests(seen) if guest.node == node])
        }
        banners = {
            (clone.label, str(address)): pool.submit(
                ssh_banner,
                str(address),
                proxy=connection.guest_proxy,
                timeout=_BANNER_SECONDS,
            )
            for clone in seen.missing
            if not _is_lost(clone, found)
            for address in clone.ssh_addresses[:1]
        }
        logins = [
            pool.submit(snippet_findings, client, place)
            for place in snippet_places(seen, inventory)
        ]
        who = connection.token_id or connection.user or "the caller"
        carded = _carded(seen)
        return joined(
            release.result(),
            right_findings(seen, allowed.result(), who),
            node_findings(seen.touching, inventory),
            _standing(seen, inventory, found),
            _pools(seen, inventory),
            place_findings(seen, inventory),
            _told(seen, environment.name),
            bridge_findings(carded, {node: job.result() for node, job in switches.items()}),
            resource_findings([clone for clone in seen.missing if clone.autostart], inventory),
            network_findings(carded),
            address_findings(carded, _others(seen, found)),
            answering({key: job.result() for key, job in banners.items()}),
            machine_findings(
                seen, {node: job.result() for node, job in machines.items()}, connection
            ),
            rebuild_findings(seen),
            image.result(),
            *(login.result() for login in logins),
        )


def standing_findings(
    environment: Environment,
    inventory: Inventory,
    found: Sequence[FoundGuest],
    stages: frozenset[str],
) -> tuple[Finding, ...]:
    """The part that forbids to begin in any case, from what was read already. No call.

    Numbers and names that somebody else has, and stages that need what no stage makes; the same
    findings as in ``check_template``. ``found``: the guests of the cluster, of which those with a
    declared number matter.
    """
    return joined(_standing(scope(environment, found, stages), inventory, found))


def _is_lost(clone: Guest, found: Iterable[FoundGuest]) -> bool:
    """Whether what has its number is the clone itself: it is that which answers."""
    return any(
        each.row.vmid == clone.vmid and lost_its_mark(clone, each.live.config) for each in found
    )


def _standing(seen: Scope, inventory: Inventory, found: Sequence[FoundGuest]) -> list[Finding]:
    return [*order_findings(seen), *number_findings(seen, inventory, found)]


def _told(seen: Scope, env: str) -> list[Finding]:
    guests = [*([seen.template] if seen.configuring else []), *seen.missing]
    return [finding for guest in guests for finding in check_cloud_init(guest, env=env)]


def _image(client: Client, seen: Scope, inventory: Inventory) -> Sequence[Finding]:
    return () if seen.image is None else check_image(client, seen.template, inventory)


def _online(guests: Iterable[Guest], inventory: Inventory) -> tuple[str, ...]:
    names = dict.fromkeys(guest.node for guest in guests)
    return tuple(name for name in names if (row := inventory.node(name)) is not None and row.online)


def _others(seen: Scope, found: Iterable[FoundGuest]) -> tuple[FoundGuest, ...]:
    """The guests whose addresses are in use: earlier generations never run."""
    generations = {
        guest.row.vmid
        for guest in seen.marked
        if guest.mark is not None and guest.mark.guest == TEMPLATE
    }
    return tuple(guest for guest in found if guest.row.vmid not in generations)


def _carded(seen: Scope) -> tuple[Guest, ...]:
    """The guests whose network cards a stage sets."""
    return ((seen.template,) if seen.creating else ()) + seen.clones


def _pools(seen: Scope, inventory: Inventory) -> list[Finding]:
    """Pools that are not there, or not for this caller to see: both are refused alike."""
    wanted = [(guest.label, guest.pool) for guest in seen.making if guest.pool]
    if seen.converting and seen.recipe.alias.pool:
        wanted.append((seen.template.label, seen.recipe.alias.pool))
    return [
        error(
            f"there is no pool {pool} that this user may see",
            f"{did_you_mean(pool, inventory.pools)}; make it under Datacenter, Permissions, Pools",
            guest=label,
        )
        for label, pool in dict.fromkeys(wanted)
        if pool not in inventory.pools
    ]
