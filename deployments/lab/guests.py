"""Guest configuration files and the file lock that serialises writers.

Every read looks at the file's stamp, so that edits by hand are seen; a file that has not changed
is not read again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from deployments.lab.clock import Clock
from deployments.lab.conffile import GuestConfig, parse_config
from deployments.lab.errors import failure
from deployments.lab.faults import Faults
from deployments.lab.filelock import FileLock
from deployments.lab.files import write_atomic

Kind = Literal["qemu", "lxc"]
_FOLDER: dict[Kind, str] = {"qemu": "qemu-server", "lxc": "lxc"}
KINDS: tuple[Kind, ...] = ("qemu", "lxc")
_LOCK_FILE = {
    "qemu": "/var/lock/qemu-server/lock-{}.conf",
    "lxc": "/run/lock/lxc/pve-config-{}.lock",
}


_SCAN_SHARE = 20
_TICK_NS = 20_000_000
_Stamp = tuple[int, int, int]


class Listed(NamedTuple):
    """A guest in a list. ``config`` is shared between readers and must not be changed."""

    node: str
    kind: Kind
    vmid: int
    config: GuestConfig


class GuestStore:
    """Configurations by id."""

    def __init__(self, folder: Path, nodes: list[str], clock: Clock, faults: Faults) -> None:
        self._folder = folder
        self._nodes = nodes
        self._clock = clock
        self._locks: dict[int, FileLock] = {}
        self._faults = faults
        self._read: dict[str, tuple[_Stamp, GuestConfig]] = {}
        self._listed: list[Listed] = []
        self._next_scan = 0.0

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
                    for vmid in _ids(self._folder / name / _FOLDER[one]):
                        yield name, one, vmid

    def listed(self) -> list[Listed]:
        """Every guest with its configuration; the same list object until something changes.

        Changes made through this store count at once. For those made by hand all files are looked
        at again as often as a twentieth of the time allows, every few milliseconds in a small lab.
        """
        began = time.monotonic()
        if began >= self._next_scan:
            found = list(self._scan())
            unchanged = len(found) == len(self._listed) and all(
                new.config is old.config and new[:3] == old[:3]
                for new, old in zip(found, self._listed, strict=True)
            )
            if not unchanged:
                self._listed = found
            ended = time.monotonic()
            self._next_scan = ended + (ended - began) * _SCAN_SHARE
        return self._listed

    def _scan(self) -> Iterator[Listed]:
        for node, kind, vmid in self.all():
            file = f"{self._folder}/{node}/{_FOLDER[kind]}/{vmid}.conf"
            try:
                yield Listed(node, kind, vmid, self._shared(file))
            except FileNotFoundError:
                continue

    def _shared(self, file: str) -> GuestConfig:
        stat = os.stat(file)  # noqa: PTH116 - thousands of times a second
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        known = self._read.get(file)
        if known is not None and known[0] == stamp:
            return known[1]
        config = parse_config(Path(file).read_text())
        # A file changed within the tick of its clock may change again under the same stamp.
        if time.time_ns() - stat.st_mtime_ns > _TICK_NS:
            self._read[file] = (stamp, config)
        return config

    def load(self, node: str, kind: Kind, vmid: int) -> GuestConfig:
        """A guest's configuration, the caller's own; 500 when it is not on this node."""
        try:
            return self._shared(str(self.file(node, kind, vmid))).copy()
        except FileNotFoundError:
            name = f"nodes/{node}/{_FOLDER[kind]}/{vmid}.conf"
            raise failure(f"Configuration file '{name}' does not exist") from None

    def save(self, node: str, kind: Kind, vmid: int, config: GuestConfig) -> None:
        """Write a guest."""
        file = self.file(node, kind, vmid)
        write_atomic(file, config.render())
        self._forget(file)

    def move(self, node: str, kind: Kind, vmid: int, target: str) -> None:
        """Hand a guest over to another node in one step."""
        file = self.file(target, kind, vmid)
        file.parent.mkdir(parents=True, exist_ok=True)
        before = self.file(node, kind, vmid)
        before.rename(file)
        self._forget(before)
        self._forget(file)

    def delete(self, node: str, kind: Kind, vmid: int) -> None:
        """Remove a guest's file."""
        file = self.file(node, kind, vmid)
        file.unlink(missing_ok=True)
        self._forget(file)

    def _forget(self, file: Path) -> None:
        self._read.pop(str(file), None)
        self._next_scan = 0.0

    @asynccontextmanager
    async def lock(
        self,
        vmid: int,
        kind: Kind = "qemu",
        log: Callable[..., None] | None = None,
        *,
        shared: bool = False,
    ) -> AsyncIterator[None]:
        """Hold the guest's file lock; 500 after the time a real writer would wait.

        ``shared``: beside others that hold it so, as the clones of one stopped machine do (from
        the public source of the server, not recorded).

        ``log`` takes the lines that a container's task writes when it has to wait.
        """
        lock = self._locks.setdefault(vmid, FileLock())
        foreign = self._faults.for_lock(vmid) is not None
        if foreign or not lock.free(shared):
            if log is not None:
                log("trying to acquire lock...")
            seconds = self._clock.file_lock_seconds()
            try:
                await asyncio.wait_for(_never() if foreign else lock.acquire(shared), seconds)
                if log is not None:
                    log(" OK")
            except TimeoutError:
                name = _LOCK_FILE[kind].format(vmid)
                raise failure(f"can't lock file '{name}' - got timeout") from None
        else:
            await lock.acquire(shared)
        try:
            yield
        finally:
            lock.release()


async def _never() -> None:
    """Wait for a lock that its holder does not let go."""
    await asyncio.Event().wait()


def _ids(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - thousands of names
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(".conf") for name in names if name.endswith(".conf"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def check_lock(config: GuestConfig, kind: Kind = "qemu", allowed: tuple[str, ...] = ()) -> None:
    """Refuse when the configuration carries a ``lock`` line."""
    lock = config.values.get("lock")
    if lock and lock not in allowed:
        raise failure(f"{'VM' if kind == 'qemu' else 'CT'} is locked ({lock})")
