"""A guest that is just being cloned, by a call whose answer was lost or by somebody else.

Until its disks are copied such a guest is hardly more than a number with the lock ``clone``: whose
it is cannot be told before.
"""

from __future__ import annotations

import time
from typing import Final

from blocks.manifest.guest import Guest
from blocks.proxmox.client import api_path
from tasks.errors import StageError
from tasks.live import Live, read_live
from tasks.session import Session
from tasks.stage import pause, waiting
from tasks.template.clone_source import template_of
from tasks.template.following import sees_all_tasks

CLONE_SECONDS: Final = 4 * 3600.0
"""How long a clone may take: a large disk on a slow storage is copied for hours."""

_POLL: Final = 1.0
_LOCK: Final = "clone"


def settled(here: Session, guest: Guest, *, seconds: float = CLONE_SECONDS) -> Live | None:
    """The guest as it is on its node, once nobody clones it any more; None where there is none.

    Raises StageError where it stays locked although nothing clones it, or for too long;
    StageCancelled when the run stops.
    """
    deadline = time.monotonic() + seconds
    while True:
        live = read_live(here.client, guest)
        if live is None or not being_cloned(live):
            return live
        if not _cloning(here, guest):
            # The task may have ended between the two reads.
            live = read_live(here.client, guest)
            if live is None or not being_cloned(live):
                return live
            _refuse_unseen(here, guest)
            raise StageError(
                f"VM {guest.vmid} on {guest.node} is locked ({_LOCK}), and no task is to be seen "
                "that clones it",
                advice="a clone was broken off there: look whose it is and remove it, or unlock "
                f"it with `qm unlock {guest.vmid}` on the node",
            )
        if time.monotonic() >= deadline:
            raise StageError(
                f"VM {guest.vmid} on {guest.node} is still being cloned after {seconds:.0f} s",
                advice="look at the task list of the node; run the same again when it has ended",
            )
        waiting(f"VM {guest.vmid} is being cloned")
        pause(_POLL)


def _refuse_unseen(here: Session, guest: Guest) -> None:
    """Refuse where the clone may be that of another, whose tasks the caller does not see.

    Raises StageError.
    """
    for node in _sources(here, guest):
        if not sees_all_tasks(here.client, node):
            raise StageError(
                f"VM {guest.vmid} on {guest.node} is locked ({_LOCK}), and what clones it "
                f"cannot be seen: it takes Sys.Audit on /nodes/{node}",
                advice="run the same again when the clone has ended, or take a token that has it",
            )


def being_cloned(live: Live) -> bool:
    """Whether the guest is not whole yet."""
    return live.config.get("lock") == _LOCK


def _cloning(here: Session, guest: Guest) -> bool:
    """Whether anything is being cloned where this guest may come from. One or two calls."""
    return any(
        here.client.get(api_path("nodes", node, "tasks"), source="active", typefilter="qmclone")
        for node in _sources(here, guest)
    )


def _sources(here: Session, guest: Guest) -> list[str]:
    """Nodes on which a task that clones it may run."""
    return sorted({guest.node, template_of(here, guest).node})
