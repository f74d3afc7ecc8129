"""What a clone is to be like, and the parameters that make it so.

A clone has everything of its source but for what the clone call changes (07-clones): tags, cards
with new MACs, passed-through devices, cloud-init's values, protection against removal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blocks.manifest.guest import Disk, Guest
from blocks.manifest.plans import Change
from blocks.proxmox.properties import encode_boot, format_tags, parse_tags
from tasks.cloudinit.carry import Carried
from tasks.diff import diff
from tasks.session import Session
from tasks.template.clone_source import source_of, template_of
from tasks.update import update_params

Config = Mapping[str, Any]

_CARD = re.compile(r"(?:net|hostpci)\d+")
_DRIVE = re.compile(r"(?:ide|sata|scsi)\d+")

NEVER_INHERITED = ("protection",)
"""Keys of a template that no manifest declares and no clone is to have."""


@dataclass(frozen=True)
class Tailoring:
    """What is to be written: one ``PUT .../config`` of ``put`` and ``delete``, then ``resizes``.

    ``resizes``: slot and size in bytes.
    """

    put: dict[str, Any]
    delete: tuple[str, ...]
    resizes: tuple[tuple[str, int], ...]

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.put or self.delete or self.resizes)


def as_cloned(here: Session, guest: Guest) -> Guest:
    """The declared guest with its volumes where the clone call puts them.

    They are on the storage that was asked for, else where the template has its own; their format is
    the server's choice.
    """
    template, storage = template_of(here, guest), source_of(guest).storage

    def placed(disk: Disk) -> Disk:
        base = template.disk(disk.slot)
        if base is None:
            return disk
        return disk.model_copy(update={"storage": storage or base.storage, "format": None})

    firmware = guest.firmware
    moved = {
        key: storage or getattr(template.firmware, key)
        for key in ("efi_storage", "tpm_storage")
        if getattr(firmware, key) is not None and getattr(template.firmware, key) is not None
    }
    return guest.model_copy(
        update={
            "disks": tuple(map(placed, guest.disks)),
            "firmware": firmware.model_copy(update=moved),
        }
    )


def tailoring(here: Session, guest: Guest, config: Config, carried: Carried) -> Tailoring:
    """What makes a new clone the declared guest, and takes away what it has from the template.

    ``carried``: what cloud-init is told. No call.
    """
    wanted = as_cloned(here, guest)
    update = update_params(wanted, config)
    put: dict[str, Any] = dict(update.put)
    delete = {*update.delete, *inherited(guest, config)}
    tags = format_tags(guest.tags)
    if tags != format_tags(parse_tags(str(config.get("tags", "")))):
        put.pop("tags", None)
        put |= {"tags": tags} if tags else {}
        delete |= set() if tags else {"tags"}
    put |= carried.values
    delete |= {*carried.delete}
    return Tailoring(
        put=in_order(guest, put),
        delete=tuple(sorted(delete - put.keys())),
        resizes=update.resizes,
    )


def unreachable(here: Session, guest: Guest, config: Config) -> tuple[Change, ...]:
    """What no write makes of this clone, such as a disk smaller than the template's. No call."""
    changes = diff(as_cloned(here, guest), config)
    return tuple(change for change in changes if not change.in_place)


def inherited(guest: Guest, config: Config) -> set[str]:
    """The keys that the clone has from its template and that are not declared for it."""
    declared = {nic.slot for nic in guest.nics}
    declared |= {f"hostpci{number}" for number in range(len(guest.pci))}
    cards = {key for key in config if _CARD.fullmatch(key)} - declared
    return cards | {key for key in NEVER_INHERITED if key in config}


def in_order(guest: Guest, put: dict[str, Any]) -> dict[str, Any]:
    """The values with the boot order, where a CD drive among them would be appended to it.

    Recorded in 12b-hardware-running. A drive that the order names already changes nothing.
    """
    drives = any(_DRIVE.fullmatch(key) and guest.disk(key) is None for key in put)
    if "boot" in put or not drives or not guest.boot:
        return put
    return put | {"boot": encode_boot(guest.boot)}
