"""Guest configuration files and the file lock that serialises writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from deployments.lab.clock import Clock
from deployments.lab.conffile import GuestConfig, parse_config
from deployments.lab.errors import failure
from deployments.lab.files import write_atomic

Kind = Literal["qemu", "lxc"]
_FOLDER: dict[Kind, str] = {"qemu": "qemu-server", "lxc": "lxc"}
KINDS: tuple[Kind, ...] = ("qemu", "lxc")
_LOCK_FILE = {
    "qemu": "/var/lock/qemu-server/lock-{}.conf",
    "lxc": "/run/lock/lxc/pve-config-{}.lock",
}


class GuestStore:
    """Configurations by id; every read comes from the file, so edits by hand are seen at once."""

    def __init__(self, folder: Path, nodes: list[str], clock: Clock) -> None:
        self._folder = folder
        self._nodes = nodes
        self._clock = clock
        self._locks: dict[int, asyncio.Lock] = {}

    def file(self, node: str, kind: Kind, vmid: int) -> Path:
        """The guest's file in the state folder."""
        return self._folder / node / _FOLDER[kind] / f"{vmid}.conf"

    def locate(self, vmid: int) -> tuple[str, Kind] | None:
        """Node and kind of an existing guest."""
        for node in self._nodes:
            for kind in KINDS:
                if self.file(node, kind, vmid).exists():
                    return node, kind
        return None

    def all(
        self, node: str | None = None, kind: Kind | None = None
    ) -> Iterator[tuple[str, Kind, int]]:
        """Node, kind and id of every guest, in order of ids within a node."""
        for name in self._nodes:
            if node not in (None, name):
                continue
            for one in KINDS:
                if kind in (None, one):
                    files = (self._folder / name / _FOLDER[one]).glob("*.conf")
                    for vmid in sorted(int(f.stem) for f in files if f.stem.isdigit()):
                        yield name, one, vmid

    def load(self, node: str, kind: Kind, vmid: int) -> GuestConfig:
        """Read a guest; 500 with the file's name when it is not on this node."""
        try:
            text = self.file(node, kind, vmid).read_text()
        except FileNotFoundError:
            name = f"nodes/{node}/{_FOLDER[kind]}/{vmid}.conf"
            raise failure(f"Configuration file '{name}' does not exist") from None
        return parse_config(text)

    def save(self, node: str, kind: Kind, vmid: int, config: GuestConfig) -> None:
        """Write a guest."""
        write_atomic(self.file(node, kind, vmid), config.render())

    def delete(self, node: str, kind: Kind, vmid: int) -> None:
        """Remove a guest's file."""
        self.file(node, kind, vmid).unlink(missing_ok=True)

    @asynccontextmanager
    async def lock(
        self, vmid: int, kind: Kind = "qemu", log: Callable[..., None] | None = None
    ) -> AsyncIterator[None]:
        """Hold the guest's file lock; 500 after the time a real writer would wait.

        ``log`` takes the lines that a container's task writes when it has to wait.
        """
        lock = self._locks.setdefault(vmid, asyncio.Lock())
        if lock.locked():
            if log is not None:
                log("trying to acquire lock...")
            try:
                await asyncio.wait_for(lock.acquire(), self._clock.file_lock_seconds())
                if log is not None:
                    log(" OK")
            except TimeoutError:
                name = _LOCK_FILE[kind].format(vmid)
                raise failure(f"can't lock file '{name}' - got timeout") from None
        else:
            await lock.acquire()
        try:
            yield
        finally:
            lock.release()


def check_lock(config: GuestConfig, kind: Kind = "qemu", allowed: tuple[str, ...] = ()) -> None:
    """Refuse when the configuration carries a ``lock`` line."""
    lock = config.values.get("lock")
    if lock and lock not in allowed:
        raise failure(f"{'VM' if kind == 'qemu' else 'CT'} is locked ({lock})")
