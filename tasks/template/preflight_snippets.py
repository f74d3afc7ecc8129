"""Preflight of templates: can the snippets be written, over SSH, where the storage keeps them?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from blocks.manifest.guest import CloudInit, Guest, SnippetHost
from blocks.proxmox.client import Client
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.inventory import Inventory
from tasks.cloudinit.remote import try_folder
from tasks.cloudinit.snippets import snippet_folder
from tasks.findings import Finding, error
from tasks.template.preflight_scope import Scope


@dataclass(frozen=True)
class SnippetPlace:
    """A storage that snippets are written to; ``labels``: of the guests that are told by them.

    ``node`` and ``cloud``: of one of these, which all say the same of how the host is reached.
    """

    node: str
    storage: str
    cloud: CloudInit
    labels: tuple[str, ...]


def snippet_places(scope: Scope, inventory: Inventory) -> tuple[SnippetPlace, ...]:
    """Where the snippets of the guests that are to be made go. No call.

    Nodes that are offline and storages that take no snippets have findings of their own.
    """
    making = ((scope.template,) if scope.configuring else ()) + scope.missing
    users: dict[tuple[str, str, SnippetHost], list[Guest]] = defaultdict(list)
    for guest in making:
        told = guest.cloud_init
        if told is None or told.method != "snippets" or told.snippet_storage is None:
            continue
        node = inventory.node(guest.node)
        row = inventory.storage(guest.node, told.snippet_storage)
        if node is None or not node.online or row is None:
            continue
        if row.active and "snippets" in row.content:
            # The folder of a storage is the same on every node that has it.
            target = told.snippet_host.host or guest.node
            users[target, told.snippet_storage, told.snippet_host].append(guest)
    return tuple(
        SnippetPlace(guests[0].node, storage, cloud, tuple(guest.label for guest in guests))
        for (_, storage, _), guests in users.items()
        if (cloud := guests[0].cloud_init) is not None
    )


def snippet_findings(client: Client, place: SnippetPlace) -> list[Finding]:
    """Whether snippets could be written there; one login, and up to two calls.

    The finding has the words of SSH, or of the server, and what to do about them.
    """
    try:
        folder = snippet_folder(client, place.node, place.cloud, place.storage)
        try_folder(place.cloud.snippet_host, place.node, folder)
    except ProxmoxError as refused:
        problem, advice = refused.message, refused.advice or ""
        if len(place.labels) == 1:
            return [error(problem, advice, guest=place.labels[0])]
        return [error(f"{problem} (for the snippets of {', '.join(place.labels)})", advice)]
    return []
