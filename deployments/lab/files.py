"""Files that survive a kill: written beside their place, then renamed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

CONNECTION = "connection.json"
PARTIAL = ".partial"
_UNFINISHED = re.compile(r"\..+\.(?:partial|tmp|copy|tmp_dwnl\.\d+(?:\.plain)?)")


def partial_path(path: Path) -> Path:
    """Where the new content of a file is written before it takes the file's place."""
    return path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")


def remove_partials(root: Path) -> None:
    """Remove what a process that was killed had begun to write below a state folder."""
    for part in ("etc", "storage", "run", "tasks", "tls", "guestfiles"):
        for folder, _, names in os.walk(root / part):
            for name in names:
                if _UNFINISHED.fullmatch(name):
                    Path(folder, name).unlink(missing_ok=True)
    for received in (root / "tmp").glob("*"):
        received.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Replace ``path`` in one step; a reader sees the old or the new content, never a half."""
    partial = partial_path(path)
    data = content.encode() if isinstance(content, str) else content
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        descriptor = os.open(partial, flags, mode)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(partial, flags, mode)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(data)
    partial.replace(path)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    """Write a JSON document in one step."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True), mode)


def read_json(path: Path, default: Any) -> Any:
    """The JSON document at ``path``, or ``default`` when there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return default
