"""An environment as it was understood: layers in place, secrets hidden."""

from __future__ import annotations

import io
import re
from typing import Any

from pydantic import SecretStr
from ruamel.yaml import YAML

from blocks.manifest.loader import Loaded
from blocks.manifest.secrets import MASK, Secrets
from blocks.manifest.tree import Item, Scalar

_TELLING = re.compile(r"(?i)passw|passphrase|secret|token|credential|private_?key|api_?key")


def rendered(loaded: Loaded, *, guests: bool = False) -> dict[str, Any]:
    """The merged document as plain data, and with ``guests`` what it compiles to.

    Whatever came from a secret is ``***``, wherever it landed.
    """
    shown = _shown(loaded.tree, loaded.secrets)
    document: dict[str, Any] = shown if isinstance(shown, dict) else {}
    if guests:
        environment = loaded.environment
        document["guests"] = [
            _masked(guest.model_dump(exclude_none=True), loaded.secrets)
            for guest in environment.guests
        ]
        document["source_files"] = [str(file) for file in environment.source_files]
    return document


def to_yaml(document: Any) -> str:
    """Plain data as YAML, keys in their order."""
    yaml = YAML(typ="rt", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _shown(item: Item, secrets: Secrets) -> Any:
    if isinstance(item.value, dict):
        return {
            key: MASK if _is_telling(key, child) else _shown(child, secrets)
            for key, child in item.value.items()
        }
    if isinstance(item.value, list):
        return [_shown(child, secrets) for child in item.value]
    if item.masked is not None:
        return secrets.mask(item.masked)
    return _hidden(item.value, secrets)


def _is_telling(key: str, item: Item) -> bool:
    """Whether a secret is written out. Layers for other tools may do so, and are not read here."""
    value = item.value
    return isinstance(value, str) and bool(_TELLING.search(key)) and "${" not in value


def _hidden(value: Scalar, secrets: Secrets) -> Scalar:
    if isinstance(value, str):
        return secrets.mask(value)
    return value


def _masked(value: Any, secrets: Secrets) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, dict):
        return {key: _masked(child, secrets) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(child, secrets) for child in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return secrets.mask(str(value))
