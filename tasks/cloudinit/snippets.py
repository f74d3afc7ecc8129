"""Documents as snippets: files on the node that ``cicustom`` names.

The server accepts a snippet that is missing, and the guest then does not start
(06-cloud-image-template, steps 21 to 24): so each is looked for after it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from blocks.manifest.guest import CloudInit, Guest
from blocks.proxmox.client import api_path
from blocks.proxmox.errors import PermissionDenied
from blocks.proxmox.inventory import storage_content
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
    r"_(?P<part>user|vendor|network|meta)\.yaml"
)


@dataclass(frozen=True)
class SnippetName:
    """What the file name of a snippet says; ``digest`` is shortened."""

    env: str
    guest: str
    digest: str
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


def snippet_names(env: str, label: str, told: Documents) -> dict[str, str]:
    """Part to file name. The hash is in it, so that an unchanged file is never written again."""
    stem = f"proxflow_{checks.name('env', env)}_{checks.name('label', label)}_{told.digest[:12]}"
    return {part: f"{stem}_{part}.yaml" for part in _PARTS}


def snippet_storage(guest: Guest, told: CloudInit) -> str:
    """The storage that keeps the snippets. Raises StageError where none is declared."""
    if told.snippet_storage is None:
        raise StageError(
            f"cloud_init.snippet_storage of {guest.label} is not set",
            advice="name a storage with content snippets, or set cloud_init.method to seed",
        )
    return told.snippet_storage


def snippet_volumes(env: str, guest: Guest, cloud: CloudInit, told: Documents) -> dict[str, str]:
    """Part to volume id, as ``cicustom`` names them."""
    storage = snippet_storage(guest, cloud)
    names = snippet_names(env, guest.label, told)
    return {part: f"{storage}:snippets/{name}" for part, name in names.items()}


def place_snippets(here: Session, guest: Guest, cloud: CloudInit, told: Documents) -> Written:
    """See to it that the guest's snippets are on their storage. One call where they are there.

    Raises StageError where they cannot be written or the storage does not show them.
    """
    storage = snippet_storage(guest, cloud)
    env = here.environment.name
    wanted = snippet_volumes(env, guest, cloud, told)
    texts = {wanted[part]: told.files[file] for part, file in _PARTS.items()}
    sizes = _sizes(here, guest, storage)
    missing = {volid: text for volid, text in texts.items() if not _there(sizes, volid, text)}
    if missing:
        folder = _folder(here, guest, cloud, storage)
        files = {volid.rpartition("/")[2]: text for volid, text in missing.items()}
        write_files(cloud.snippet_host, guest.node, folder, files)
        after = _sizes(here, guest, storage)
        lost = [volid for volid, text in missing.items() if not _there(after, volid, text)]
        if lost:
            host = cloud.snippet_host.host or guest.node
            raise StageError(
                f"{', '.join(lost)} was written to {folder} of {host}, but {storage} as "
                f"{guest.node} has it does not show it",
                advice="is that the storage's folder, and that host the node (or is the storage "
                "shared)? Set cloud_init.snippet_host.directory and .host",
            )
    older = (volid for volid in sizes if volid not in wanted.values())
    mine = tuple(
        volid
        for volid in older
        if (name := snippet_of(volid)) and (name.env, name.guest) == (env, guest.label)
    )
    return Written(wanted, mine)


def _sizes(here: Session, guest: Guest, storage: str) -> dict[str, int]:
    rows = storage_content(here.client, guest.node, storage, "snippets")
    return {row.volid: row.size for row in rows}


def _there(sizes: dict[str, int], volid: str, text: str) -> bool:
    return sizes.get(volid) == len(text.encode())


def _folder(here: Session, guest: Guest, cloud: CloudInit, storage: str) -> str:
    """The folder of the storage's snippets on the node. One or two calls."""
    status = here.client.get(api_path("nodes", guest.node, "storage", storage, "status"))
    contents = re.split(r"[,\s]+", str(status.get("content", "")))
    if "snippets" not in contents:
        raise StageError(
            f"storage {storage} takes no snippets on {guest.node}",
            advice=f"add content snippets to {storage} (Datacenter, Storage), name another one in "
            "cloud_init.snippet_storage, or set cloud_init.method to seed",
        )
    if cloud.snippet_host.directory is not None:
        return f"{cloud.snippet_host.directory.rstrip('/')}/snippets"
    try:
        config: dict[str, Any] = here.client.get(api_path("storage", storage))
    except PermissionDenied:
        config = {}
    if not config.get("path"):
        raise StageError(
            f"where storage {storage} keeps its files on {guest.node} cannot be read",
            advice="that takes Datastore.Allocate on it; or say it in "
            "cloud_init.snippet_host.directory",
        )
    moved = dict(
        part.partition("=")[::2] for part in str(config.get("content-dirs", "")).split(",")
    )
    return f"{str(config['path']).rstrip('/')}/{moved.get('snippets', 'snippets').strip('/')}"
