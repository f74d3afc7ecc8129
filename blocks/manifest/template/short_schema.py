"""The short forms of a template in its JSON Schema: what loading writes out (`shorthand`)."""

from __future__ import annotations

from typing import Any

from blocks.manifest.template.counted import MOST

_TEXT: dict[str, Any] = {"type": "string"}
_MAPPING: dict[str, Any] = {"type": "object"}

# Part of the schema, key: a word may stand for the whole mapping.
_WORDS = {
    "TemplateSpec": ("image", "disk", "firmware", "rebuild", "alias"),
    "CloneSpec": ("disk",),
    "CloudInitSpec": ("snippets",),
}
# A single entry may stand for the list; where True, an entry may be a word.
_LISTS = {
    "TemplateSpec": {"pci": True, "nics": True, "disks": True, "clones": False},
    "CloneSpec": {"pci": True, "nics": True, "ip": True},
    "CloudInitSpec": {
        "ip": True,
        "ssh_keys": True,
        "dns": True,
        "search": True,
        "packages": True,
        "commands": True,
    },
}
_DOCUMENTS = ("user_data", "vendor_data", "network_config")


def allow_short_forms(name: str, part: dict[str, Any]) -> None:
    """Widen the part of that name, in place."""
    properties = part.get("properties", {})
    for key in _WORDS.get(name, ()):
        _choices(properties, key).append(_TEXT)
    for key, words in _LISTS.get(name, {}).items():
        choices = _choices(properties, key)
        lists = [choice for choice in choices if choice.get("type") == "array"]
        for choice in lists:
            entry = choice["items"]
            choices.append(entry)
            if words:
                choice["items"] = {"anyOf": [entry, _TEXT]}
        if words:
            choices.append(_TEXT)
    if name == "CloudInitSpec":
        for key in _DOCUMENTS:
            _choices(properties, key).append(_MAPPING)
    if name == "CloneSpec":
        properties["count"] = {
            "description": "Make this many of it, with {n} in name, vm_id and ip",
            "examples": [3],
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MOST},
                {"type": "string", "pattern": r"^[0-9]+$|\$\{"},
            ],
        }
        _choices(properties, "vm_id").append({"type": "string", "pattern": r"\{|^[0-9]+$"})
        _choices(properties, "node").append({"type": "array", "items": _TEXT})


def _choices(properties: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The alternatives of a property, which gets some if it has none."""
    rule = properties[key]
    if "anyOf" not in rule:
        notes = {
            name: rule.pop(name) for name in ("description", "examples", "default") if name in rule
        }
        inner = dict(rule)
        rule.clear()
        rule.update({**notes, "anyOf": [inner]})
    found: list[dict[str, Any]] = rule["anyOf"]
    return found
