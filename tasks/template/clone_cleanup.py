"""What is left of a clone that failed: removed where this run made it, and nothing else."""

from __future__ import annotations

from contextlib import suppress

from blocks.manifest.guest import Guest
from blocks.proxmox.client import api_path
from blocks.proxmox.errors import ProxmoxError, TaskTimeout
from blocks.proxmox.waiting import upid_node
from tasks.cloudinit.seed import seed_of, seeds_of
from tasks.destroy import Target, delete_seed, remove
from tasks.errors import StageError
from tasks.found import FoundSeed
from tasks.live import Live
from tasks.session import Session
from tasks.stage import StageCancelled
from tasks.template.clone_source import template_of
from tasks.template.clone_wait import settled

# How long a clone is waited for that is still under way when its stage has given up (seconds).
_SETTLE_SECONDS = 600.0


def clean_up(here: Session, label: str, failure: BaseException | str) -> str:
    """Remove what a failed clone has left: the unfinished guest of this run, and its seed ISOs.

    A guest that another run made, that is finished or that is somebody else's is never touched; its
    mark is checked until the last moment. A clone that this run has given up while it was made is
    stopped. Says what was done; what could not be done is said too, and not raised.
    """
    guest = here.guest(label)
    name = f"VM {guest.vmid} on {guest.node}"
    try:
        _stop(here, failure)
        live = _left(here, guest)
        if live is not None and (reason := _kept(here, guest, live)):
            return f"{name} {reason}, and stays as it is"
        said = [f"{name} was removed" if _removed(here, guest, live) else f"{name} is not there"]
    except StageCancelled:
        return f"{name} is still being cloned, and left to the rollback"
    except ProxmoxError as error:
        # Without a mark a rollback would not find it either: then the advice is to look oneself.
        advice = error.advice if isinstance(error, StageError) else None
        return f"{name} could not be removed ({_line(error)}); {advice or 'roll the run back'}"
    try:
        said += [f"{volid} was removed" for volid in _remove_seeds(here, guest)]
    except ProxmoxError as error:
        said.append(f"its seed ISO could not be removed ({_line(error)}); roll the run back")
    return "; ".join(said)


def _line(error: ProxmoxError) -> str:
    return error.message.partition("\n")[0]


def _stop(here: Session, failure: BaseException | str) -> None:
    """Stop the run's own task that took too long; whether it could be is seen by what is left."""
    cause = getattr(failure, "cause", failure)
    if isinstance(cause, TaskTimeout):
        with suppress(ProxmoxError):
            here.client.delete(api_path("nodes", upid_node(cause.upid), "tasks", cause.upid))


def _left(here: Session, guest: Guest) -> Live | None:
    """The guest, once nobody works on it.

    Until a clone for another node is whole it is on the node of its template.
    """
    source_node = template_of(here, guest).node
    if source_node != guest.node:
        settled(here, guest.model_copy(update={"node": source_node}), seconds=_SETTLE_SECONDS)
    live = settled(here, guest, seconds=_SETTLE_SECONDS)
    here.remember(guest, live)
    return live


def _kept(here: Session, guest: Guest, live: Live) -> str:
    """Why the guest is not to be removed; empty where it is."""
    mark = live.mark
    if mark is None or not here.owns(guest, mark):
        return "is not ours"
    if mark.ready:
        return "was finished"
    return "" if here.made(mark) else f"was made by run {mark.run}"


def _removed(here: Session, guest: Guest, live: Live | None) -> bool:
    if live is None or live.mark is None:
        return False
    target = Target(node=guest.node, kind=guest.kind, vmid=guest.vmid, mark=live.mark)
    remove(here.client, target, force=True)
    here.remember(guest, None)
    return True


def _remove_seeds(here: Session, guest: Guest) -> tuple[str, ...]:
    """Delete the seed ISOs that this run has uploaded for the guest. One call, and one for each."""
    told = guest.cloud_init
    if told is None or told.method != "seed":
        return ()
    gone: list[str] = []
    for row in seeds_of(here, guest, told.storage):
        name = seed_of(row.volid)
        if name is not None and name.run == here.run.run_id:
            delete_seed(here.client, FoundSeed(guest.node, told.storage, row, name))
            gone.append(row.volid)
    return tuple(gone)
