"""Stage update: an existing guest of ours, brought to what the manifest says now."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Guest
from blocks.units import format_size
from tasks.drives import in_turn
from tasks.errors import StageError, keeping_state
from tasks.journal import entry_for, write_entry
from tasks.live import Live, config_path
from tasks.plan import diff, update_params
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, stage


@stage("update", retries=3)
def update(run: RunRef, node: str) -> Outcome:
    """Change in place what differs and can be changed; the values before go to the journal."""
    here = session(run)
    guest = here.guest(node)
    live = here.require(guest)
    changes = diff(guest, live.config)
    if not changes:
        return Outcome(status="unchanged", detail="as declared")
    stuck = [str(change) for change in changes if not change.in_place]
    if stuck:
        raise StageError(
            f"cannot be changed while the guest exists: {'; '.join(stuck)}",
            advice=f"set {guest.label} back in the manifest, or remove the guest with `down --only "
            f"{guest.label}` and bring it up again",
        )
    apply(here, guest, live)
    return Outcome(status="done", detail="; ".join(map(str, changes)))


def apply(here: Session, guest: Guest, live: Live) -> None:
    """Write the differing keys in one call, boot order last, then grow disks.

    Raises ProxmoxError.
    """
    wanted = update_params(guest, live.config)
    changed: dict[str, Any] = dict(wanted.put)
    if wanted.delete:
        changed["delete"] = ",".join(wanted.delete)
    touched = [*wanted.put, *wanted.delete]
    entry = entry_for(
        guest,
        {key: live.config.get(key) for key in touched},
        grown=tuple(slot for slot, _ in wanted.resizes),
    )
    with keeping_state():
        write_entry(here.environment.name, here.run.run_id, entry)
    if changed:
        if digest := live.config.get("digest"):
            changed["digest"] = digest  # refuse where somebody else wrote in between
        for part in in_turn(changed):
            here.client.run("PUT", config_path(guest), **part)
    for slot, size in wanted.resizes:
        here.client.run(
            "PUT",
            f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/resize",
            disk=slot,
            size=format_size(size),
        )
    now = here.require(guest).config
    after = {key: now.get(key) for key in touched}
    with keeping_state():
        done = entry.model_copy(update={"after": after})
        write_entry(here.environment.name, here.run.run_id, done)
