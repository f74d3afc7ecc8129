"""The JSON Schema says what loading accepts, so that editors help before a load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from blocks.manifest.schema import KINDS, schema
from tests.blocks.manifest.sample import ENV, changed
from tests.blocks.manifest.test_single_mistakes import WRONG

EXAMPLES = Path(__file__).parents[3] / "deployments" / "environments"
FILES = sorted(EXAMPLES.glob("*/*.yaml"))

# What a schema can see of one document: words and shapes, not what other layers say.
SEEN = (
    "unknown key",
    "unknown key of a zone",
    "unknown key of the document",
    "missing key",
    "wrong type",
    "list for a mapping",
    "too little memory",
    "wrong choice",
    "unknown distribution",
    "state of SELinux that there is none of",
    "number out of range",
    "address without prefix",
    "size without unit",
    "wrong version",
)


def parsed(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def troubles(kind: str, document: Any) -> list[str]:
    validator = Draft202012Validator(schema(kind))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_is_a_schema(kind: str) -> None:
    Draft202012Validator.check_schema(schema(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described_and_shown_by_example(kind: str) -> None:
    bare: list[str] = []

    for name, part in {kind: schema(kind), **schema(kind).get("$defs", {})}.items():
        for field, rule in part.get("properties", {}).items():
            text = str(rule)
            if "description" not in rule:
                bare.append(f"{name}.{field} has no description")
            hinted = any(
                word in text
                for word in ("examples", "enum", "const", "$ref", "boolean", "default", "object")
            )
            if not hinted:
                bare.append(f"{name}.{field} has no example")

    assert bare == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_example_document_fits_its_schema(file: Path) -> None:
    document = parsed(file.read_text())

    assert troubles(document["kind"], document) == []


def test_there_are_examples_to_check() -> None:
    assert {file.parent.name for file in FILES} == {
        "lab",
        "golden",
        "oracle-rac-2node",
        "pg-single",
    }


@pytest.mark.parametrize("case", SEEN)
def test_a_mistake_in_one_document_is_seen(case: str) -> None:
    old, new, *_ = WRONG[case]

    assert troubles("Env", parsed(ENV)) == []
    assert troubles("Env", parsed(changed(old, new))) != []


@pytest.mark.parametrize(
    "words",
    [
        'vm_id: "${env:VMID}"',
        'vm_id: "${env:VMID|default:101}"',
    ],
)
def test_a_template_may_stand_for_any_value(words: str) -> None:
    assert troubles("Env", parsed(changed("vm_id: 101", words))) == []
    assert troubles("Env", parsed(changed("vm_id: 101", "vm_id: '101x'"))) != []


def test_layers_may_be_references_and_hooks_older_spellings() -> None:
    document = parsed(ENV)
    document["spec"]["networks"] = {"$ref": "./networks.yaml"}
    document["spec"]["databases"] = [{"$ref": "./db.yaml"}]
    document["hooks"] = {"pre_apply": [{"run": "echo"}], "post_apply": None}

    assert troubles("Env", document) == []


def test_only_an_environment_with_a_profile_may_leave_layers_out() -> None:
    head = {"version": "1", "kind": "Env", "metadata": {"name": "x"}}

    assert troubles("Env", {**head, "extends": "pg-single"}) == []
    assert troubles("Env", head) != []
