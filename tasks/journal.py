"""What a run changes in place, with the values before, written down before it is changed.

The one thing about a run that the cluster cannot tell: marks say what was made, not what was
there before a change. A line a change, JSON, in the user's state folder; passwords never pass
through here, since no declared key of a guest's configuration holds one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blocks.manifest.guest import Guest
from blocks.model import Model
from blocks.paths import state_dir


class Entry(Model):
    """One change of a guest: the keys as they were, None for those that were not set.

    ``after``: the same keys as the change left them, None as long as it has not ended; only keys
    that are still like that are set back. ``grown``: disks that were made larger, which nothing
    can undo.
    """

    vmid: int
    node: str
    kind: str
    label: str
    before: dict[str, Any]
    after: dict[str, Any] | None = None
    grown: tuple[str, ...] = ()


def journal_path(env: str, run_id: str) -> Path:
    """Where the run's journal is."""
    return state_dir() / "journal" / env / f"{run_id}.jsonl"


def entry_for(guest: Guest, before: Mapping[str, Any], grown: tuple[str, ...] = ()) -> Entry:
    """The entry of a change that is about to be made."""
    return Entry(
        vmid=guest.vmid,
        node=guest.node,
        kind=guest.kind,
        label=guest.label,
        before=dict(before),
        grown=grown,
    )


def write_entry(env: str, run_id: str, entry: Entry) -> None:
    """Append an entry, or the same one with its ``after``, and make sure that it is on the disk."""
    path = journal_path(env, run_id)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    line = json.dumps(entry.model_dump(mode="json")) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_journal(env: str, run_id: str) -> tuple[Entry, ...]:
    """The run's entries, oldest first; none where it changed nothing. A torn last line is cut.

    A line that ends a change takes the place of the one that began it.
    """
    path = journal_path(env, run_id)
    if not path.exists():
        return ()
    entries: list[Entry] = []
    for line in path.read_text().splitlines():
        try:
            entry = Entry.model_validate_json(line)
        except ValueError:
            break
        begun = entry.model_copy(update={"after": None})
        if begun in entries:
            entries.remove(begun)
        entries.append(entry)
    return tuple(entries)


def journals(env: str) -> tuple[str, ...]:
    """The runs that changed something in place and have not been undone, by their ids."""
    return tuple(sorted(path.stem for path in journal_path(env, "x").parent.glob("*.jsonl")))


def close_journal(env: str, run_id: str) -> None:
    """Forget the run's journal: everything in it was undone."""
    journal_path(env, run_id).unlink(missing_ok=True)
