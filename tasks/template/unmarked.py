"""Guests that were surely made for this recipe, and whose notes do not say so any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark, read_mark
from blocks.manifest.recipe import TEMPLATE

# No run has it: what was adopted by hand is no run's to roll back.
_NO_RUN: Final = "00000000"


def lost_its_mark(guest: Guest, config: Mapping[str, Any]) -> bool:
    """Whether the guest under the declared number was made by Proxflow for this declaration.

    Its notes hold no mark, and a card has the address that comes from the environment's name and
    the guest's number.
    """
    if read_mark(str(config.get("description", ""))) is not None:
        return False
    if guest.label == TEMPLATE and not int(config.get("template", 0)):
        return False
    return any(
        nic.mac is not None and nic.mac.upper() in str(config.get(nic.slot, "")).upper()
        for nic in guest.nics
    )


def what_is_lost(guest: Guest) -> str:
    """What happened to such a guest, and what that means, for messages that name the guest."""
    return (
        f"the notes of VM {guest.vmid} do not hold the mark of Proxflow any more: somebody "
        "overwrote them, and without it no command touches the VM"
    )


def how_to_adopt(env: str, guest: Guest) -> str:
    """The two ways on."""
    mark = Mark(env=env, guest=guest.label, vmid=guest.vmid, run=_NO_RUN, ready=True)
    return (
        f"to have it back, make this the first line of its notes: {mark} ; to be rid of it, remove "
        "it in Proxmox VE, and the next build makes it anew"
    )
