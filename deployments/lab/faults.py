"""Troubles ordered from outside the API, what came of them, and the log of calls.

Which troubles there are says :mod:`deployments.lab.faultrules`. The same orders, seed and calls
give the same troubles. Orders and logs live as long as the lab's process.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from deployments.lab.faultrules import CallFault, LockFault, Rule, TaskFault

    OneRule = TypeVar("OneRule", CallFault, TaskFault, LockFault)

LOG_LIMIT = 5000
DEFAULT_SEED = 1


class Faults:
    """Rules that still apply, switches, and both logs."""

    def __init__(self) -> None:
        self.calls: list[CallFault] = []
        self.tasks: list[TaskFault] = []
        self.locks: list[LockFault] = []
        self.offline: set[str] = set()
        self.full: set[str] = set()
        self.no_quorum = False
        self.requests: deque[dict[str, Any]] = deque(maxlen=LOG_LIMIT)
        self.counts: Counter[str] = Counter()
        self.injected: deque[dict[str, Any]] = deque(maxlen=LOG_LIMIT)
        self._injected_count = 0
        self.reseed(DEFAULT_SEED)

    def reseed(self, seed: int) -> None:
        """Begin the row of random numbers that rules with a probability draw from."""
        self.seed = seed
        self._random = random.Random(seed)  # noqa: S311 - troubles, not secrets

    def add(self, rule: Rule) -> None:
        """Add a rule; earlier rules win."""
        kinds: dict[str, list[Any]] = {"call": self.calls, "task": self.tasks, "lock": self.locks}
        kinds[rule.kind].append(rule)

    def rules(self) -> list[Rule]:
        """All rules that still apply."""
        return [*self.calls, *self.tasks, *self.locks]

    def clear(self) -> None:
        """Drop every rule; nodes come back, storages have room again. The logs stay."""
        for rules in (self.calls, self.tasks, self.locks):
            rules.clear()
        self.offline.clear()
        self.no_quorum = False
        self.full.clear()

    def forget(self) -> None:
        """Begin both logs anew."""
        self.requests.clear()
        self.counts.clear()
        self.injected.clear()
        self._injected_count = 0

    def for_call(self, method: str, path: str) -> CallFault | None:
        """The rule for this call, counted as used."""
        if not self.calls:
            return None
        for rule in list(self.calls):
            asked = re.fullmatch(rule.method, method) and re.fullmatch(rule.path, path)
            if asked and self._due(self.calls, rule):
                self._note(rule, method=method, path=path)
                return rule
        return None

    def for_task(self, kind: str, task_id: str) -> TaskFault | None:
        """The rule for this task, counted as used."""
        for rule in list(self.tasks):
            meant = re.fullmatch(rule.type, kind) and re.fullmatch(rule.id, task_id)
            if meant and self._due(self.tasks, rule):
                self._note(rule, type=kind, id=task_id)
                return rule
        return None

    def for_lock(self, vmid: int) -> LockFault | None:
        """The rule for a writer that wants a guest's file lock, counted as used."""
        for rule in list(self.locks):
            if rule.vmid in (None, vmid) and self._due(self.locks, rule):
                self._note(rule, vmid=vmid)
                return rule
        return None

    def _due(self, rules: list[OneRule], rule: OneRule) -> bool:
        index = next(n for n, one in enumerate(rules) if one is rule)
        if rule.skip:
            rules[index] = rule.model_copy(update={"skip": rule.skip - 1})
            return False
        if rule.probability < 1 and self._random.random() >= rule.probability:
            return False
        if rule.times == 1:
            del rules[index]
        elif rule.times > 1:
            rules[index] = rule.model_copy(update={"times": rule.times - 1})
        return True

    def _note(self, rule: Rule, **where: Any) -> None:
        self.log(rule.kind, ", ".join(rule.told()) or "nothing", **where)

    def log(self, kind: str, what: str, **where: Any) -> None:
        """Remember one trouble: of which kind, what happened, and to which call, task or guest."""
        self._injected_count += 1
        self.injected.append({"n": self._injected_count, "kind": kind, "what": what, **where})

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
