"""Stage template: the configured machine becomes a template."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.mark import marked, unmarked
from tasks.destroy import Target, power_off
from tasks.errors import StageError
from tasks.live import Live, config_path, unless_changed
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, stage, unchanged
from tasks.template.disks import root_disk

_FIRMWARE_DISKS = ("efidisk0", "tpmstate0")


@stage("template", retries=3)
def convert(run: RunRef, node: str) -> Outcome:
    """Turn the machine off, convert it, see that it is a template, and say so in its mark.

    Raises StageError for a machine without its disk or with snapshots.
    """
    here = session(run)
    guest = here.guest(node)
    live = here.require(guest)
    detail = f"VM {guest.vmid} ({guest.name}) is a template"
    work: list[str] = []
    if not is_template(live):
        stopped = to_template(here, guest, live)
        work.append("stopped and converted" if stopped else "converted")
        live = here.require(guest)
        refuse_unconverted(guest, live)
    if not live.ready:
        set_ready(here, guest, live)
        work.append("marked as ready")
    return done(f"{detail}: {', '.join(work)}") if work else unchanged(detail)


def is_template(live: Live) -> bool:
    """Whether the guest is a template already."""
    return bool(int(live.config.get("template", 0)))


def to_template(here: Session, guest: Guest, live: Live) -> bool:
    """Power off and convert; whether it ran. Raises StageError or ProxmoxError."""
    disk = root_disk(guest)
    if disk is not None and disk.slot not in live.config:
        raise StageError(
            f"VM {guest.vmid} has no disk {disk.slot} yet",
            advice="let the stage configure run first",
        )
    if names := snapshots(here, guest):
        raise StageError(
            f"VM {guest.vmid} has {'snapshots' if len(names) > 1 else 'a snapshot'}: "
            f"{', '.join(names)}; Proxmox VE makes no template of such a machine",
            advice="delete what is not needed any more, then run the same again",
        )
    mark = live.mark or here.mark(guest)
    target = Target(node=guest.node, kind=guest.kind, vmid=guest.vmid, mark=mark)
    ran = power_off(here.client, target, force=False)
    here.client.run("POST", f"{target.path}/template")
    return ran


def snapshots(here: Session, guest: Guest) -> tuple[str, ...]:
    """Names of the guest's snapshots. One call.

    The list ends with an entry that stands for the present (08-snapshots).
    """
    rows: list[dict[str, Any]] = here.client.get(
        f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/snapshot"
    )
    return tuple(sorted(str(row["name"]) for row in rows if row["name"] != "current"))


def refuse_unconverted(guest: Guest, live: Live) -> None:
    """Raise StageError unless the guest is a template with base volumes (06b-template-conversion).

    A cloud-init drive and what is no disk keep their names.
    """
    if not is_template(live):
        raise StageError(
            f"VM {guest.vmid} is no template, although the task that converts it ended well",
            advice="look at the node's task log, then run the same again",
        )
    slots = [disk.slot for disk in guest.disks if not disk.shared_with]
    for slot in (*slots, *_FIRMWARE_DISKS):
        volume = str(live.config.get(slot, "")).partition(",")[0]
        if volume and f"base-{guest.vmid}-" not in volume:
            raise StageError(
                f"VM {guest.vmid} is a template, but {slot} is no base volume: {volume}",
                advice=f"remove VM {guest.vmid} and build it again",
            )


def set_ready(here: Session, guest: Guest, live: Live) -> None:
    """Say in the mark that the template is finished. Raises ProxmoxError."""
    mark = (live.mark or here.mark(guest)).model_copy(update={"ready": True})
    description = marked(mark, unmarked(live.description))
    here.client.put(config_path(guest), description=description, **unless_changed(live.config))
