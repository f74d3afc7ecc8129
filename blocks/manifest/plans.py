"""What would be done, and why: changes, one guest's plan, an environment's plan."""

from __future__ import annotations

import json
from collections import Counter
from enum import StrEnum
from typing import Literal

from pydantic import Field

from blocks.model import Model
from blocks.units import format_size

Scalar = bool | int | float | str | None

_SIGN = {"add": "+", "change": "~", "remove": "-"}
_SHOWN = 60


class Action(StrEnum):
    """What is to be done with a guest."""

    CREATE = "create"
    RESUME = "resume"
    UPDATE = "update"
    UNCHANGED = "unchanged"
    IMPOSSIBLE = "impossible"
    FOREIGN = "foreign"
    DELETE = "delete"


class Change(Model):
    """One difference between what is declared and what lives.

    ``target`` is a field, or a slot and a field of it: ``memory``, ``scsi1``, ``scsi1.size``,
    ``net0.bridge``. Sizes are bytes, memory is MiB. ``in_place``: writing the config, or growing a
    disk, is enough; otherwise ``note`` says what it would take.
    """

    kind: Literal["add", "change", "remove"]
    target: str
    before: Scalar = None
    after: Scalar = None
    in_place: bool = True
    note: str = ""

    def __str__(self) -> str:
        """``~ scsi1.size: 32G -> 64G``, ``+ net1: virtio on vmbr1``, ``- net0.vlan: 20``."""
        before, after = self._shown(self.before), self._shown(self.after)
        value = {"add": after, "remove": before}.get(self.kind, f"{before} -> {after}")
        return f"{_SIGN[self.kind]} {self.target}: {value}" + (
            f" ({self.note})" if self.note else ""
        )

    def _shown(self, value: Scalar) -> str:
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "on" if value else "off"
        if isinstance(value, int) and self.target.endswith(".size"):
            return format_size(value)
        if isinstance(value, int) and self.target in {"memory", "balloon"}:
            return f"{value} MiB"
        text = str(value)
        line = "".join(c if c.isprintable() else " " for c in text.partition("\n")[0][:_SHOWN])
        if not text or line != text:
            return f'"{line}{"" if line == text else "..."}"'
        return text


class Creation(Model):
    """What a new guest gets, in words for people; ``memory`` in MiB."""

    cores: int
    memory: int
    firmware: str
    disks: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    iso: str | None = Field(default=None, description="Volume id of the install ISO")
    medium: str | None = Field(
        default=None, description="What is done about the install ISO before it is used"
    )
    seed: str | None = Field(default=None, description="Storage that takes the seed ISO")


class GuestPlan(Model):
    """What is to be done with one guest, and why.

    ``reason`` is empty where the changes say it all. ``run``: the run whose mark the live guest
    carries. ``creation`` is set for a guest that is to be created.
    """

    label: str
    node: str
    vmid: int
    name: str
    action: Action
    changes: tuple[Change, ...] = ()
    reason: str = ""
    run: str | None = None
    creation: Creation | None = None

    def __str__(self) -> str:
        """One line: ``db1 (101 on pve1): update, 2 changes``."""
        number = len(self.changes)
        count = f", {number} change{'s' if number != 1 else ''}" if number else ""
        reason = f"; {self.reason}" if self.reason else ""
        return f"{self.label} ({self.vmid} on {self.node}): {self.action}{count}{reason}"


class Plan(Model):
    """What is to be done for an environment, in the order of its manifest."""

    env: str
    cluster: str | None = None
    guests: tuple[GuestPlan, ...] = ()

    @property
    def counts(self) -> dict[Action, int]:
        """How many guests each action concerns; every action is a key."""
        found = Counter(guest.action for guest in self.guests)
        return {action: found[action] for action in Action}

    @property
    def changes_nothing(self) -> bool:
        """Everything that is declared is there, as it is declared."""
        return all(guest.action is Action.UNCHANGED for guest in self.guests)

    @property
    def refused(self) -> tuple[GuestPlan, ...]:
        """The guests for which nothing can be done: foreign ones and impossible changes."""
        return tuple(g for g in self.guests if g.action in {Action.FOREIGN, Action.IMPOSSIBLE})

    def guest(self, label: str) -> GuestPlan:
        """The plan of the guest with that label; KeyError where there is none."""
        for plan in self.guests:
            if plan.label == label:
                return plan
        raise KeyError(label)

    def to_json(self) -> str:
        """The plan for programs: its fields, ``counts`` beside them; two blanks of indent."""
        document = self.model_dump(mode="json") | {
            "counts": {action.value: number for action, number in self.counts.items()}
        }
        return json.dumps(document, indent=2, ensure_ascii=False)


class Update(Model):
    """How to bring a live guest to what is declared.

    ``put``: form parameters of ``PUT .../config``. ``delete``: config keys for its ``delete``
    parameter. ``resizes``: slot and new size in bytes, for ``PUT .../resize``. ``attach``: slots
    whose volume belongs to another guest and was not given.
    """

    put: dict[str, str | int] = Field(default_factory=dict)
    resizes: tuple[tuple[str, int], ...] = ()
    delete: tuple[str, ...] = ()
    attach: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.put or self.resizes or self.delete or self.attach)
