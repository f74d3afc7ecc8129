"""clusters.yaml: the clusters that an operator knows, by name.

::

    current: prod
    clusters:
      prod:
        endpoint: https://pve.example.com:8006
        token_id: automation@pve!proxflow
        token_secret: ${env:PVE_SECRET}     # or ${file:~/.secrets/pve}, or the secret itself
        ca_file: pve-root-ca.pem            # or fingerprint: AB:CD:.., or verify: false
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from blocks.paths import config_dir
from blocks.proxmox.errors import BadSettings

SECRET_KEYS = frozenset({"token_secret", "password"})
KEYS = (
    "endpoint",
    "token_id",
    "token_secret",
    "user",
    "password",
    "ca_file",
    "fingerprint",
    "verify",
    "guest_proxy",
)

_REFERENCE = re.compile(r"\$\{(?P<kind>[a-z_]+):(?P<what>[^}]*)\}")


@dataclass(frozen=True)
class Written:
    """Settings as written: values by key, the place of each, and the source of all."""

    values: Mapping[str, Any]
    where: Mapping[str, str]
    source: str


def settings_file() -> Path:
    """The path of clusters.yaml, which need not exist."""
    return config_dir() / "clusters.yaml"


def current_context() -> str | None:
    """The name that ``current`` gives; None without the file or the key."""
    file = settings_file()
    if not file.exists():
        return None
    document = _read(file)
    current = document.get("current")
    if current is None:
        return None
    if not isinstance(current, str):
        raise BadSettings([f"{_place(file, document, 'current')}: current must be a name"])
    return current


def context_names() -> tuple[str, ...]:
    """The contexts of clusters.yaml in its order; empty without the file."""
    file = settings_file()
    return tuple(map(str, _clusters(file, _read(file)))) if file.exists() else ()


def context_settings(name: str) -> Written:
    """One context, with its ``${..}`` references resolved.

    Raises BadSettings: file or context missing, unknown keys, unresolvable references, and a file
    that others may read although it holds literal secrets.
    """
    file = settings_file()
    if not file.exists():
        raise BadSettings(
            [f"cluster {name!r} is not known: {file} does not exist"],
            advice="write it (docs/connecting.md), or use --cluster lab or --cluster block:NAME",
        )
    document = _read(file)
    clusters = _clusters(file, document)
    if name not in clusters:
        known = ", ".join(map(str, clusters)) or "none"
        raise BadSettings(
            [f"{file}: there is no cluster {name!r}{_nearest(name, clusters)} (known: {known})"]
        )
    section = clusters[name]
    if not isinstance(section, CommentedMap):
        raise BadSettings([f"{_place(file, clusters, name)}: clusters.{name} must hold settings"])
    return _section(file, name, section)


def _section(file: Path, name: str, section: CommentedMap) -> Written:
    faults: list[str] = []
    values: dict[str, Any] = {}
    where: dict[str, str] = {}
    open_to_others = bool(stat.S_IMODE(file.stat().st_mode) & 0o077)
    for key, value in section.items():
        place = f"{_place(file, section, key)}: clusters.{name}.{key}"
        if key not in KEYS:
            faults.append(f"{place}: unknown setting{_nearest(str(key), KEYS)}")
            continue
        where[key] = _place(file, section, key) + f": clusters.{name}"
        if value is None:
            continue
        if key == "verify":
            if not isinstance(value, bool):
                faults.append(f"{place}: must be true or false")
            values[key] = value
            continue
        if not isinstance(value, str):
            faults.append(f"{place}: must be a text; put it into quotes")
            continue
        if key in SECRET_KEYS and open_to_others and not _REFERENCE.fullmatch(value.strip()):
            faults.append(
                f"{place}: a literal secret in a file that others may read; "
                f"`chmod 600 {file}`, or write ${{env:NAME}} or ${{file:PATH}}"
            )
        resolved = _resolved(value, file.parent, place, faults)
        if key == "ca_file" and resolved:
            resolved = str(file.parent / Path(resolved).expanduser())
        values[key] = resolved
    if faults:
        raise BadSettings(faults)
    return Written(values=values, where=where, source=f"{file}: clusters.{name}")


def _resolved(text: str, folder: Path, place: str, faults: list[str]) -> str:
    def put(found: re.Match[str]) -> str:
        kind, what = found["kind"], found["what"].strip()
        if kind == "env":
            if not os.environ.get(what):
                faults.append(f"{place}: environment variable {what} is not set")
            return os.environ.get(what, "")
        if kind == "file":
            path = folder / Path(what).expanduser()
            try:
                return path.read_text(encoding="utf-8").strip()
            except FileNotFoundError:
                faults.append(f"{place}: {path} does not exist")
            except (OSError, UnicodeDecodeError):
                faults.append(f"{place}: {path} cannot be read")
            return ""
        faults.append(f"{place}: ${{{kind}:..}} is not known; use ${{env:NAME}} or ${{file:PATH}}")
        return ""

    return _REFERENCE.sub(put, text)


def _read(file: Path) -> CommentedMap:
    try:
        document = YAML(typ="rt").load(file.read_text(encoding="utf-8"))
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise BadSettings([f"{file}{line}: no valid YAML: {error.problem}"]) from None
    except (YAMLError, UnicodeDecodeError):
        raise BadSettings([f"{file}: no valid YAML"]) from None
    except OSError as error:
        raise BadSettings([f"{file}: cannot be read ({error.strerror})"]) from None
    if not isinstance(document, CommentedMap):
        raise BadSettings([f"{file}: must hold `current` and `clusters`"])
    faults = [
        f"{_place(file, document, key)}: {key}: unknown key{_nearest(str(key), _TOP_KEYS)}"
        for key in document
        if key not in _TOP_KEYS
    ]
    if faults:
        raise BadSettings(faults)
    return document


_TOP_KEYS = ("current", "clusters")


def _clusters(file: Path, document: CommentedMap) -> CommentedMap:
    clusters = document.get("clusters")
    if clusters is None:
        return CommentedMap()
    if not isinstance(clusters, CommentedMap):
        raise BadSettings([f"{_place(file, document, 'clusters')}: clusters must be a mapping"])
    return clusters


def _place(file: Path, section: CommentedMap, key: object) -> str:
    line = section.lc.data.get(key, [section.lc.line])[0] if section.lc.data else section.lc.line
    return f"{file}:{line + 1}"


def _nearest(word: str, known: Iterable[object]) -> str:
    close = difflib.get_close_matches(word, [str(k) for k in known], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
