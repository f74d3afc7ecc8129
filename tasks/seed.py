"""Where a guest's seed ISO is: here, and on the cluster's storage.

Its name carries environment, guest, content hash and the run that uploaded it. A seed of the same
content serves any run; rollback removes only those that its run uploaded.
"""

from __future__ import annotations

from pathlib import Path

from blocks.manifest.guest import Guest, IsoSource
from blocks.proxmox.inventory import VolumeRow, storage_content
from tasks.iso.build import SeedName, parse_seed_name, seed_name
from tasks.session import Session


def source_of(guest: Guest) -> IsoSource:
    """The guest's install source. Raises ValueError for one that is not installed from an ISO."""
    if guest.install is None:
        raise ValueError(f"{guest.label} is not installed from an ISO")
    return guest.install


def local_seed(session: Session, guest: Guest) -> Path:
    """Where this run builds the guest's seed ISO."""
    name = seed_name(
        session.environment.name, guest.label, session.rendered(guest).digest, session.run.run_id
    )
    return session.folder() / name


def parsed(volume: VolumeRow) -> SeedName | None:
    """What the name of an ISO volume says, None where it is no seed of ours."""
    return parse_seed_name(volume.volid.rpartition("/")[2])


def seeds_of(session: Session, guest: Guest) -> tuple[VolumeRow, ...]:
    """Every seed ISO of the guest on its seed storage, of any run and content. One call."""
    source = source_of(guest)
    rows = storage_content(session.client, guest.node, source.seed_storage, "iso")
    wanted = (session.environment.name, guest.label)
    return tuple(row for row in rows if (name := parsed(row)) and (name.env, name.guest) == wanted)


def current_seed(session: Session, guest: Guest) -> VolumeRow | None:
    """The seed ISO on the storage whose content is what the manifest says now. One call.

    A seed whose name fits but whose size does not is a torn upload and is not taken.
    """
    digest = session.rendered(guest).digest[:12]
    expected = local_seed(session, guest)
    size = expected.stat().st_size if expected.exists() else None
    for row in seeds_of(session, guest):
        name = parsed(row)
        if name and name.digest == digest and (size is None or row.size == size):
            return row
    return None
