"""Stage finalize: an installed guest keeps no media and boots from its disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.mark import marked
from blocks.proxmox.properties import encode_boot, encode_drive
from tasks.drives import EMPTY, drive_volume
from tasks.errors import StageError
from tasks.live import Live, config_path, unless_changed
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, stage


@stage("finalize", retries=3)
def finalize(run: RunRef, node: str) -> Outcome:
    """Empty the drives and check them; then set the boot order and mark the guest as installed.

    Two calls, see ``drives.in_turn``.
    """
    here = session(run)
    guest = here.guest(node)
    if here.skip_finalize:
        return Outcome(status="skipped", detail="as asked; the media stay in the drives")
    live = here.require(guest)
    wanted = leftovers(guest, live)
    if not wanted:
        return Outcome(status="unchanged", detail="no media, boots from disk")
    # The mark says that all is done, so it comes with the last call.
    drives = {key: value for key, value in wanted.items() if key in guest.drives}
    rest = {key: value for key, value in wanted.items() if key not in drives}
    seen: Mapping[str, Any] = live.config
    if drives:
        here.client.run("PUT", config_path(guest), **drives, **unless_changed(seen))
        seen = check_drives(here, guest)
        rest["boot"] = encode_boot(guest.boot)
    if rest:
        here.client.run("PUT", config_path(guest), **rest, **unless_changed(seen))
    return Outcome(status="done", detail="media out, boots from " + ", ".join(guest.boot))


def leftovers(guest: Guest, live: Live) -> dict[str, Any]:
    """The keys in which the guest is not yet as an installed one should be."""
    wanted: dict[str, Any] = {}
    for slot, declared in guest.drives.items():
        if drive_volume(live.config.get(slot)) != declared:
            wanted[slot] = encode_drive(declared)
    boot = encode_boot(guest.boot)
    if live.config.get("boot") != boot:
        wanted["boot"] = boot
    if live.mark is not None and not live.mark.ready:
        ready = live.mark.model_copy(update={"ready": True})
        wanted["description"] = marked(ready, live.description)
    return wanted


def check_drives(here: Session, guest: Guest) -> Mapping[str, Any]:
    """Make sure that the drives are empty in the running machine too, not only from next start.

    Gives the configuration that it read. Raises StageError. ``current=1`` asks for the values in
    force, without pending ones.
    """
    now: Mapping[str, Any] = here.client.get(config_path(guest), current=1)
    full = [
        f"{slot} ({drive_volume(now[slot])})"
        for slot, declared in guest.drives.items()
        if declared == EMPTY and slot in now and drive_volume(now[slot]) != EMPTY
    ]
    if full:
        raise StageError(
            f"media are still in the drives: {', '.join(full)}",
            advice="the guest may hold the drive locked; stop and start it, then run `up` again",
        )
    return now
