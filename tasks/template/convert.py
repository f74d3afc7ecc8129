"""Stage template: the configured machine becomes a template."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.mark import marked, unmarked
from blocks.proxmox.errors import ProxmoxError
from tasks.destroy import Target, power_off
from tasks.errors import StageError
from tasks.live import Live, config_path, unless_changed
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, stage, unchanged
from tasks.template.disks import root_disk, volume_in
from tasks.template.following import wait_for_earlier
from tasks.template.takeover import take_over

_FIRMWARE_DISKS = ("efidisk0", "tpmstate0")
_JOB = "converting to a template"


@stage("template", retries=3)
def convert(run: RunRef, node: str) -> Outcome:
    """Turn the machine off, convert it, see that it is a template, and say so in its mark.

    Raises StageError for a machine without its disk or with snapshots.
    """
    here = session(run)
    guest = here.guest(node)
    live = take_over(here, guest, here.require(guest))
    detail = f"VM {guest.vmid} ({guest.name}) is a template"
    if is_template(live) and live.ready:
        return unchanged(detail)
    refuse_turned_back(guest, live)
    if not is_template(live):
        to_template(here, guest, live)
        live = here.require(guest)
    if unconverted(guest, live):
        # The server sets the flag first and renames the volumes then.
        wait_for_earlier(here.client, guest, "qmtemplate", _JOB)
        live = here.require(guest)
    refuse_unconverted(guest, live)
    set_ready(here, guest, live)
    return done(detail)


def is_template(live: Live) -> bool:
    """Whether the guest is a template already."""
    return bool(int(live.config.get("template", 0)))


def refuse_turned_back(guest: Guest, live: Live) -> None:
    """Refuse what was a finished template and is none any more. Raises StageError."""
    if live.ready and not is_template(live):
        raise StageError(
            f"VM {guest.vmid} was a finished template, and somebody has turned it back into a VM",
            advice=f"make it a template again (`qm set {guest.vmid} --template 1` on the node), or "
            "remove it and build it again",
        )


def to_template(here: Session, guest: Guest, live: Live) -> None:
    """Power off and convert. Raises StageError or ProxmoxError."""
    if wait_for_earlier(here.client, guest, "qmtemplate", _JOB):
        live = here.require(guest)
        if is_template(live):
            return
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
    power_off(here.client, target, force=False)
    try:
        here.client.run("POST", f"{target.path}/template")
    except ProxmoxError as error:
        # Another run of this template may have converted it just before.
        if error.transient or not is_template(here.require(guest)):
            raise


def snapshots(here: Session, guest: Guest) -> tuple[str, ...]:
    """Names of the guest's snapshots. One call.

    The list ends with an entry that stands for the present (08-snapshots).
    """
    rows: list[dict[str, Any]] = here.client.get(
        f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/snapshot"
    )
    return tuple(sorted(str(row["name"]) for row in rows if row["name"] != "current"))


def unconverted(guest: Guest, live: Live) -> tuple[str, ...]:
    """Slots whose volume is no base volume (06b-template-conversion).

    A cloud-init drive, and what is no disk, keep their names.
    """
    slots = [disk.slot for disk in guest.disks if not disk.shared_with]
    found = {slot: volume_in(live.config, slot) for slot in (*slots, *_FIRMWARE_DISKS)}
    return tuple(slot for slot, volume in found.items() if volume and not is_base(guest, volume))


def is_base(guest: Guest, volume: str) -> bool:
    """Whether a volume is a base volume of the guest, by its name."""
    return f"base-{guest.vmid}-" in volume


def refuse_unconverted(guest: Guest, live: Live) -> None:
    """Raise StageError unless the guest is a template whose disks are base volumes."""
    if not is_template(live):
        raise StageError(
            f"VM {guest.vmid} is no template, although the task that converts it ended well",
            advice="look at the node's task log, then run the same again",
        )
    if slots := unconverted(guest, live):
        raise StageError(
            f"VM {guest.vmid} is a template, but not all of its disks are base volumes: "
            f"{', '.join(slots)}",
            advice=f"remove VM {guest.vmid} and build it again",
        )


def set_ready(here: Session, guest: Guest, live: Live) -> None:
    """Say in the mark that the template is finished. Raises ProxmoxError."""
    mark = (live.mark or here.mark(guest)).model_copy(update={"ready": True})
    description = marked(mark, unmarked(live.description))
    here.client.put(config_path(guest), description=description, **unless_changed(live.config))
