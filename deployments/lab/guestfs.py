"""File systems of guests: small trees of files that live on the guests' own disks.

A disk's mark (see :mod:`.images`) names a tree by its hash; trees and file contents are kept in a
store by hash. So clones, snapshots, rollbacks and migrations carry a guest's files along, and what
one guest writes never shows in another.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from deployments.lab.files import write_atomic

FILE, FOLDER = "file", "dir"


class GuestFileError(OSError):
    """A path that cannot be used; the text is the one of the operating system."""


@dataclass(frozen=True)
class Entry:
    """One file or folder; ``blob`` is the hash of a file's content, ``mtime`` epoch seconds."""

    kind: str
    mode: int
    owner: str = "root"
    blob: str = ""
    size: int = 0
    mtime: int = 0


class Blobs:
    """Contents by their SHA-256; written once, never changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _file(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:]

    def put(self, data: bytes) -> str:
        """Keep ``data``; its name."""
        name = hashlib.sha256(data).hexdigest()
        file = self._file(name)
        if not file.exists():
            write_atomic(file, data)
        return name

    def get(self, name: str) -> bytes:
        """The content of that name."""
        return self._file(name).read_bytes()


class FileTree:
    """A tree of files that can be read and changed; paths are absolute and use slashes."""

    def __init__(self, blobs: Blobs, entries: dict[str, Entry] | None = None) -> None:
        self._blobs = blobs
        self._entries = entries if entries is not None else {"/": Entry(FOLDER, 0o755)}
        self.changed = False

    @classmethod
    def load(cls, blobs: Blobs, name: str) -> FileTree:
        """The tree of that hash."""
        rows = json.loads(blobs.get(name))
        return cls(blobs, {path: Entry(**row) for path, row in rows.items()})

    def save(self) -> str:
        """Keep the tree; its hash."""
        rows = {path: asdict(entry) for path, entry in sorted(self._entries.items())}
        self.changed = False
        return self._blobs.put(json.dumps(rows).encode())

    def _put(self, path: str, entry: Entry) -> None:
        self._entries[path] = entry
        self.changed = True

    def entry(self, path: str) -> Entry | None:
        """What is at a path."""
        return self._entries.get(_clean(path))

    def is_dir(self, path: str) -> bool:
        """Whether a folder is at a path."""
        found = self.entry(path)
        return found is not None and found.kind == FOLDER

    def read(self, path: str) -> bytes:
        """A file's content."""
        found = self.entry(path)
        if found is None:
            raise GuestFileError("No such file or directory")
        if found.kind == FOLDER:
            raise GuestFileError("Is a directory")
        return self._blobs.get(found.blob)

    def write(
        self, path: str, data: bytes, *, append: bool = False, mode: int | None = None
    ) -> None:
        """Replace or extend a file; its folder must exist. ``mode`` None keeps or takes 0644."""
        path = _clean(path)
        found = self._entries.get(path)
        if found is not None and found.kind == FOLDER:
            raise GuestFileError("Is a directory")
        self._require_parent(path)
        if append and found is not None:
            data = self._blobs.get(found.blob) + data
        wanted = mode if mode is not None else found.mode if found else 0o644
        owner = found.owner if found else "root"
        blob = self._blobs.put(data)
        self._put(path, Entry(FILE, wanted, owner, blob, len(data), int(time.time())))

    def _require_parent(self, path: str) -> None:
        parent = self._entries.get(posixpath.dirname(path))
        if parent is None:
            raise GuestFileError("No such file or directory")
        if parent.kind != FOLDER:
            raise GuestFileError("Not a directory")

    def mkdir(self, path: str, *, parents: bool = False, mode: int = 0o755) -> None:
        """Make a folder; with ``parents`` those above it too, and an existing one is fine."""
        path = _clean(path)
        found = self._entries.get(path)
        if found is not None:
            if parents and found.kind == FOLDER:
                return
            raise GuestFileError("File exists")
        parent = posixpath.dirname(path)
        if parents and parent not in self._entries:
            self.mkdir(parent, parents=True)
        self._require_parent(path)
        self._put(path, Entry(FOLDER, mode, mtime=int(time.time())))

    def provide(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file and the folders above it."""
        self.mkdir(posixpath.dirname(path), parents=True)
        self.write(path, data, mode=mode)

    def chmod(self, path: str, mode: int) -> None:
        """Change permissions."""
        found = self._found(path)
        self._put(_clean(path), Entry(**{**asdict(found), "mode": mode}))

    def chown(self, path: str, owner: str) -> None:
        """Change the owner."""
        found = self._found(path)
        self._put(_clean(path), Entry(**{**asdict(found), "owner": owner}))

    def _found(self, path: str) -> Entry:
        found = self.entry(path)
        if found is None:
            raise GuestFileError("No such file or directory")
        return found

    def children(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        path = _clean(path)
        prefix = path.rstrip("/") + "/"
        below = (other[len(prefix) :] for other in self._entries if other.startswith(prefix))
        return sorted({name for name in below if name and "/" not in name})

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, or with ``recursive`` a folder and all below it."""
        path = _clean(path)
        found = self._found(path)
        if found.kind == FOLDER and not recursive:
            raise GuestFileError("Is a directory")
        for other in [p for p in self._entries if p == path or p.startswith(path + "/")]:
            del self._entries[other]
        self.changed = True


def _clean(path: str) -> str:
    normal = posixpath.normpath("/" + path)
    return "/" + normal.lstrip("/")
