"""The seed ISO of a guest: built here, uploaded once, told apart by the hash in its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from blocks.manifest.guest import Guest
from blocks.proxmox import upload as wire
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.inventory import VolumeRow, storage_content
from tasks.cloudinit.documents import Documents
from tasks.iso.build import Built, SeedName, build_seed, parse_seed_name, seed_name
from tasks.runfolder import no_room
from tasks.session import Session

LABEL: Final = "cidata"
"""The volume label by which cloud-init finds its documents."""


@dataclass(frozen=True)
class _Cidata:
    files: Mapping[str, str] = field(repr=False)
    label: str = LABEL


@dataclass(frozen=True)
class Placed:
    """A seed ISO on its storage, and the older ones of the guest that lie beside it."""

    volid: str
    older: tuple[str, ...] = ()


def build(told: Documents, target: Path) -> Built:
    """Write the documents as an ISO labelled ``cidata``, readable by the owner alone."""
    return build_seed(_Cidata(told.files), target)


def place_seed(here: Session, guest: Guest, storage: str, told: Documents) -> Placed:
    """See to it that the guest's seed ISO is on the storage. One call where it is there.

    A seed of that hash whose size differs is a torn upload, and is sent again. Raises StageError
    where it cannot be built, ProxmoxError where it cannot be sent.
    """
    name = seed_name(here.environment.name, guest.label, told.digest, here.run.run_id)
    try:
        built = build(told, here.folder() / name)
    except OSError as error:
        raise no_room(error) from None
    rows = seeds_of(here, guest, storage)
    same = [row for row in rows if is_current(row.volid, told)]
    whole = next((row.volid for row in same if row.size == built.size), None)
    older = tuple(row.volid for row in rows if row not in same)
    if whole is not None:
        return Placed(whole, older)
    try:
        volid = wire.upload(here.client, guest.node, storage, built.path)
    except ProxmoxError as error:
        if error.advice is None:
            error.advice = (
                f"cloud_init.storage of {guest.label} is to be a storage of {guest.node} with "
                "content iso and room for it"
            )
        raise
    return Placed(volid, older)


def seeds_of(here: Session, guest: Guest, storage: str) -> tuple[VolumeRow, ...]:
    """The guest's seed ISOs on a storage, of any run and content. One call."""
    wanted = (here.environment.name, guest.label)
    return tuple(
        row
        for row in storage_content(here.client, guest.node, storage, "iso")
        if (name := seed_of(row.volid)) and (name.env, name.guest) == wanted
    )


def seed_of(volid: str) -> SeedName | None:
    """What the name of an ISO volume says, None where it is no seed of ours."""
    return parse_seed_name(volid.rpartition("/")[2])


def is_current(volid: str, told: Documents) -> bool:
    """Whether a seed ISO has, by its name, these documents in it."""
    name = seed_of(volid)
    return name is not None and name.digest == told.digest[:12]
