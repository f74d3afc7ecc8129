"""Stage configure: the image and everything else that the machine needs to become a template."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.plans import Change
from blocks.proxmox.inventory import storage_content
from blocks.proxmox.properties import owner_of, storage_of
from blocks.units import format_size
from tasks.cloudinit.carry import carry, sweep
from tasks.diff import RESTART, diff
from tasks.drives import in_turn
from tasks.errors import StageError
from tasks.image import image_size, image_volume
from tasks.live import Live, config_path, is_running, unless_changed
from tasks.plan import update_params
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, stage, unchanged
from tasks.template.convert import is_template, refuse_turned_back
from tasks.template.disks import (
    new_volumes,
    refuse_too_small,
    require_root_disk,
    same_size,
    to_be_made,
    unused_volumes,
    useless_slots,
    volume_in,
)
from tasks.template.following import configure_in_task, wait_for_earlier
from tasks.template.passthrough import device_notes, refuse_devices
from tasks.template.reconcile import AT_BOOT, told_differences
from tasks.template.takeover import take_over


@stage("configure", retries=3)
def configure(run: RunRef, node: str) -> Outcome:
    """Import the image, add what else is declared, hand over what cloud-init is to know.

    Each step is left out where nothing is missing. A template is not touched: what differs from
    the manifest is told. Raises StageError for what cannot be had, before anything is written.
    """
    here = session(run)
    guest = here.guest(node)
    live = here.require(guest)
    if is_template(live):
        return unchanged(f"VM {guest.vmid} is a template", warnings=outdated(here, guest, live))
    refuse_turned_back(guest, live)
    refuse_devices(here, guest)
    anew = to_be_made(guest, live.config)
    refuse_stuck(guest, live, anew)
    root = require_root_disk(guest)
    if root.slot in anew:
        refuse_too_small(guest, root, image_size(here, guest))
    live = take_over(here, guest, live)
    live, cleaned, warnings = clean(here, guest, live)
    live, made, more = add_volumes(here, guest, live)
    warnings = (*warnings, *more)
    changed, more = settle(here, guest, live)
    work = [*cleaned, *made, *changed]
    warnings = (*warnings, *more)
    if not work:
        return unchanged("as declared", warnings=warnings)
    return done(", ".join(work), warnings=warnings)


def outdated(here: Session, guest: Guest, live: Live) -> tuple[str, ...]:
    """What a template has otherwise than declared, as one warning; nothing where it fits."""
    differs = differing(here, guest, live)
    if not differs:
        return ()
    return (
        f"template {guest.name} ({guest.vmid}) is not as declared: {'; '.join(differs)}. "
        f"{remedy(here)}",
    )


def remedy(here: Session) -> str:
    """How a template becomes what is declared, which it does not by being changed."""
    recipe = here.environment.recipe
    way = (
        "declare when new generations are made (`rebuild`), or remove it and build it again"
        if recipe is None or recipe.rebuild.when == "never"
        else "the next generation will be as declared; `--rebuild` makes it now"
    )
    return f"A template is not changed; {way}"


def differing(here: Session, guest: Guest, live: Live) -> tuple[str, ...]:
    """What a template has otherwise than declared, one text each. No call. Raises StageError."""
    changes = template_changes(here, guest, live)
    texts = [str(change) for change in changes if change.note != AT_BOOT]
    told = [change.target for change in changes if change.note == AT_BOOT]
    return (*texts, *([f"cloud-init: {', '.join(told)}"] if told else []))


def template_changes(here: Session, guest: Guest, live: Live) -> tuple[Change, ...]:
    """The differences between a template and its declaration. No call. Raises StageError.

    That a change waits for a restart is said of guests that run, which a template never does.
    """
    found = (
        change.model_copy(update={"note": ""}) if change.note == RESTART else change
        for change in diff(guest, live.config)
    )
    return (*found, *told_differences(here, guest, live))


def refuse_stuck(guest: Guest, live: Live, anew: frozenset[str] = frozenset()) -> None:
    """Refuse differences that no write removes, but for slots that are made anew.

    Raises StageError.
    """
    stuck = [
        str(change)
        for change in diff(guest, live.config)
        if not change.in_place and change.target.partition(".")[0] not in anew
    ]
    if stuck:
        raise StageError(
            f"VM {guest.vmid} cannot become as declared: {'; '.join(stuck)}",
            advice=f"remove VM {guest.vmid}, which is unfinished, and build it again",
        )


def clean(here: Session, guest: Guest, live: Live) -> tuple[Live, tuple[str, ...], tuple[str, ...]]:
    """Remove volumes that an earlier try left: the guest as it is then, work, warnings.

    Only of a machine of ours that was never finished, and only volumes that are named after it. Of
    those in no drive only such as were just detached, or have the size of the image or of a
    declared disk; everything else is left alone and told. No call where there is nothing to clean.
    """
    slots = useless_slots(guest, live.config)
    if slots and is_running(here.client, guest):
        raise StageError(
            f"VM {guest.vmid} runs, and must not while these are made anew: {', '.join(slots)}",
            advice="stop it, then run the same again",
        )
    work: list[str] = []
    detached = {volume_in(live.config, slot) for slot in slots}
    if slots:
        here.client.run(
            "PUT", config_path(guest), delete=",".join(slots), **unless_changed(live.config)
        )
        live = here.require(guest)
        work.append(f"detached {', '.join(slots)} of an earlier try")
    unused = unused_volumes(live.config)
    if not unused:
        return live, tuple(work), ()
    ours = _leftovers(here, guest, unused, detached)
    if ours:
        here.client.run(
            "PUT", config_path(guest), delete=",".join(ours), **unless_changed(live.config)
        )
        live = here.require(guest)
        work.append(f"deleted {', '.join(ours.values())} of an earlier try")
    warnings = tuple(
        f"{slot} of VM {guest.vmid} ({volume}) is not surely of an earlier try; it stays there"
        for slot, volume in unused.items()
        if slot not in ours
    )
    return live, tuple(work), warnings


def _leftovers(
    here: Session, guest: Guest, unused: dict[str, str], detached: set[str]
) -> dict[str, str]:
    ours = {slot: volume for slot, volume in unused.items() if volume in detached}
    mine = {
        slot: volume
        for slot, volume in unused.items()
        if slot not in ours and owner_of(volume) == guest.vmid
    }
    if not mine:
        return ours
    sizes = {disk.size for disk in guest.disks} | {image_size(here, guest)}
    rows = [
        row
        for storage in sorted({storage_of(volume) for volume in mine.values()})
        for row in storage_content(here.client, guest.node, storage, "images")
    ]
    fitting = {row.volid for row in rows if any(same_size(row.size, size) for size in sizes)}
    return ours | {slot: volume for slot, volume in mine.items() if volume in fitting}


def add_volumes(
    here: Session, guest: Guest, live: Live
) -> tuple[Live, tuple[str, ...], tuple[str, ...]]:
    """Import the image and make the other volumes that are missing, in one task."""
    root = require_root_disk(guest)
    job = f"importing the image into {root.slot}"
    image = None
    if root.slot not in live.config:
        if wait_for_earlier(here.client, guest, "qmconfig", job):
            live = here.require(guest)
        if root.slot not in live.config:
            image = image_volume(here, guest)
    missing = new_volumes(guest, live.config, image)
    if not missing:
        return live, (), ()
    if image is None:
        job = f"making {', '.join(sorted(missing))}"
    warnings = configure_in_task(here.client, guest, job, **missing, **unless_changed(live.config))
    made = [slot for slot in missing if slot != root.slot]
    work = [f"{image} imported into {root.slot}"] if image is not None else []
    if made:
        work.append(f"{', '.join(sorted(made))} made")
    return here.require(guest), tuple(work), warnings


def settle(here: Session, guest: Guest, live: Live) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write what differs from the manifest, and what cloud-init is told; grow disks.

    Returns work and warnings. Raises StageError for differences that no write removes.
    """
    refuse_stuck(guest, live)
    changes = diff(guest, live.config)
    update = update_params(guest, live.config)
    carried = carry(here, guest, live.config)
    values: dict[str, Any] = {**update.put, **carried.values}
    warnings = carried.warnings
    if any(key.startswith("hostpci") for key in values):
        warnings = (*warnings, *device_notes(here, guest))
    if gone := [*update.delete, *carried.delete]:
        values["delete"] = ",".join(gone)
    if values:
        warnings = (*warnings, *_write(here, guest, live, values))
    for slot, size in update.resizes:
        here.client.run("PUT", _resize_path(guest), disk=slot, size=format_size(size))
    warnings = (*warnings, *sweep(here, guest, carried))
    work = [*map(str, changes)]
    if carried.changes:
        work.append(f"cloud-init: {', '.join(sorted({*carried.values, *carried.delete}))}")
    return tuple(work), warnings


def _write(here: Session, guest: Guest, live: Live, values: dict[str, Any]) -> tuple[str, ...]:
    """The boot order comes last, and alone where a drive is written (see ``in_turn``)."""
    warnings: tuple[str, ...] = ()
    guard = unless_changed(live.config)
    for part in in_turn(values):
        result = here.client.run("POST", config_path(guest), **part, **guard)
        warnings = (*warnings, *(result.warnings if result is not None else ()))
        guard = {}
    return warnings


def _resize_path(guest: Guest) -> str:
    return f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/resize"
