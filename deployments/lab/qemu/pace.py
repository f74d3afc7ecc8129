"""How the bytes of a copy pass: what the tool tells of its progress, while time goes by."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from deployments.lab.clock import Clock

_GIB = 1 << 30
_LINE_SECONDS = 0.05
_MOST_LINES = 100

T = TypeVar("T")


class Pace:
    """Spreads the time of one task over the bytes that it copies.

    ``name``: the duration for all of ``total`` bytes, whatever their number; each GiB takes the
    duration ``copygib`` beside that. Without a clock everything happens at once.
    """

    def __init__(self, clock: Clock | None = None, name: str = "", total: int = 0) -> None:
        self._clock = clock
        self._name = name
        self._total = total
        self._left = 1.0 if name else 0.0

    async def copy(self, size: int, log: Callable[..., None]) -> None:
        """Let ``size`` bytes pass, with a line for each percent, fewer where they come quickly."""
        share = min(self._left, size / self._total) if self._total else 0.0
        self._left -= share
        lines = min(_MOST_LINES, max(1, int(self._seconds(share, size) / _LINE_SECONDS)))
        began = time.monotonic()
        log(progress_line(0, size))
        for number in range(1, lines + 1):
            part = number / lines
            await self._until(began, share * part, size * part)
            log(progress_line(size * number // lines, size))

    async def rest(self) -> None:
        """Let the remaining time pass: of a task that has copied nothing, all of it."""
        left, self._left = self._left, 0.0
        await self._until(time.monotonic(), left, 0)

    async def _until(self, began: float, share: float, size: float) -> None:
        if self._clock is not None and self._seconds(share, size) > 0:
            await self._clock.passed(began, lambda: self._seconds(share, size))

    def _seconds(self, share: float, size: float) -> float:
        if self._clock is None:
            return 0.0
        whole = self._clock.seconds(self._name) if self._name else 0.0
        return whole * share + self._clock.seconds("copygib") * size / _GIB


AT_ONCE = Pace()


def done(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, such as a copy at no pace."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("it waits")


def progress_line(done_bytes: int, size: int) -> str:
    """``transferred 655.4 MiB of 64.0 GiB (1.00%)``."""
    percent = 100 * done_bytes / size if size else 100.0
    return f"transferred {_shown(done_bytes)} of {_shown(size)} ({percent:.2f}%)"


def _shown(size: int) -> str:
    number, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        del units[0]
    return f"{number:.1f} {units[0]}"
