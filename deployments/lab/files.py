"""Files that survive a kill: written beside their place, then renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

CONNECTION = "connection.json"


def write_atomic(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Replace ``path`` in one step; a reader sees the old or the new content, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    data = content.encode() if isinstance(content, str) else content
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
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
