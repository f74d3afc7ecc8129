"""Secrets of the manifests that this process has loaded, so that what is said shows none.

An environment keeps secrets in fields of their own; a text that was put together from plain ones,
such as a hook's message, may still hold one.
"""

from __future__ import annotations

import threading
from pathlib import Path

from blocks.manifest.environment import Environment
from blocks.manifest.loader import load
from blocks.manifest.secrets import Secrets

_known: dict[Path, Secrets] = {}
_lock = threading.Lock()


def open_environment(path: Path | str) -> Environment:
    """The environment in a master file, whose secrets are known from now on.

    Raises ManifestError.
    """
    loaded = load(path)
    with _lock:
        _known[loaded.environment.path] = loaded.secrets
    return loaded.environment


def masked(text: str, environment: Environment | None = None) -> str:
    """The text with ``***`` in the place of secrets: the environment's, or all that are known."""
    with _lock:
        known = [
            secrets
            for path, secrets in _known.items()
            if environment is None or path == environment.path
        ]
    for secrets in known:
        text = secrets.mask(text)
    return text
