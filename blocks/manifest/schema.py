"""JSON Schema of the manifest documents, for editors and other tools."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from blocks.manifest.cluster import Cluster, Database, Linux
from blocks.manifest.document import Env
from blocks.manifest.hooks import OLDER_SPELLINGS, Hooks
from blocks.manifest.hypervisor import Hypervisor
from blocks.manifest.kickstart import Kickstart
from blocks.manifest.networks import Networks
from blocks.manifest.storage import StorageClasses
from blocks.manifest.template.catalogue import Images
from blocks.manifest.template.document import Template
from blocks.manifest.template.short_schema import allow_short_forms

KINDS: dict[str, type[BaseModel]] = {
    "Env": Env,
    "Hypervisor": Hypervisor,
    "Networks": Networks,
    "StorageClasses": StorageClasses,
    "Cluster": Cluster,
    "Linux": Linux,
    "Database": Database,
    "Kickstart": Kickstart,
    "Hooks": Hooks,
    "Template": Template,
    "Images": Images,
}

_NOTES = ("description", "examples", "title", "default")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEMPLATE = {"type": "string", "pattern": r"\$\{"}
_REF = {
    "type": "object",
    "description": "The layer is in a file of its own",
    "required": ["$ref"],
    "properties": {
        "$ref": {
            "type": "string",
            "description": "Path, relative to this file",
            "examples": ["./networks.yaml"],
        }
    },
}


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a kind of document. Raises KeyError for an unknown kind.

    Beyond the model it allows what loading puts in order: ``${...}`` in the place of any value,
    ``$ref`` in the place of a layer, null for "unset", and the older spellings of hooks.
    """
    made = KINDS[kind].model_json_schema(mode="validation")
    _adapt(made)
    for name, part in {kind: made, **made.get("$defs", {})}.items():
        _loosen(name, part)
    return {"$schema": _DIALECT, "title": kind, **made}


def _adapt(part: Any) -> None:
    """Allow templates where a value is no free text, and null for every property."""
    if isinstance(part, list):
        for each in part:
            _adapt(each)
        return
    if not isinstance(part, dict):
        return
    for key, child in part.items():
        if key in {"examples", "default", "enum", "required"}:
            continue
        _adapt(child)
        if key in {"properties", "$defs"} and isinstance(child, dict):
            continue
    properties = part.get("properties")
    if isinstance(properties, dict):
        required = part.get("required", [])
        part["properties"] = {
            name: _with_template(child, null=name not in required)
            for name, child in properties.items()
        }


def _with_template(part: dict[str, Any], *, null: bool) -> dict[str, Any]:
    notes = {key: value for key, value in part.items() if key in _NOTES}
    rule = {key: value for key, value in part.items() if key not in notes}
    if "const" in rule:
        return part
    choices = rule["anyOf"] if set(rule) == {"anyOf"} else [rule]
    free_text = any(choice == {"type": "string"} for choice in choices)
    extra = [] if free_text or "oneOf" in rule else [_TEMPLATE]
    if null and {"type": "null"} not in choices:
        extra.append({"type": "null"})
    return {**notes, "anyOf": [*choices, *extra]} if extra else part


def _loosen(name: str, part: dict[str, Any]) -> None:
    properties = part.get("properties", {})
    allow_short_forms(name, part)
    if name == "Env":
        # A profile may bring what the environment leaves out.
        part["required"] = [key for key in part["required"] if key != "spec"]
        part["anyOf"] = [{"required": ["extends"]}, {"required": ["spec"]}]
    if name == "Spec":
        part.pop("required", None)
        for layer in properties.values():
            layer.setdefault("anyOf", []).insert(0, _REF)
        databases = properties["databases"]["anyOf"]
        for choice in databases:
            if choice.get("type") == "array":
                choice["items"] = {"anyOf": [_REF, choice["items"]]}
    if name == "Hypervisor":
        properties["kickstart"].setdefault("anyOf", []).insert(0, _REF)
    if name == "Env":
        properties["hooks"].setdefault("anyOf", []).insert(0, _REF)
    if name in ("Iso", "Kickstart"):
        # A node says only what differs, and a profile may say the rest.
        part.pop("required", None)
    if name == "Hooks":
        for older, present in OLDER_SPELLINGS.items():
            properties[older] = {
                "description": f"Older spelling of {present}",
                "type": ["array", "null"],
                "items": {"type": "object"},
            }
    if name == "ExecHook":
        part.pop("required", None)
    if name.endswith("Hook"):
        part["additionalProperties"] = True
