"""An unfinished template that a rollback removes is kept from the runs that would take it over."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from blocks.manifest.mark import marked
from blocks.manifest.recipe import TEMPLATE
from blocks.proxmox.client import Client
from blocks.proxmox.errors import Conflict, NotFound, ProxmoxError
from blocks.proxmox.inventory import guest_config
from tasks.found import FoundGuest
from tasks.live import Live, unless_changed

_TRIES: Final = 5
"""How often a write may meet another one before a rollback gives up."""


def hold(
    client: Client, found: FoundGuest, notes: list[str], errors: list[str]
) -> FoundGuest | None:
    """Keep other runs from taking over an unfinished template that is about to be removed.

    Its mark says so from now on; it is written with the configuration's digest, so that of a
    rollback and a run that takes the template over one wins. None where the other has won. Other
    guests are nobody's to take over, and cost no call.
    """
    for _ in range(_TRIES):
        mark = found.mark
        if mark is None or mark.guest != TEMPLATE or mark.ready or mark.undone:
            return found
        text = marked(mark.model_copy(update={"undone": True}), found.live.description)
        config = found.live.config
        try:
            client.put(f"{found.path}/config", description=text, **unless_changed(config))
            return FoundGuest(found.row, Live({**config, "description": text}))
        except Conflict:
            now = _read_again(client, found)
        except NotFound:
            now = None
        except ProxmoxError as error:
            errors.append(f"{found}: {error.message}")
            return None
        if now is None:  # moved or gone, which the removal finds out
            return found
        if now.mark is None or now.mark.run != mark.run:
            by = f"run {now.mark.run}" if now.mark is not None else "somebody else"
            notes.append(f"{found} was taken over by {by}, and stays")
            return None
        found = now
    errors.append(f"{found}: somebody else changes it again and again; try the rollback later")
    return None


def let_go(client: Client, found: FoundGuest) -> None:
    """Let the next run take up what could not be removed, as far as it can be written.

    Only what still says that this rollback removes it, and only as it was just read: others may
    have written since. Two calls.
    """
    mark = found.mark
    if mark is None or not mark.undone:
        return
    with suppress(ProxmoxError):
        now = _read_again(client, found)
        if now is not None and now.mark == mark:
            text = marked(mark.model_copy(update={"undone": False}), now.live.description)
            client.put(f"{found.path}/config", description=text, **unless_changed(now.live.config))


def _read_again(client: Client, found: FoundGuest) -> FoundGuest | None:
    """The guest as it is now, None where it is gone. One call."""
    try:
        return FoundGuest(found.row, Live(guest_config(client, found.row)))
    except NotFound:
        return None
