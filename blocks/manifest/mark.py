"""The line that says which environment and run a guest belongs to.

It is put first into the guest's description, an HTML comment, so that the Proxmox VE page does not
show it; people may write notes above it. Nothing else in the description is ours. A clone or a
restored backup carries the description of its original, so the mark names its guest's number.
"""

from __future__ import annotations

import re

from blocks.model import Model

_MARK = re.compile(r"^<!-- proxflow (?P<fields>[^\n]*?) -->[ \t]*(?:\n|\Z)", re.MULTILINE)
_FIELD = re.compile(r"(?P<key>[a-z]+)=(?P<value>\S+)")


class Mark(Model):
    """Who made a guest. ``ready`` is set once the guest's installation was finished.

    ``published``: a ready template that older generations made room for, or are about to. No
    rollback removes it, since nothing could bring those back. ``undone``: a rollback is removing
    the guest, and no other run takes it up.
    """

    env: str
    guest: str
    vmid: int
    run: str
    ready: bool = False
    published: bool = False
    undone: bool = False

    def __str__(self) -> str:
        """The comment line, without a line break."""
        state = "undone" if self.undone else "installing"
        if self.ready:
            state = "published" if self.published else "ready"
        return (
            f"<!-- proxflow env={self.env} guest={self.guest} vmid={self.vmid} run={self.run} "
            f"state={state} -->"
        )


def read_mark(description: str) -> Mark | None:
    """The mark of a description, or None where there is none, or not a whole one."""
    found = _MARK.search(description)
    if found is None:
        return None
    fields = {m["key"]: m["value"] for m in _FIELD.finditer(found["fields"])}
    if not {"env", "guest", "vmid", "run"} <= fields.keys() or not fields["vmid"].isdecimal():
        return None
    return Mark(
        env=fields["env"],
        guest=fields["guest"],
        vmid=int(fields["vmid"]),
        run=fields["run"],
        ready=fields.get("state") in {"ready", "published"},
        published=fields.get("state") == "published",
        undone=fields.get("state") == "undone",
    )


def unmarked(description: str) -> str:
    """The operator's part of a description."""
    return _MARK.sub("", description, count=1)


def marked(mark: Mark, description: str) -> str:
    """A description with this mark first, instead of whichever mark it had."""
    rest = unmarked(description)
    return f"{mark}\n{rest}" if rest else str(mark)
