"""Documents as snippets: files on the node that ``cicustom`` names.

The server accepts a snippet that is missing, and the guest then does not start
(06-cloud-image-template, steps 21 to 24): so each is looked for after it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from blocks.manifest.guest import CloudInit, Guest
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import PermissionDenied
from blocks.proxmox.inventory import Inventory, storage_content
from blocks.proxmox.properties import PropertyError, parse, storage_of
from tasks.cloudinit.documents import Documents
from tasks.cloudinit.remote import write_files
from tasks.errors import StageError
from tasks.iso import checks
from tasks.session import Session

_PARTS = {
    "user": "user-data",
    "vendor": "vendor-data",
    "network": "network-config",
    "meta": "meta-data",
}
_NAME = re.compile(
    r"proxflow_(?P<env>[A-Za-z0-9.-]+)_(?P<guest>[A-Za-z0-9.-]+)_(?P<digest>[0-9a-f]{12})"
    r"_(?P<run>[A-Za-z0-9]{1,8})_(?P<part>user|vendor|network|meta)\.yaml"
)


@dataclass(frozen=True)
class SnippetName:
    """What the file name of a snippet says; ``digest`` and ``run`` are shortened."""

    env: str
    guest: str
    digest: str
    run: str
    part: str


@dataclass(frozen=True)
class Written:
    """The snippets of a guest, part to volume id, and its older ones on the same storage."""

    volumes: dict[str, str]
    older: tuple[str, ...] = ()


def snippet_of(volid: str) -> SnippetName | None:
    """What the name of a snippet says, None where it is none of ours."""
    found = _NAME.fullmatch(volid.rpartition("/")[2])
    return SnippetName(**found.groupdict()) if found else None


def snippet_name(env: str, label: str, told: Documents, run: str, part: str) -> str:
    """The file name of a snippet: whose it is, the hash of the documents, and who wrote it."""
    whose = f"{checks.name('env', env)}_{checks.name('label', label)}"
    return f"proxflow_{whose}_{told.digest[:12]}_{run[:8]}_{part}.yaml"


def snippet_storage(guest: Guest, told: CloudInit) -> str:
    """The storage that keeps the snippets. Raises StageError where none is declared."""
    if told.snippet_storage is None:
        raise StageError(
            f"cloud_init.snippets.storage of {guest.label} is not set",
            advice="name a storage with content snippets, or set cloud_init.method to seed",
        )
    return told.snippet_storage


def are_current(cicustom: str, env: str, guest: Guest, cloud: CloudInit, told: Documents) -> bool:
    """Whether a ``cicustom`` option names snippets with these documents, whoever wrote them."""
    storage = snippet_storage(guest, cloud)
    try:
        volumes = {part: str(volid) for part, volid in parse("cicustom", cicustom).items()}
    except PropertyError:
        return False
    names = {part: snippet_of(volid) for part, volid in volumes.items()}
    wanted = {part: (env, guest.label, told.digest[:12], part) for part in _PARTS}
    found = {
        part: (name.env, name.guest, name.digest, name.part) for part, name in names.items() if name
    }
    return found == wanted and all(storage_of(volid) == storage for volid in volumes.values())


def place_snippets(here: Session, guest: Guest, cloud: CloudInit, told: Documents) -> Written:
    """See to it that the guest's snippets are on their storage. One call where they are there.

    A snippet of the same documents serves, whichever run has written it. Raises StageError where
    they cannot be written or the storage does not show them.
    """
    storage = snippet_storage(guest, cloud)
    mine = _mine(here, guest, storage)
    texts = {part: told.files[file] for part, file in _PARTS.items()}
    volumes = {
        part: volid
        for volid, (name, size) in mine.items()
        if (part := name.part) in texts
        and name.digest == told.digest[:12]
        and size == len(texts[part].encode())
    }
    if missing := {part: text for part, text in texts.items() if part not in volumes}:
        volumes |= _write(here, guest, cloud, told, missing)
    older = tuple(volid for volid in mine if volid not in volumes.values())
    return Written(volumes, older)


def _write(
    here: Session, guest: Guest, cloud: CloudInit, told: Documents, texts: dict[str, str]
) -> dict[str, str]:
    """Write these parts and look for them. Returns their volume ids."""
    storage = snippet_storage(guest, cloud)
    env, run = here.environment.name, here.run.run_id
    names = {part: snippet_name(env, guest.label, told, run, part) for part in texts}
    folder = snippet_folder(here.client, guest.node, cloud, storage)
    write_files(
        cloud.snippet_host, guest.node, folder, {names[part]: text for part, text in texts.items()}
    )
    volumes = {part: f"{storage}:snippets/{name}" for part, name in names.items()}
    after = _mine(here, guest, storage)
    lost = [
        volid
        for part, volid in volumes.items()
        if volid not in after or after[volid][1] != len(texts[part].encode())
    ]
    if lost:
        host = cloud.snippet_host.host or guest.node
        raise StageError(
            f"{', '.join(lost)} was written to {folder} of {host}, but {storage} as "
            f"{guest.node} has it does not show it",
            advice="is that the storage's folder, and that host the node (or is the storage "
            "shared)? Set cloud_init.snippets.directory and .host",
        )
    return volumes


def _mine(here: Session, guest: Guest, storage: str) -> dict[str, tuple[SnippetName, int]]:
    """The guest's snippets on a storage: volume id to name and size. One call."""
    rows = storage_content(here.client, guest.node, storage, "snippets")
    wanted = (here.environment.name, guest.label)
    return {
        row.volid: (name, row.size)
        for row in rows
        if (name := snippet_of(row.volid)) and (name.env, name.guest) == wanted
    }


@dataclass(frozen=True)
class FoundSnippet:
    """A snippet on a storage, and whose it is."""

    node: str
    volid: str
    name: SnippetName


def all_snippets(
    client: Client, inventory: Inventory, env: str, run_id: str | None = None
) -> tuple[FoundSnippet, ...]:
    """The environment's snippets on every storage that takes them; one call a storage."""
    places: dict[tuple[str, str], str] = {}
    online = inventory.online()
    for row in inventory.storages:
        if "snippets" in row.content and row.active and row.node in online:
            places.setdefault((row.storage, "" if row.shared else row.node), row.node)
    return tuple(
        FoundSnippet(node, volume.volid, name)
        for (storage, _), node in places.items()
        for volume in storage_content(client, node, storage, "snippets")
        if (name := snippet_of(volume.volid))
        and name.env == env
        and (run_id is None or name.run == run_id)
    )


def delete_snippet(client: Client, found: FoundSnippet) -> None:
    """Delete a snippet; gone already is fine. It takes Datastore.Allocate. Raises ProxmoxError."""
    storage = storage_of(found.volid)
    path = api_path("nodes", found.node, "storage", storage, "content", found.volid)
    client.run("DELETE", path)


def snippet_folder(client: Client, node: str, cloud: CloudInit, storage: str) -> str:
    """The folder of the storage's snippets on the node. One or two calls.

    Raises StageError where the storage takes none, or does not say where; ProxmoxError.
    """
    status = client.get(api_path("nodes", node, "storage", storage, "status"))
    contents = re.split(r"[,\s]+", str(status.get("content", "")))
    if "snippets" not in contents:
        raise StageError(
            f"storage {storage} takes no snippets on {node}",
            advice=f"add content snippets to {storage} (Datacenter, Storage), name another one in "
            "cloud_init.snippets.storage, or set cloud_init.method to seed",
        )
    if cloud.snippet_host.directory is not None:
        return cloud.snippet_host.directory.rstrip("/") or "/"
    try:
        config: dict[str, Any] = client.get(api_path("storage", storage))
    except PermissionDenied:
        config = {}
    if not config.get("path"):
        raise StageError(
            f"where storage {storage} keeps its files on {node} cannot be read",
            advice="that takes Datastore.Allocate on it; or say it in "
            "cloud_init.snippets.directory",
        )
    moved = dict(
        part.partition("=")[::2] for part in str(config.get("content-dirs", "")).split(",")
    )
    return f"{str(config['path']).rstrip('/')}/{moved.get('snippets', 'snippets').strip('/')}"
