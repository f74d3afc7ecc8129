"""YAML that every reader of cloud-init takes for the same values.

cloud-init reads YAML 1.1, in which a plain ``yes`` or ``0123`` is no text: every text is quoted.
Other characters than ASCII are escaped, since old readers refuse some of them.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from tasks.iso.checks import RenderError


def emit(value: dict[str, Any], *, head: str = "") -> str:
    """The YAML document of a mapping; ``head`` is its first line.

    Raises RenderError for text that cannot be written, such as half of a surrogate pair.
    """
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.allow_unicode = False
    yaml.width = 1 << 20
    stream = StringIO()
    yaml.dump(_quoted(value, ""), stream)
    return (f"{head}\n" if head else "") + stream.getvalue()


def _quoted(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _quoted(item, f"{key}.{name}".strip(".")) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_quoted(item, key) for item in value]
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise RenderError(key, "has half of a surrogate pair, which is no character")
        return DoubleQuotedScalarString(value)
    return value
