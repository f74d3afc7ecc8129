"""Stage image: the disk image of a template, onto the storage that the node imports it from.

An image on a storage is named by its checksum and belongs to no environment: templates share it,
and neither a rollback nor `down` deletes it.
"""

from __future__ import annotations

from blocks.manifest.guest import Digest, Guest, ImageSource
from tasks.errors import StageError
from tasks.image.memory import known
from tasks.image.origin import digest_of
from tasks.image.provide import Job, find_image, virtual_size
from tasks.progress import Meter
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, skipped, stage, unchanged


@stage("image", retries=3)
def image(run: RunRef, node: str) -> Outcome:
    """Put the disk image onto its storage unless it is there, whole and the right one."""
    here = session(run)
    guest = here.guest(node)
    if guest.image is None:
        return skipped("not made from a disk image")
    return provide(here, guest)


def provide(here: Session, guest: Guest) -> Outcome:
    """Provide the guest's disk image. Raises OriginError, StageError or ProxmoxError."""
    source, meter = source_of(guest), Meter()
    memory = known(here.client, source)
    volid = memory.volids.get(guest.node)
    if volid is not None:
        return unchanged(volid)
    job = Job(here.client, guest.node, source, image_digest(here, guest), meter)
    provided = job.provide()
    memory.volids[guest.node] = provided.volid
    return provided.outcome


def source_of(guest: Guest) -> ImageSource:
    """The guest's image. Raises ValueError for one that is not made from one."""
    if guest.image is None:
        raise ValueError(f"{guest.label} is not made from a disk image")
    return guest.image


def image_digest(here: Session, guest: Guest) -> Digest:
    """The checksum of the image as published: given, or looked up once. Raises StageError."""
    source = source_of(guest)
    memory = known(here.client, source)
    with memory.lock:
        if memory.digest is None:
            memory.digest = digest_of(source, Meter())
        return memory.digest


def image_volume(here: Session, guest: Guest) -> str:
    """Volume id of the guest's image on its storage; one call where this run has not seen it.

    Raises StageError where it is not there.
    """
    source = source_of(guest)
    memory = known(here.client, source)
    volid = memory.volids.get(guest.node)
    if volid is None:
        row = find_image(here.client, guest.node, source, image_digest(here, guest))
        if row is None:
            raise StageError(
                f"storage {source.storage} on {guest.node} does not have the image {source.name} "
                f"({image_digest(here, guest)})",
                advice="let the stage `image` run too",
            )
        volid = memory.volids[guest.node] = row.volid
    return volid


def image_size(here: Session, guest: Guest) -> int:
    """Bytes of the disk in the guest's image, once it is on the storage; asked once a run.

    Raises StageError where it is not there.
    """
    memory = known(here.client, source_of(guest))
    if memory.size is None:
        memory.size = virtual_size(here.client, guest.node, image_volume(here, guest))
    return memory.size
