"""Property strings of Proxmox VE (``virtio=MAC,bridge=vmbr0,tag=20``) to dictionaries and back.

Reading and writing lose nothing: unknown keys stay, and a value that does not fit its type stays
as the text that it is. The grammar has no quoting: a value with a comma cannot be written (the
server refuses to print one, too).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from urllib.parse import quote, unquote

from blocks.proxmox.properties.kinds import KINDS, NIC_MODELS, Kind, Type
from blocks.units import format_size, parse_size

Value = bool | int | float | str | tuple[str, ...]
Properties = dict[str, Value]

_TRUE = frozenset({"1", "on", "yes", "true"})
_FALSE = frozenset({"0", "off", "no", "false"})
_INT = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?[KMGT]?")
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_SMBIOS_PLAIN = frozenset({"uuid", "base64"})


class PropertyError(ValueError):
    """A text that is no property string of its kind, or a value that none can hold."""


def parse(kind: str, text: str) -> Properties:
    """The values of a property string of that kind (a key of ``KINDS``).

    Switches become bool, ``size`` becomes bytes, ``;`` lists become tuples, a disk's serial number
    and the fields of a base64 ``smbios1`` are decoded; ``virtio=MAC`` becomes ``model`` and
    ``macaddr``, ``volume=`` becomes ``file``. A blank text is an empty dictionary. Raises
    PropertyError for a key given twice, a key without a value and a lone value where the kind
    has no default key.
    """
    spec = KINDS[kind]
    found: Properties = {}
    for part in text.split(","):
        if not part.strip():
            continue
        for key, word in _split(kind, spec, part):
            if key in found:
                raise PropertyError(f"{kind}: '{key}' is given twice in {text!r}")
            found[key] = _read(spec.types.get(key, "text"), word)
    return _smbios(found, _unbase64) if kind == "smbios1" else found


def format(kind: str, value: Mapping[str, Value]) -> str:
    """The property string of such a dictionary, keys in the order in which the server writes them.

    That is: the default key, required keys, then the rest by name. Empty lists are left out. Raises
    PropertyError for a value that cannot be written (comma, line break, nothing).
    """
    spec = KINDS[kind]
    if kind == "smbios1":
        value = _smbios(dict(value), _base64)
    rest = {key: item for key, item in value.items() if item != ()}
    parts = [_head(kind, rest)] if kind == "net" and rest.get("model") in NIC_MODELS else []
    first = [key for key in (spec.default, *spec.required) if key in rest]
    for key in [*first, *sorted(rest.keys() - set(first))]:
        word = _write(kind, key, spec.types.get(key, "text"), rest[key])
        lone = key == spec.default and "=" not in word and word.strip()
        parts.append(word if lone else f"{key}={word}")
    return ",".join(parts)


def normal(kind: str, text: str) -> str:
    """The same property string in the one spelling that ``format`` has for it."""
    return format(kind, parse(kind, text))


def _split(kind: str, spec: Kind, part: str) -> list[tuple[str, str]]:
    key, equals, word = part.partition("=")
    if not equals:
        if spec.default is None:
            raise PropertyError(f"{kind}: {part!r} has no key; write key=value")
        return [(spec.default, part)]
    if not key or not word:
        raise PropertyError(f"{kind}: {part!r} has no {'value' if key else 'key'}")
    if kind == "net" and key in NIC_MODELS:
        return [("model", key), ("macaddr", word)]
    return [(spec.aliases.get(key, key), word)]


def _head(kind: str, rest: Properties) -> str:
    """Take model and MAC out of a network card: ``virtio=MAC``, or ``virtio`` without one."""
    model = str(rest.pop("model"))
    if "macaddr" not in rest:
        return model
    return f"{model}={_write(kind, 'macaddr', 'text', rest.pop('macaddr'))}"


def _read(type_: Type, word: str) -> Value:  # noqa: PLR0911 - one line a type
    if type_ == "bool" and word.lower() in _TRUE | _FALSE:
        return word.lower() in _TRUE
    if type_ == "int" and _INT.fullmatch(word):
        return int(word)
    if type_ == "number" and _NUMBER.fullmatch(word):
        return float(word)
    if type_ == "size" and _SIZE.fullmatch(word) and word.strip("0.KMGT"):
        return parse_size(word)
    if type_ == "list":
        return tuple(item for item in word.split(";") if item)
    if type_ == "urlencoded":
        return unquote(word)
    return word


def _write(kind: str, key: str, type_: Type, value: Value) -> str:
    if not _NAME.fullmatch(key):
        raise PropertyError(f"{kind}: {key!r} is no key")
    if isinstance(value, bool):
        word = "1" if value else "0"
    elif isinstance(value, int):
        word = format_size(value) if type_ == "size" else str(value)
    elif isinstance(value, float):
        word = f"{Decimal(repr(value)):f}".removesuffix(".0")
    elif isinstance(value, tuple):
        word = ";".join(value)
    else:
        word = quote(value, safe="") if type_ == "urlencoded" else value
    if not word or "," in word or len(word.splitlines()) > 1 or word.endswith(("\n", "\r")):
        raise PropertyError(
            f"{kind}: a value of '{key}' may not be empty, nor hold a comma or a line break"
        )
    return word


def _smbios(value: Properties, change: Callable[[str, str], str]) -> Properties:
    if value.get("base64") is not True:
        return value
    return {k: v if k in _SMBIOS_PLAIN else change(k, str(v)) for k, v in value.items()}


def _base64(_key: str, word: str) -> str:
    return base64.b64encode(word.encode()).decode()


def _unbase64(key: str, word: str) -> str:
    try:
        return base64.b64decode(word, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise PropertyError(f"smbios1: '{key}' is no base64 text, though base64=1") from None
