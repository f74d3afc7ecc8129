"""The profiles that environments may start from with ``extends``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from blocks.paths import config_dir, is_file

_SHIPPED = Path(__file__).parent
_SUFFIXES = (".yaml", ".yml")


def profile_folders(beside: Path, env: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Where profiles are looked for, first hit wins.

    ``profiles/`` beside the file that extends one, the user's folder, the shipped ones.
    """
    return (beside / "profiles", config_dir(env) / "profiles", _SHIPPED)


def known_profiles(beside: Path, env: Mapping[str, str] | None = None) -> dict[str, Path]:
    """All profiles that can be named, with the file that would be read."""
    known: dict[str, Path] = {}
    for folder in profile_folders(beside, env):
        if folder.is_dir():
            for file in sorted(folder.iterdir()):
                if file.suffix in _SUFFIXES:
                    known.setdefault(file.stem, file)
    return known


def profile_files(name: str, beside: Path, env: Mapping[str, str] | None = None) -> list[Path]:
    """The files of one profile, the one that wins first."""
    if not re.fullmatch(r"[\w.-]+", name):
        return []
    candidates = [
        folder / f"{name}{suffix}"
        for folder in profile_folders(beside, env)
        for suffix in _SUFFIXES
    ]
    return [file.resolve() for file in candidates if is_file(file)]
