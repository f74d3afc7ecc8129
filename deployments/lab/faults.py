"""Troubles ordered from outside the API: refusals, delays, cut connections, broken tasks."""

from __future__ import annotations

import re
from collections import Counter, deque
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LOG_LIMIT = 5000


class CallFault(BaseModel):
    """What shall happen to calls that match.

    ``times`` 0 means for ever. ``delay`` is in real seconds. ``reset`` cuts the connection before
    the call has had an effect or after it. ``status`` answers instead of the call.
    """

    model_config = ConfigDict(extra="forbid")
    kind: Literal["call"] = "call"
    method: str = ".*"
    path: str
    times: int = Field(default=1, ge=0)
    skip: int = Field(default=0, ge=0)
    delay: float = Field(default=0, ge=0)
    status: int | None = None
    reason: str = ""
    reset: Literal["before", "after"] | None = None


class TaskFault(BaseModel):
    """What shall happen to tasks that match: end in ``exitstatus``, with warnings, or never.

    ``when`` says whether the task does its work first: ``before`` nothing happens.
    """

    model_config = ConfigDict(extra="forbid")
    kind: Literal["task"] = "task"
    type: str = ".*"
    id: str = ".*"
    times: int = Field(default=1, ge=0)
    exitstatus: str | None = None
    warnings: int = Field(default=0, ge=0)
    endless: bool = False
    when: Literal["before", "after"] = "before"
    log: list[str] = []


class Faults:
    """Rules that still apply, and the log of all calls."""

    def __init__(self) -> None:
        self.calls: list[CallFault] = []
        self.tasks: list[TaskFault] = []
        self.offline: set[str] = set()
        self.full: set[str] = set()
        self.no_quorum = False
        self.requests: deque[dict[str, Any]] = deque(maxlen=LOG_LIMIT)
        self.counts: Counter[str] = Counter()

    def add(self, rule: CallFault | TaskFault) -> None:
        """Add a rule; earlier rules win."""
        if isinstance(rule, CallFault):
            self.calls.append(rule)
        else:
            self.tasks.append(rule)

    def clear(self) -> None:
        """Drop every rule; nodes come back, storages have room again."""
        self.calls.clear()
        self.tasks.clear()
        self.offline.clear()
        self.no_quorum = False
        self.full.clear()

    def for_call(self, method: str, path: str) -> CallFault | None:
        """The rule for this call, counted as used."""
        for index, rule in enumerate(self.calls):
            if re.fullmatch(rule.method, method) and re.fullmatch(rule.path, path):
                if rule.skip:
                    self.calls[index] = rule.model_copy(update={"skip": rule.skip - 1})
                    continue
                _use(self.calls, index)
                return rule
        return None

    def for_task(self, kind: str, task_id: str) -> TaskFault | None:
        """The rule for this task, counted as used."""
        for index, rule in enumerate(self.tasks):
            if re.fullmatch(rule.type, kind) and re.fullmatch(rule.id, task_id):
                _use(self.tasks, index)
                return rule
        return None

    def record(self, method: str, path: str, status: int, user: str | None) -> None:
        """Remember a call; parameters are left out because they may hold secrets."""
        self.counts[method] += 1
        self.requests.append(
            {
                "n": sum(self.counts.values()),
                "method": method,
                "path": path,
                "status": status,
                "user": user,
            }
        )


def _use(rules: list[Any], index: int) -> None:
    rule = rules[index]
    if rule.times == 1:
        del rules[index]
    elif rule.times > 1:
        rules[index] = rule.model_copy(update={"times": rule.times - 1})
