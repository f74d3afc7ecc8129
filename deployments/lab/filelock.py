"""The lock of a guest's file: one writer, or several that only read the guest."""

from __future__ import annotations

import asyncio

_EXCLUSIVE = -1


class FileLock:
    """A lock as ``flock`` gives it: shared or exclusive, in no order among those that wait."""

    def __init__(self) -> None:
        self._holders = 0
        self._waiting: list[asyncio.Future[None]] = []

    def free(self, shared: bool = False) -> bool:
        """Whether it could be had at once."""
        return self._holders == 0 or (shared and self._holders > 0)

    async def acquire(self, shared: bool = False) -> None:
        """Wait until it is free, and hold it."""
        while not self.free(shared):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._holders = self._holders + 1 if shared else _EXCLUSIVE

    def release(self) -> None:
        """Let go; everyone who waits looks again."""
        self._holders = 0 if self._holders == _EXCLUSIVE else self._holders - 1
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)
