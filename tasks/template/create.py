"""Stage create: the machine that becomes the template, without its disks, in one call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from blocks.manifest.guest import Firmware, Guest
from blocks.manifest.mark import marked
from blocks.proxmox.errors import AlreadyExists, TaskFailed
from blocks.proxmox.properties import encode_create
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, stage, unchanged
from tasks.template.takeover import take_over


@stage("create", retries=3)
def create(run: RunRef, node: str) -> Outcome:
    """Create the machine, stopped and with this run's mark, unless it is there and ours.

    One that an earlier run left unfinished is this run's from now on. Raises StageError where that
    run is still at work.
    """
    here = session(run)
    guest = here.guest(node)
    live = here.look(guest)
    if live is not None and not here.owns(guest, live.mark):
        # Its creation may have ended since it was read, so it is read again in any case.
        _wait_for_creation(here, guest)
        live = here.look(guest)
    if live is not None:
        here.require_ours(guest, live)
        take_over(here, guest, live)
        return unchanged(f"VM {guest.vmid} exists")
    params: dict[str, Any] = {**encode_create(bare(here, guest))}
    try:
        result = here.client.run("POST", f"/nodes/{guest.node}/qemu", **params)
    except AlreadyExists as error:
        _wait_for_creation(here, guest)
        live = here.look(guest)
        if live is not None and here.owns(guest, live.mark):
            raise AlreadyExists(
                f"VM {guest.vmid} was just made by another run of this template",
                advice="let that run end, then run the same again",
            ) from None
        error.advice = (
            f"if that is this template, moved to another node, declare that node for {guest.name}; "
            "else give it another vm_id"
        )
        raise
    here.held.add(guest.vmid)
    return done(f"VM {guest.vmid} ({guest.name}) on {guest.node}", warnings=result.warnings)


def _wait_for_creation(here: Session, guest: Guest) -> None:
    """Wait for a task that makes a machine of that number, if there is one. One call.

    Until it has ended the machine carries no mark, and may be ours: a connection that broke leaves
    the task of its call running. It may be a stranger's, too, and is never stopped.
    """
    rows: list[dict[str, Any]] = here.client.get(
        f"/nodes/{guest.node}/tasks", vmid=guest.vmid, source="active", typefilter="qmcreate"
    )
    for row in rows:
        # How it ended is seen by what is there.
        with suppress(TaskFailed):
            here.client.wait(str(row["upid"]))


def bare(here: Session, guest: Guest) -> Guest:
    """The marked machine without what the stage configure adds.

    That is disks, firmware volumes, devices of the node and the boot order: what may fail for
    reasons of its own comes once the machine and its mark are safely there.
    """
    firmware = Firmware(bios=guest.firmware.bios, machine=guest.firmware.machine)
    return guest.model_copy(
        update={
            "description": marked(here.mark(guest), guest.description),
            "firmware": firmware,
            "disks": (),
            "drives": {},
            "boot": (),
            "pci": (),
        }
    )
