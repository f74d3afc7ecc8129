"""The example template, the schema, and the commands that know templates."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from blocks.manifest import reader
from blocks.manifest.loader import load_environment
from blocks.manifest.schema import schema
from blocks.manifest.template import catalogue
from flows.manifest import main
from tests.blocks.manifest.sample import changed, write
from tests.blocks.manifest.template.sample import MINIMAL, TEMPLATE, with_spec
from tests.blocks.manifest.template.test_faults import WRONG

GOLDEN = Path(__file__).parents[4] / "deployments" / "environments" / "golden"

# What a schema can see of one document: words and shapes, not what other parts say.
SEEN = (
    "unknown key",
    "unknown key of a clone",
    "missing node",
    "number out of range",
    "unknown time of rebuilding",
    "count that is none",
    "PCI id read as a number",
)


def troubles(text: str) -> list[str]:
    document: Any = YAML(typ="safe", pure=True).load(text)
    validator = Draft202012Validator(schema("Template"))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("name", ["template", "minimal"])
def test_the_examples_load_without_a_notice(name: str, tmp_path: Path) -> None:
    found = load_environment(GOLDEN / f"{name}.yaml", env={"PROXFLOW_CONFIG_DIR": str(tmp_path)})

    assert found.recipe is not None
    assert found.notices == ()


def test_the_example_shows_clones_on_three_nodes_that_all_get_the_agent() -> None:
    recipe = load_environment(GOLDEN / "template.yaml", env={}).recipe

    assert recipe is not None
    assert {clone.node for clone in recipe.clones} == {"pve1", "pve2", "pve3"}
    assert all(clone.agent for clone in recipe.clones)
    assert {clone.cloud_init.method for clone in recipe.clones if clone.cloud_init} == {"seed"}


def test_the_example_of_own_images_is_read_beside_it(tmp_path: Path) -> None:
    (tmp_path / "images.yaml").write_text((GOLDEN / "images.yaml").read_text())

    found = load_environment(write(tmp_path, changed("debian13", "house", MINIMAL)), env={})

    image = found.guests[0].image
    assert image is not None
    assert image.origin == "https://images.example.com/house/debian-13-house.qcow2"


def test_a_template_loads_in_less_than_a_tenth_of_a_second() -> None:
    catalogue.shipped()

    def processor_time() -> float:
        reader.compose.cache_clear()
        start = time.thread_time()
        load_environment(GOLDEN / "template.yaml", env={})
        return time.thread_time() - start

    assert min(processor_time() for _ in range(5)) < 0.1


@pytest.mark.parametrize(
    "text",
    [
        TEMPLATE,
        MINIMAL,
        with_spec("disk: 30G\nfirmware: ovmf\nrebuild: weekly\nalias: now\npci: gpu\nnics: vmbr1"),
        with_spec("disks: [5G]\npci: [gpu, '01:00.0', { mapping: x }]\nnics: [vmbr0, { vlan: 5 }]"),
        with_spec("clones: { count: 3, name: 'w{n}', vm_id: 200, ip: '10.0.0.{n}/24' }"),
        with_spec("clones: [{ count: '2', name: 'w{n}', vm_id: '2{n:02}', node: [a], ip: dhcp }]"),
        MINIMAL + "    ip: { address: dhcp, address6: auto }\n    snippets: a\n    dns: 1.1.1.1\n",
        MINIMAL + "    vendor_data: { packages: [htop] }\n    packages: htop\n",
        with_spec("ostype: ${env:OSTYPE}\nresources: { cores: '${env:CORES}' }"),
    ],
    ids=range(9),
)  # fmt: skip
def test_the_schema_takes_the_short_forms(text: str) -> None:
    assert troubles(text) == []


@pytest.mark.parametrize("case", SEEN)
def test_the_schema_sees_a_mistake(case: str) -> None:
    old, new, *_ = WRONG[case]

    assert troubles(changed(old, new, TEMPLATE)) != []


def test_the_commands_for_manifests_know_templates(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(GOLDEN / "template.yaml")

    assert main(["validate", file]) == 0
    assert main(["render", "--json", file]) == 0
    assert main(["schema", "template"]) == 0

    out = capsys.readouterr().out
    assert "debian13-golden is valid" in out
    assert '"name": "web04"' in out
    assert json.dumps("Template") in out


GUIDE = (GOLDEN.parents[2] / "docs" / "template.md").read_text()


def test_the_guide_lists_the_catalogue() -> None:
    for name, image in catalogue.shipped().images.items():
        rows = [line for line in GUIDE.splitlines() if line.startswith(f"| `{name}` |")]
        assert len(rows) == 1, name
        assert image.title in rows[0]
        assert f"`{image.user}`" in rows[0]
        assert all(f"`{alias}`" in rows[0] for alias in image.aliases)
        assert ("pinned" in rows[0]) == (image.checksum is not None)
        assert ("signed" in rows[0]) == (image.signature is not None)


@pytest.mark.parametrize("kind", ["Template", "Images"])
def test_the_guide_names_every_key(kind: str) -> None:
    document = schema(kind)
    parts = {kind: document, **document["$defs"]}
    elsewhere = ("Hook", "Metadata")

    missing = [
        f"{part}.{key}"
        for part, rule in parts.items()
        if not any(word in part for word in elsewhere)
        for key in rule.get("properties", {})
        if key not in ("kind", "version", "images", "metadata", "spec")
        and f"`{key}`" not in GUIDE
        and f".{key}`" not in GUIDE
    ]

    assert missing == []


def test_the_guides_quick_start_loads(tmp_path: Path) -> None:
    first, second = [block.partition("```")[0] for block in GUIDE.split("```yaml\n")[1:3]]
    key = MINIMAL.partition('["')[2].partition('"')[0]

    found = load_environment(
        write(tmp_path, first.replace("~/.ssh/id_ed25519.pub", f'"{key}"') + second), env={}
    )

    assert [guest.name for guest in found.guests] == [
        "debian13-golden", "db1", "web01", "web02", "web03", "web04",
    ]  # fmt: skip
    assert found.notices == ()
