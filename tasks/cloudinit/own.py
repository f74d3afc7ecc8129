"""An operator's own documents: they go in unchanged, if cloud-init would know what they are."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tasks.iso.checks import RenderError

_CLOUD_CONFIG = "#cloud-config"
# First lines of other kinds that cloud-init acts on; what follows is not looked at.
_OTHERS = (
    "#!",
    "#include",
    "#cloud-boothook",
    "#cloud-config-archive",
    "#part-handler",
    "## template: jinja",
    "content-type: multipart/",
    "mime-version:",
)


def user_document(key: str, text: str) -> str:
    """User or vendor data. Raises RenderError where cloud-init would ignore or refuse it."""
    first = text.partition("\n")[0].rstrip()
    if first == _CLOUD_CONFIG:
        loaded = _yaml(key, text)
        if loaded is not None and not isinstance(loaded, dict):
            raise RenderError(key, f"{_CLOUD_CONFIG} has to be a mapping of keys to values")
        return _whole(key, text)
    if not first.lower().startswith(_OTHERS):
        raise RenderError(
            key,
            "cloud-init would not know what it is; its first line has to be #cloud-config, "
            "#! and a program, or a MIME header",
        )
    return _whole(key, text)


def network_document(key: str, text: str) -> str:
    """A network document, version 1 or 2. Raises RenderError."""
    loaded = _yaml(key, text)
    inner = loaded.get("network", loaded) if isinstance(loaded, dict) else None
    if not isinstance(inner, dict) or not inner.keys() & {"version", "config"}:
        raise RenderError(key, "is no network document: it needs `version: 2` (or 1)")
    return _whole(key, text)


def _whole(key: str, text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise RenderError(key, "has half of a surrogate pair, which is no character")
    return text


def _yaml(key: str, text: str) -> Any:
    reader = YAML(typ="safe", pure=True)
    # Old images read YAML 1.1; a key given twice is the last one's there, and a mistake.
    reader.version = (1, 1)
    try:
        return reader.load(text)
    except MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise RenderError(key, f"is no YAML{where}: {error.problem or 'syntax error'}") from None
    except (YAMLError, ValueError) as error:
        raise RenderError(key, f"is no YAML: {type(error).__name__}") from None
