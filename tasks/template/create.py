"""Stage create: the machine that becomes the template, without its disks, in one call."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Firmware, Guest
from blocks.manifest.mark import marked
from blocks.proxmox.errors import AlreadyExists
from blocks.proxmox.properties import encode_create
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, stage, unchanged


@stage("create", retries=3)
def create(run: RunRef, node: str) -> Outcome:
    """Create the machine, stopped and with this run's mark, unless it is there and ours."""
    here = session(run)
    guest = here.guest(node)
    live = here.look(guest)
    if live is not None:
        here.require_ours(guest, live)
        return unchanged(f"VM {guest.vmid} exists")
    params: dict[str, Any] = {**encode_create(bare(here, guest))}
    try:
        result = here.client.run("POST", f"/nodes/{guest.node}/qemu", **params)
    except AlreadyExists as error:
        error.advice = (
            f"if that is this template, moved to another node, declare that node for {guest.name}; "
            "else give it another vm_id"
        )
        raise
    return done(f"VM {guest.vmid} ({guest.name}) on {guest.node}", warnings=result.warnings)


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
