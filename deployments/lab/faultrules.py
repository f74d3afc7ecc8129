"""What troubles can be ordered: the bodies of ``POST /_lab/faults``.

Kept apart from :mod:`deployments.lab.faults` because a lab without trouble needs no models.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

# What the proxy of a real node says when it cannot reach another node. Not recorded: the classes
# of AnyEvent::HTTP, whose text is that of the system's error.
PROXY_REASONS = {595: "No route to host", 596: "Connection timed out"}


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid")
    times: int = Field(default=1, ge=0)
    skip: int = Field(default=0, ge=0)
    probability: float = Field(default=1, gt=0, le=1)

    @field_validator("method", "path", "type", "id", check_fields=False)
    @classmethod
    def _pattern(cls, text: str) -> str:
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from None
        return text


class CallFault(_Rule):
    """What shall happen to calls that match.

    ``method`` and ``path`` are patterns for the whole text. ``times`` 0 means for ever, ``skip``
    lets as many pass first, ``probability`` draws from the lab's seeded generator. ``delay`` is in
    real seconds. ``reset`` cuts the connection before the call has had an effect or after it.
    ``status`` answers instead of the call. ``rate`` slows its body down to so many bytes a second.
    """

    kind: Literal["call"] = "call"
    method: str = ".*"
    path: str
    delay: float = Field(default=0, ge=0)
    status: int | None = Field(default=None, ge=200, le=599)
    reason: str = ""
    reset: Literal["before", "after"] | None = None
    rate: float | None = Field(default=None, gt=0)

    def told(self) -> list[str]:
        """What it does, in words for the log."""
        words = [f"delay {self.delay:g} s"] if self.delay else []
        words += [f"reset {self.reset}"] if self.reset else []
        words += [f"rate {self.rate:g} B/s"] if self.rate else []
        return words + ([f"status {self.status}"] if self.status is not None else [])

    @property
    def words(self) -> str:
        """The reason phrase of a refusal."""
        return self.reason or PROXY_REASONS.get(self.status or 0, "ordered by the lab")


class TaskFault(_Rule):
    """What shall happen to tasks that match: end in ``exitstatus``, with warnings, or never.

    ``when`` says whether the task does its work first: ``before`` nothing happens.
    """

    kind: Literal["task"] = "task"
    type: str = ".*"
    id: str = ".*"
    exitstatus: str | None = None
    warnings: int = Field(default=0, ge=0)
    endless: bool = False
    when: Literal["before", "after"] = "before"
    log: list[str] = []

    def told(self) -> list[str]:
        """What it does, in words for the log."""
        words = ["endless"] if self.endless else []
        words += [f"exit status {self.exitstatus}"] if self.exitstatus is not None else []
        return words + ([f"warnings {self.warnings}"] if self.warnings else [])


class LockFault(_Rule):
    """Somebody else holds a guest's file lock: writers wait in vain, in calls and in tasks."""

    kind: Literal["lock"] = "lock"
    vmid: int | None = None

    def told(self) -> list[str]:
        """What it does, in words for the log."""
        return ["lock time-out"]


Rule = CallFault | TaskFault | LockFault
_RULES: dict[str, type[Rule]] = {"call": CallFault, "task": TaskFault, "lock": LockFault}


def parse_rule(body: dict[str, Any]) -> Rule:
    """The rule that a control call describes; ``kind`` is ``call`` where none is given."""
    kind = body.get("kind", "call")
    if kind not in _RULES:
        raise ValueError(f"kind must be one of {', '.join(_RULES)}, not {kind!r}")
    return _RULES[kind].model_validate(body)
