"""Whatever stands in a template, a user sees faults and never a traceback."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from blocks.manifest.environment import Environment
from blocks.manifest.faults import ManifestError
from blocks.manifest.loader import load_environment
from tests.blocks.manifest.sample import KEY, SEED
from tests.blocks.manifest.template.sample import TEMPLATE

WHOLE = YAML(typ="safe", pure=True).load(TEMPLATE)
WHOLE["spec"] |= {
    "firmware": {"bios": "ovmf", "secure_boot": True, "tpm": True},
    "pci": [{"mapping": "gpu"}, "01:00.0"],
    "disks": ["5G", {"size": "6G", "slot": "scsi2"}],
}
WHOLE["spec"]["cloud_init"] |= {
    "ip": ["dhcp"],
    "snippets": "local",
    "vendor_data": {"packages": ["htop"]},
    "network_config": None,
}
WHOLE["spec"]["clones"].append(
    {"count": 3, "name": "w{n}", "vm_id": 9110, "ip": "10.0.0.{n+20}/24", "node": ["a", "b"]}
)

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "10.0.0.1", "10.0.0.0/24", "10.0.0.9/24", "fe80::1/64", "::1", "auto", "dhcp", "{n}",
            "10.0.0.{n}/24", "{n+999999999}", "{", "${env:X}", "${ref:spec}", "${ref:spec.clones}",
            "${gen:password:8}", "1", "64G", "scsi1", "linked", "weekly", "9000-9009", "9-1",
            "debian13", "https://e.com/x", "../..", "~", "\u0000", "${file:.}", "ssh-rsa",
            "#cloud-config", "#cloud-config\na: [", "template", "gpu", "0000:01:00.0", "snippets",
        ]
    ),
    st.just([]),
    st.just({}),
    st.just({"$ref": "."}),
    st.just([[None]]),
    st.just([{"count": 2}]),
    st.just({"count": 2, "name": "x{n}", "vm_id": "{n+500}"}),
    st.just({"": {"": ""}}),
)  # fmt: skip


def _places(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    children: Any = ()
    if isinstance(node, dict | list):
        children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in children:
        found += _places(child, (*path, key))
    return found


PLACES = _places(WHOLE)


def outcome(text: str) -> Environment | ManifestError:
    with tempfile.TemporaryDirectory() as folder:
        master = Path(folder) / "t.yaml"
        master.write_text(text, encoding="utf-8")
        try:
            return load_environment(
                master, env={"PROXFLOW_STATE_DIR": folder, "PROXFLOW_CONFIG_DIR": folder}, seed=SEED
            )
        except ManifestError as error:
            return error


def test_the_whole_sample_loads() -> None:
    found = outcome(json.dumps(WHOLE))

    assert isinstance(found, Environment), str(found)
    assert len(found.guests) == 6


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PLACES), junk), min_size=1, max_size=3))
def test_junk_in_any_place_gives_faults_or_an_environment(
    changes: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    document = copy.deepcopy(WHOLE)
    for path, value in changes:
        node = document
        try:
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue

    found = outcome(json.dumps(document))

    if isinstance(found, ManifestError):
        assert found.faults
        assert KEY.split()[1] not in str(found)
    else:
        assert found.recipe is not None
        assert len(found.guests) == 1 + len(found.recipe.clones)
