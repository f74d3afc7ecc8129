"""Paths: where a user's settings, state and caches are kept, and what a text names."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_state_path

from blocks.units import MIB


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


def read_small(path: Path, most: int, encoding: str = "utf-8") -> str:
    """The text of a regular file of at most ``most`` bytes, with line ends as in Unix.

    Devices and pipes are refused: they may have no end, or never begin. Raises OSError, with words
    for the user, and UnicodeDecodeError.
    """
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a regular file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // MIB} MiB")
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def real_path(path: Path) -> Path:
    """The path without symbolic links.

    Raises OSError, with words for the user, where the links lead round in a circle.
    """
    try:
        path.stat()
    except OSError as error:
        # Path.resolve raises RuntimeError then up to Python 3.12, and nothing from 3.13 on.
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "its symbolic links lead round in a circle") from None
    return path.resolve()


def is_file(path: Path) -> bool:
    """Whether there is a file; a path that is too long names none."""
    try:
        return path.is_file()
    except OSError:
        return False
