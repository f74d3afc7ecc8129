"""Paths: where a user's settings, state and caches are kept, and what a text names."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_state_path


def state_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder for what must survive a run: seeds of secrets, journals.

    ``PROXFLOW_STATE_DIR`` names another one.
    """
    given = (os.environ if env is None else env).get("PROXFLOW_STATE_DIR")
    return Path(given).expanduser() if given else user_state_path("proxflow")


def config_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder for what the user writes: connections, profiles.

    ``PROXFLOW_CONFIG_DIR`` names another one.
    """
    given = (os.environ if env is None else env).get("PROXFLOW_CONFIG_DIR")
    return Path(given).expanduser() if given else user_config_path("proxflow")


def cache_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder for what can be made or fetched again: install ISOs.

    ``PROXFLOW_CACHE_DIR`` names another one.
    """
    given = (os.environ if env is None else env).get("PROXFLOW_CACHE_DIR")
    return Path(given).expanduser() if given else user_cache_path("proxflow")


def named_path(text: str, beside: Path | None = None) -> Path:
    """The path that a text names: ``~`` is the home folder, a relative one starts at ``beside``.

    Raises OSError, with words for the user, where a text can name no file.
    """
    if not text.strip() or "\0" in text:
        raise OSError(errno.EINVAL, "this is no path")
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise OSError(errno.ENOENT, "there is no such home folder") from None
    return path if beside is None else beside / path


def is_file(path: Path) -> bool:
    """Whether there is a file; a path that is too long names none."""
    try:
        return path.is_file()
    except OSError:
        return False
