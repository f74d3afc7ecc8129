"""Which stages, in which order, for which guest."""

from __future__ import annotations

from collections.abc import Iterable

from blocks.manifest.guest import Guest
from blocks.manifest.plans import Action
from blocks.proxmox.inventory import Inventory
from tasks.announce import announce
from tasks.attach import attach
from tasks.build import build
from tasks.create import create
from tasks.finalize import finalize
from tasks.fleet import NodeJob, StageCall
from tasks.lanes import Lane
from tasks.media import media
from tasks.reconfigure import update
from tasks.render import render
from tasks.stage import RunRef, Stage
from tasks.start import start
from tasks.survey import TO_BUILD, Survey
from tasks.upload import upload
from tasks.verify import verify
from tasks.wait import wait


def up_jobs(run: RunRef, survey: Survey, cluster: str) -> tuple[NodeJob, ...]:
    """One job for each guest that has something to do. ``cluster`` names it in lane tags.

    Guests that own disks which others share come first, so that nobody waits without need.
    """
    jobs = [
        NodeJob(node=guest.label, run=run, stages=stages)
        for guest in sorted(survey.environment.guests, key=_borrows)
        if (stages := _stages(guest, survey, cluster))
    ]
    return tuple(jobs)


def verify_jobs(
    run: RunRef, guests: Iterable[Guest], stage: Stage[[]] = verify
) -> tuple[NodeJob, ...]:
    """One job a guest: verify."""
    return tuple(
        NodeJob(node=guest.label, run=run, stages=(stage_call(stage),)) for guest in guests
    )


def _stages(guest: Guest, survey: Survey, cluster: str) -> tuple[StageCall, ...]:
    action = survey.plan.guest(guest.label).action
    attaching = stage_call(attach, after=_owners(guest, survey))
    if action in TO_BUILD:
        seed_storage = guest.install.seed_storage if guest.install is not None else None
        seed_lane = upload_lane(guest, seed_storage, survey.inventory, cluster)
        changing = (stage_call(update),) if action is Action.RESUME else ()
        return (
            stage_call(render),
            stage_call(build),
            *_providing(guest, survey.inventory, cluster),
            stage_call(upload, lane=seed_lane),
            stage_call(create),
            *changing,
            attaching,
            stage_call(start),
            stage_call(wait),
            stage_call(finalize),
            *((stage_call(announce),) if survey.environment.hooks.on_vm_ready else ()),
        )
    if action is Action.UPDATE:
        return (stage_call(update), attaching, stage_call(start))
    return (stage_call(start),) if survey.to_start(guest.label) else ()


def stage_call(
    stage: Stage[[]], *, lane: Lane | None = None, after: tuple[tuple[str, str], ...] = ()
) -> StageCall:
    return StageCall(name=stage.name, act=stage.call(), cancel=stage.cancel, lane=lane, after=after)


def _borrows(guest: Guest) -> bool:
    return any(disk.shared_with is not None for disk in guest.disks)


def _owners(guest: Guest, survey: Survey) -> tuple[tuple[str, str], ...]:
    """The create stages of this run that must come before the guest attaches shared disks."""
    vmids = {disk.shared_with.vmid for disk in guest.disks if disk.shared_with is not None}
    return tuple(
        (owner.label, "create")
        for owner in survey.environment.guests
        if owner.vmid in vmids and survey.plan.guest(owner.label).action in TO_BUILD
    )


def _providing(guest: Guest, inventory: Inventory, cluster: str) -> tuple[StageCall, ...]:
    """The stage that provides the install ISO, where the manifest says how to get it."""
    if guest.install is None or guest.install.origin is None:
        return ()
    storage = guest.install.iso.partition(":")[0]
    return (stage_call(media, lane=upload_lane(guest, storage, inventory, cluster)),)


def upload_lane(
    guest: Guest, storage: str | None, inventory: Inventory, cluster: str
) -> Lane | None:
    """Uploads to one storage go one after the other; a node's own storage is one of its own."""
    if storage is None:
        return None
    row = inventory.storage(guest.node, storage)
    shared = row is not None and row.shared
    return Lane(
        purpose="upload",
        cluster=cluster,
        storage=storage,
        node=None if shared else guest.node,
    )
