"""Stage upload: the seed ISO, onto the storage that the guest's node reads it from."""

from __future__ import annotations

from blocks.manifest.guest import Guest
from blocks.proxmox import upload as wire
from blocks.units import human_size
from tasks.errors import StageError
from tasks.seed import current_seed, local_seed, parsed, seeds_of, source_of
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, stage


@stage("upload", retries=3)
def upload(run: RunRef, node: str) -> Outcome:
    """Upload the seed ISO unless one of the same content is there."""
    here = session(run)
    guest = here.guest(node)
    if guest.install is None:
        return Outcome(status="skipped", detail="nothing to install")
    live = here.live(guest)
    if live is not None and live.ready:
        return Outcome(status="skipped", detail="installed already")
    return upload_seed(here, guest)


def upload_seed(here: Session, guest: Guest) -> Outcome:
    """Put the guest's seed on its storage. Raises StageError where none was built or is there."""
    source = source_of(guest)
    present = current_seed(here, guest)
    if present is not None:
        return Outcome(status="unchanged", detail=present.volid)
    path = local_seed(here, guest)
    if not path.exists():
        others = [row.volid for row in seeds_of(here, guest)]
        found = f"; there are others: {', '.join(others)}" if others else ""
        raise StageError(
            f"storage {source.seed_storage} has no seed ISO for what the manifest says now{found}",
            advice="run `up` without --skip-kickstart-build, so that it is built and uploaded",
        )
    volid = wire.upload(here.client, guest.node, source.seed_storage, path)
    return Outcome(status="done", detail=f"{volid}, {human_size(path.stat().st_size)}")


def delete_seeds(here: Session, guest: Guest, run_id: str | None = None) -> list[str]:
    """Delete the guest's seed ISOs, those of one run or all. Returns the volume ids."""
    source = source_of(guest)
    gone: list[str] = []
    for row in seeds_of(here, guest):
        name = parsed(row)
        if run_id is not None and (name is None or name.run != run_id):
            continue
        here.client.run(
            "DELETE", f"/nodes/{guest.node}/storage/{source.seed_storage}/content/{row.volid}"
        )
        gone.append(row.volid)
    return gone
