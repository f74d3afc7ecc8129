"""The one differ: what is declared against what lives.

Only what is declared counts. What the server makes or spells by itself is no difference: MACs that
were not declared, volume names, ids, tag order and case, size spelling, newlines at the end of a
description; neither is what somebody added by hand beside it: more tags, disks, cards, text.
A pool is not compared, since a config does not tell it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from blocks.manifest.guest import Disk, Guest, Nic
from blocks.manifest.mark import unmarked
from blocks.manifest.plans import Change, Scalar
from blocks.proxmox.properties import (
    UNKNOWN_SIZE,
    decode,
    disk_options,
    display_of,
    encode_pci,
    format_tags,
    normal_description,
    owner_of,
    parse,
    parse_tags,
    storage_of,
)
from blocks.units import KIB, MIB, human_size

RESTART = "takes effect when it is stopped and started"
ANEW = "only making the guest anew would do it"

# The server rounds a new disk down to whole KiB, LVM rounds it up to whole extents.
_ROUNDED_DOWN = KIB
_ROUNDED_UP = 4 * MIB

# Field to note; None of a field that may be undeclared is no wish.
_SCALARS = {
    "name": "",
    "cores": RESTART,
    "sockets": RESTART,
    "memory": RESTART,
    "balloon": RESTART,
    "ostype": RESTART,
    "scsihw": RESTART,
    "onboot": "",
    "agent": RESTART,
}


def diff(desired: Guest, live: Guest | Mapping[str, Any]) -> tuple[Change, ...]:
    """What to change so that the live guest is as declared; empty when it is.

    ``live`` may be a config as the server answers it. Raises UnsupportedGuest for the config of a
    container, PropertyError for a value that cannot be read.
    """
    if not isinstance(live, Guest):
        live = decode(
            live, node=desired.node, vmid=desired.vmid, kind=desired.kind, label=desired.label
        )
    if desired.kind != live.kind:
        return tuple(_differs("kind", live.kind, desired.kind, in_place=False, note=ANEW))
    return (
        *_differs(
            "node", live.node, desired.node, in_place=False, note="it has to be migrated first"
        ),
        *_scalars(desired, live),
        *_cpu(desired, live),
        *_texts(desired, live),
        *_firmware(desired, live),
        *_disks(desired, live),
        *(change for nic in desired.nics for change in _nic(nic, live)),
        *_drives(desired, live),
        *(
            _differs("boot", ";".join(live.boot) or None, ";".join(desired.boot))
            if desired.boot
            else ()
        ),
        *_serial(desired, live),
        *_devices(desired, live),
    )


def same_machine(desired: str, live: str) -> bool:
    """Whether a live machine type is the declared one; an undeclared version is no wish."""
    family, version = _machine(desired)
    live_family, live_version = _machine(live)
    return family == live_family and (
        not version or live_version == version or live_version.startswith(f"{version}+")
    )


def _machine(text: str) -> tuple[str, str]:
    """Family and version: ``pc-q35-9.2`` is q35 9.2; a bare ``pc`` is i440fx."""
    rest = text.removeprefix("pc-") if text != "pc" else "i440fx"
    if rest[:1].isdigit():
        return "i440fx", rest
    family, _, version = rest.partition("-")
    return family, version


def _differs(
    target: str, before: Scalar, after: Scalar, *, in_place: bool = True, note: str = ""
) -> Iterator[Change]:
    if before == after:
        return
    kind = "add" if before is None else "remove" if after is None else "change"
    yield Change(kind=kind, target=target, before=before, after=after, in_place=in_place, note=note)


def _scalars(desired: Guest, live: Guest) -> Iterator[Change]:
    for field, note in _SCALARS.items():
        wanted = getattr(desired, field)
        if wanted is not None:
            yield from _differs(field, getattr(live, field), wanted, note=note)


def _cpu(desired: Guest, live: Guest) -> Iterator[Change]:
    """Flags and the like that only the live one has are no difference."""
    if not parse("cpu", desired.cpu).items() <= parse("cpu", live.cpu).items():
        yield from _differs("cpu", live.cpu, desired.cpu, note=RESTART)


def _texts(desired: Guest, live: Guest) -> Iterator[Change]:
    tags, lived = parse_tags(";".join(desired.tags)), parse_tags(";".join(live.tags))
    if not set(tags) <= set(lived):
        yield from _differs("tags", ";".join(lived) or None, format_tags({*tags, *lived}))
    wanted = normal_description(unmarked(desired.description))
    found = normal_description(unmarked(live.description))
    # Whole lines: what others wrote around it is theirs.
    if wanted and f"\n{wanted}\n" not in f"\n{found}\n":
        yield from _differs("description", found or None, wanted)


def _firmware(desired: Guest, live: Guest) -> Iterator[Change]:
    want, have = desired.firmware, live.firmware
    yield from _differs("bios", have.bios, want.bios, in_place=False, note=ANEW)
    if not same_machine(want.machine, have.machine):
        fits = _machine(want.machine)[0] == _machine(have.machine)[0]
        note = RESTART if fits else ANEW
        yield from _differs("machine", have.machine, want.machine, in_place=fits, note=note)
    if want.efi_storage is not None:
        yield from _differs(
            "efidisk0.storage", have.efi_storage, want.efi_storage, in_place=False, note=ANEW
        )
        if have.efi_storage is not None:
            yield from _differs(
                "efidisk0.secure_boot",
                have.secure_boot,
                want.secure_boot,
                in_place=False,
                note=ANEW,
            )
    if want.tpm_storage is not None:
        new = have.tpm_storage is None
        yield from _differs(
            "tpmstate0.storage",
            have.tpm_storage,
            want.tpm_storage,
            in_place=new,
            note=RESTART if new else "the volume has to be moved",
        )


def _disks(desired: Guest, live: Guest) -> Iterator[Change]:
    for disk in desired.disks:
        found = live.disk(disk.slot)
        if found is not None:
            yield from _disk(disk, found)
            continue
        taken = live.drives.get(disk.slot)
        yield Change(
            kind="add" if taken is None else "change",
            target=disk.slot,
            before=None if taken is None else f"CD drive with {taken}",
            after=f"{human_size(disk.size)} on {disk.storage}",
            in_place=taken is None,
            note=_origin(disk) if taken is None else "the slot is taken by a CD drive",
        )


def _origin(disk: Disk) -> str:
    owner = disk.shared_with
    return f"the volume of {owner.slot} of guest {owner.vmid}" if owner else ""


def _disk(want: Disk, have: Disk) -> Iterator[Change]:
    slot = want.slot
    yield from _differs(
        f"{slot}.storage",
        have.storage or have.volume or "",
        want.storage,
        in_place=False,
        note="the volume has to be moved",
    )
    if have.size != UNKNOWN_SIZE and not -_ROUNDED_DOWN < have.size - want.size < _ROUNDED_UP:
        grows = want.size > have.size
        note = "" if grows else "a disk can grow, not shrink"
        yield from _differs(f"{slot}.size", have.size, want.size, in_place=grows, note=note)
    if want.format and have.format:
        yield from _differs(
            f"{slot}.format",
            have.format,
            want.format,
            in_place=False,
            note="the volume has to be converted",
        )
    owner = owner_of(have.volume or "")
    if want.shared_with and owner is not None:
        yield from _differs(
            f"{slot}.owner",
            owner,
            want.shared_with.vmid,
            in_place=False,
            note=f"another volume is attached; declared is {_origin(want)}",
        )
    options, found = disk_options(want), disk_options(have)
    for key in ("discard", "ssd", "iothread", "backup"):
        yield from _differs(
            f"{slot}.{key}",
            _switch(found.get(key, key == "backup")),
            _switch(options.get(key, key == "backup")),
            note="" if key == "backup" else RESTART,
        )
    for key in ("cache", "serial"):
        if getattr(want, key) is not None:
            yield from _differs(
                f"{slot}.{key}", getattr(have, key), getattr(want, key), note=RESTART
            )


def _switch(value: object) -> bool:
    return value in (True, "on")


def _nic(want: Nic, live: Guest) -> Iterator[Change]:
    slot = want.slot
    have = next((nic for nic in live.nics if nic.slot == slot), None)
    if have is None:
        vlan = f", VLAN {want.vlan}" if want.vlan else ""
        yield Change(kind="add", target=slot, after=f"{want.model} on {want.bridge}{vlan}")
        return
    for key in ("bridge", "model", "vlan", "link_down"):
        yield from _differs(f"{slot}.{key}", getattr(have, key), getattr(want, key))
    # The web page switches the firewall on for each new card: off is nobody's wish.
    if want.firewall:
        yield from _differs(f"{slot}.firewall", have.firewall, want.firewall)
    for key in ("mtu", "rate", "queues"):
        if getattr(want, key) is not None:
            yield from _differs(f"{slot}.{key}", getattr(have, key), getattr(want, key))
    if want.mac is not None:
        yield from _differs(f"{slot}.mac", have.mac, want.mac.upper())


def _drives(desired: Guest, live: Guest) -> Iterator[Change]:
    for slot, volid in desired.drives.items():
        if (disk := live.disk(slot)) is not None:
            yield Change(
                kind="change",
                target=slot,
                before=f"disk {disk.volume}",
                after=volid,
                in_place=False,
                note="the slot is taken by a disk",
            )
            continue
        found = live.drives.get(slot, "none")
        if volid.endswith(":cloudinit") and "cloudinit" in found:
            if storage_of(volid) != storage_of(found):
                yield from _differs(slot, found, volid)
            continue
        # No drive at all is as empty as an empty one.
        before = None if found == "none" and slot not in live.drives else found
        if found != volid:
            yield from _differs(slot, before, volid)


def _serial(desired: Guest, live: Guest) -> Iterator[Change]:
    before = "socket" if live.serial_console else None
    yield from _differs(
        "serial0", before, "socket" if desired.serial_console else None, note=RESTART
    )


def _devices(desired: Guest, live: Guest) -> Iterator[Change]:
    """Display and passed-through devices; those that somebody added are no difference."""
    display = display_of(desired)
    if display is not None:
        yield from _differs("vga", live.display, display, note=RESTART)
    for number, device in enumerate(desired.pci):
        found = encode_pci(live.pci[number]) if number < len(live.pci) else None
        yield from _differs(f"hostpci{number}", found, encode_pci(device), note=RESTART)
