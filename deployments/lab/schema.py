"""Typed parameters: what an endpoint takes, checked in the wording of the real server.

Texts recorded from a Proxmox VE 9.2 server (scenarios 01 to 12b).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN = "property is not defined in schema and the schema does not allow additional properties"
MISSING = "property is missing and it is not optional"
_TRUE = {"1", "on", "yes", "true"}
_FALSE = {"0", "off", "no", "false"}


class FormatError(ValueError):
    """A value that does not fit its format; the text ends as the real one does."""


@dataclass(frozen=True)
class Prop:
    """One parameter or one key of a property string.

    ``fmt`` is a check by name or a nested property string; ``default_key`` marks the key that may
    stand without its name; ``alias``/``key_to`` describe keys that are themselves a value, as
    ``virtio=MAC`` means ``model=virtio,macaddr=MAC``. ``modelled`` False marks what the real server
    takes and the lab cannot do: a call that uses it answers 501.
    """

    type: str = "string"
    optional: bool = True
    enum: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None
    fmt: Callable[[str], None] | PropertyFormat | None = None
    min_length: int | None = None
    max_length: int | None = None
    requires: str | None = None
    default_key: bool = False
    alias: str | None = None
    key_to: str | None = None
    modelled: bool = True


PropertyFormat = Mapping[str, Prop]
Schema = Mapping[str, Prop]


def integer(minimum: float | None = None, maximum: float | None = None, **more: Any) -> Prop:
    """An integer parameter."""
    return Prop("integer", minimum=minimum, maximum=maximum, **more)


def number(minimum: float | None = None, maximum: float | None = None, **more: Any) -> Prop:
    """A number parameter, fractions allowed."""
    return Prop("number", minimum=minimum, maximum=maximum, **more)


def boolean(**more: Any) -> Prop:
    """A parameter that takes 0 and 1 only."""
    return Prop("boolean", **more)


def enum(*words: str, **more: Any) -> Prop:
    """One of some words."""
    return Prop(enum=words, **more)


def string(fmt: Any = None, **more: Any) -> Prop:
    """A text parameter."""
    return Prop(fmt=fmt, **more)


def validate(
    params: Mapping[str, Any], schema: Schema, path: str = ""
) -> tuple[dict[str, Any], dict[str, str]]:
    """Check all parameters at once.

    ``path`` goes before the names of required keys in error texts.
    Returns the values (integers, numbers and booleans as numbers, texts as given) and one error
    text per refused parameter.
    """
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, value in params.items():
        prop = schema.get(name)
        if prop is None:
            errors[name] = UNKNOWN
            continue
        try:
            values[name] = check_value(name, value, prop)
        except FormatError as error:
            errors[name] = str(error)
    for name, prop in schema.items():
        if name not in params and not prop.optional:
            errors[name] = MISSING
        if name in params and prop.requires and prop.requires not in params:
            errors[prop.requires] = f"missing property required by '{path}{name}'"
    return values, errors


def check_value(name: str, value: Any, prop: Prop) -> Any:
    """One value, converted by its type; raises FormatError with the real server's text."""
    if isinstance(value, bool):
        value = int(value)
    if prop.type in ("integer", "number", "boolean"):
        return _number(value, prop)
    if prop.type == "array":
        return [str(item) for item in value] if isinstance(value, list) else [str(value)]
    text = str(value)
    if prop.max_length is not None and len(text) > prop.max_length:
        raise FormatError(f"value may only be {prop.max_length} characters long")
    if prop.min_length is not None and len(text) < prop.min_length:
        raise FormatError(f"value must be at least {prop.min_length} characters long")
    if prop.enum and text not in prop.enum:
        words = ", ".join(prop.enum)
        raise FormatError(f"value '{text}' does not have a value in the enumeration '{words}'")
    if prop.pattern is not None and not re.fullmatch(prop.pattern, text):
        raise FormatError("value does not match the regex pattern")
    if isinstance(prop.fmt, Mapping):
        try:
            parse_property_string(text, prop.fmt, name)
        except FormatError as error:
            raise FormatError(f"invalid format - {error}") from None
    elif prop.fmt is not None:
        try:
            prop.fmt(text)
        except FormatError as error:
            raise FormatError(f"invalid format - {error}\n") from None
    return text


def _number(value: Any, prop: Prop) -> int | float:
    text = str(value)
    patterns = {
        "integer": r"[+-]?\d+",
        "boolean": r"[01]",
        "number": r"[+-]?(?=\.?\d)\d*\.?\d*(?:[eE][+-]?\d+)?",
    }
    if not re.fullmatch(patterns[prop.type], text):
        raise FormatError(f"type check ('{prop.type}') failed - got '{text}'")
    number = int(text) if prop.type != "number" else float(text)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if prop.minimum is not None and number < prop.minimum:
        raise FormatError(f"value must have a minimum value of {prop.minimum:g}")
    if prop.maximum is not None and number > prop.maximum:
        raise FormatError(f"value must have a maximum value of {prop.maximum:g}")
    return number


def parse_property_string(text: str, fmt: PropertyFormat, path: str = "") -> dict[str, Any]:
    """A comma list such as ``virtio=MAC,bridge=vmbr0`` as a dict of its keys.

    Booleans come back as 0 or 1 and numbers as numbers. Raises FormatError with one line for each
    refused key.
    """
    raw: dict[str, str] = {}
    default = next((key for key, prop in fmt.items() if prop.default_key), None)
    for part in text.split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals:
            if default is None:
                raise FormatError("value without key, but schema does not define a default key\n")
            if default in raw:
                raise FormatError(
                    "duplicate key in comma-separated list property: " + default + "\n"
                )
            raw[default] = part
            continue
        prop = fmt.get(key)
        if prop is not None and prop.alias:
            if prop.key_to:
                raw[prop.key_to] = key
            key = prop.alias
        if key in raw:
            raise FormatError(f"duplicate key in comma-separated list property: {key}\n")
        raw[key] = value
    return _checked_keys(raw, fmt, path)


def _checked_keys(raw: dict[str, str], fmt: PropertyFormat, path: str) -> dict[str, Any]:
    known = {key: prop for key, prop in fmt.items() if not prop.alias}
    for key, value in raw.items():
        prop = known.get(key)
        if prop is not None and prop.type == "boolean":
            lowered = value.lower()
            raw[key] = "1" if lowered in _TRUE else "0" if lowered in _FALSE else value
    values, errors = validate(raw, known, f"{path}.")
    if errors:
        lines = "".join(f"{path}.{key}: {errors[key]}\n" for key in sorted(errors))
        raise FormatError("format error\n" + lines)
    return values


def print_property_string(values: Mapping[str, Any], fmt: PropertyFormat) -> str:
    """The canonical text: the default key bare and first, then required keys, then the others."""
    parts: list[str] = []
    default = next((key for key, prop in fmt.items() if prop.default_key), None)
    if default is not None and default in values:
        folded = _folded_alias(values, fmt, default)
        parts.append(folded or str(values[default]))
    for key in sorted(values, key=lambda k: (k not in fmt or fmt[k].optional, k)):
        if key == default or (fmt.get(key) is not None and _is_folded(key, fmt)):
            continue
        parts.append(f"{key}={values[key]}")
    return ",".join(parts)


def _folded_alias(values: Mapping[str, Any], fmt: PropertyFormat, default: str) -> str | None:
    prop = fmt.get(str(values[default]))
    if prop is None or prop.alias is None:
        return None
    if prop.key_to == default and prop.alias in values:
        return f"{values[default]}={values[prop.alias]}"
    return None


def _is_folded(key: str, fmt: PropertyFormat) -> bool:
    return any(prop.alias == key and prop.key_to for prop in fmt.values())
