"""Stage attach: install media, boot order, and the disks that other guests own."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Disk, Guest, SharedDisk
from blocks.proxmox.properties import decode_boot, encode_boot, encode_disk, encode_drive
from tasks.drives import INSTALL_DRIVE, SEED_DRIVE, drive_volume, in_turn, install_boot
from tasks.errors import StageError, keeping_state
from tasks.journal import entry_for, write_entry
from tasks.live import Live, config_path, unless_changed
from tasks.media import install_iso
from tasks.seed import current_seed, source_of
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, stage


@stage("attach", retries=3)
def attach(run: RunRef, node: str) -> Outcome:
    """Put install and seed ISO into the drives, set the boot order, attach shared disks."""
    here = session(run)
    guest = here.guest(node)
    live = here.require(guest)
    shared = shared_disks(here, guest, live)
    wanted = {**shared, **media(here, guest, live)}
    if not wanted:
        return Outcome(status="unchanged", detail="drives, boot order and shared disks fit")
    # A guest that was there before must not keep the disk of an owner that a rollback deletes.
    entry = None
    if shared and not here.made(live.mark):
        entry = entry_for(guest, dict.fromkeys(shared))
        with keeping_state():
            write_entry(here.environment.name, here.run.run_id, entry)
    for part in in_turn({**wanted, **unless_changed(live.config)}):
        here.client.run("PUT", config_path(guest), **part)
    if entry is not None:
        now = here.require(guest).config
        after = {slot: now.get(slot) for slot in shared}
        done = entry.model_copy(update={"after": after})
        with keeping_state():
            write_entry(here.environment.name, here.run.run_id, done)
    return Outcome(status="done", detail=", ".join(sorted(wanted)))


def media(here: Session, guest: Guest, live: Live) -> dict[str, Any]:
    """The drive and boot keys that are not yet as an installation needs them."""
    if guest.install is None or live.ready:
        return {}
    seed = current_seed(here, guest)
    if seed is None:
        raise StageError(
            f"the seed ISO of {guest.label} is not on storage {source_of(guest).seed_storage}",
            advice="somebody removed it while the run was working; run `up` again",
        )
    wanted: dict[str, Any] = {}
    for slot, volume in ((INSTALL_DRIVE, install_iso(here, guest)), (SEED_DRIVE, seed.volid)):
        if drive_volume(live.config.get(slot)) != volume:
            wanted[slot] = encode_drive(volume)
    order = install_boot(guest)
    # The server appends the drive of the seed, which does not boot.
    if decode_boot(str(live.config.get("boot", "")))[: len(order)] != order:
        wanted["boot"] = encode_boot(order)
    return wanted


def shared_disks(here: Session, guest: Guest, live: Live) -> dict[str, Any]:
    """The configuration lines of the shared disks that the guest has not attached yet."""
    return {
        disk.slot: encode_disk(disk, volume=owned_volume(here, disk, disk.shared_with))
        for disk in guest.disks
        if disk.shared_with is not None and disk.slot not in live.config
    }


def owned_volume(here: Session, disk: Disk, link: SharedDisk) -> str:
    """Volume id of a shared disk, read from its owner. Raises StageError where it has none."""
    owner = here.declared(link.vmid)
    line = str(here.require(owner).config.get(link.slot, ""))
    volume = line.partition(",")[0]
    if not volume:
        raise StageError(
            f"{owner.label} (VM {owner.vmid}) has no disk {link.slot}, which {disk.slot} shares",
            advice=f"run `up` with {owner.label} included, so that it creates the disk first",
        )
    return volume
