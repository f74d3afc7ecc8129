"""CD drives and boot order, while a guest is being installed and afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from blocks.manifest.guest import Guest

INSTALL_DRIVE = "ide2"
SEED_DRIVE = "ide3"
EMPTY = "none"


def install_boot(guest: Guest) -> tuple[str, ...]:
    """Boot order of an installation: the disk first, then the install ISO.

    An empty disk does not boot, so the firmware goes on to the ISO; once the installer has filled
    the disk, the next boot takes the disk. The order never has to change at the right moment, and
    the installer cannot be booted twice.
    """
    if guest.install is None:
        return guest.boot
    return (*guest.boot, INSTALL_DRIVE)


def writes_drive(params: Iterable[str]) -> bool:
    """Whether a key among these is of a bus that CD drives are on."""
    return any(key.startswith(("ide", "sata", "scsi")) for key in params)


def in_turn(params: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The writes of a configuration, so that its boot order is in the end as given.

    A write to a CD drive that is not in the boot order appends it there, and which of several keys
    of one call is taken first is left to chance: the order goes into a call of its own, the last.
    """
    if "boot" not in params or not writes_drive(params):
        return (dict(params),) if params else ()
    rest = {key: value for key, value in params.items() if key != "boot"}
    return (rest, {"boot": params["boot"]})


def drive_volume(config_value: str | None) -> str:
    """The volume in a CD drive, from its configuration line; ``none`` for empty or no drive."""
    return EMPTY if not config_value else config_value.partition(",")[0]
