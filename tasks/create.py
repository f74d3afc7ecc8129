"""Stage create: the virtual machine, with its mark, in one call."""

from __future__ import annotations

from blocks.manifest.guest import Guest
from blocks.manifest.mark import marked
from blocks.proxmox.properties import encode_create
from tasks.drives import install_boot
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, stage


@stage("create", retries=3)
def create(run: RunRef, node: str) -> Outcome:
    """Create the guest, stopped and with empty drives, unless it is there and ours."""
    here = session(run)
    guest = here.guest(node)
    live = here.look(guest)
    if live is not None:
        here.require_ours(guest, live)
        return Outcome(status="unchanged", detail=f"VM {guest.vmid} exists")
    return create_guest(here, guest)


def create_guest(here: Session, guest: Guest) -> Outcome:
    """Create the guest. Raises ProxmoxError; a failed create leaves nothing on the cluster."""
    asked = guest.model_copy(
        update={
            "description": marked(here.mark(guest, ready=guest.install is None), guest.description),
            "boot": install_boot(guest),
        }
    )
    upid = here.client.post(f"/nodes/{guest.node}/qemu", **encode_create(asked))
    result = here.client.wait(upid)
    detail = f"VM {guest.vmid} on {guest.node}"
    return Outcome(status="done", detail=detail, warnings=result.warnings)
