"""Whatever stands in a manifest, a user sees faults and never a traceback."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from blocks.manifest.environment import Environment
from blocks.manifest.faults import ManifestError
from blocks.manifest.loader import load_environment
from tests.blocks.manifest.sample import ENV, KEY, SEED, changed

WHOLE = YAML(typ="safe", pure=True).load(
    ENV
    + """
  cluster:
    kind: Cluster
    type: oracle-rac
    scan_ips: [10.0.0.31, 10.0.0.32, 10.0.0.33]
    interconnect_subnet: 10.0.1.0/24
    hosts_entries: [{ ip: 10.0.0.50, names: [vip] }]
  linux: { kind: Linux, disk_layout: { additional: [{ tag: x }] } }
  databases: [{ kind: PostgresDatabase }]
hooks:
  on_apply_start: [{ type: slack, url: x }, { type: exec, cmd: y }]
  pre_apply: [{ run: z }]
"""
)
WHOLE["spec"]["hypervisor"]["defaults"] = {"tags": ["a"], "resources": {"cores": 2}, "nics": []}

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "10.0.0.1", "10.0.0.0/24", "fe80::1/64", "::1", "auto", "${env:X}", "${ref:spec}",
            "${ref:hooks.on_apply_start[0].url}", "${gen:password:8}", "1", "64G", "scsi1",
            "private", "vip", "host-only",
            "../..", "~", "\u0000", "${file:.}", "ssh-rsa", "ssh-rsa AAAA",
        ]
    ),
    st.just([]),
    st.just({}),
    st.just({"$ref": "."}),
    st.just({"$ref": 5}),
    st.just([[None]]),
    st.just({"": {"": ""}}),
)  # fmt: skip


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every part of plain data."""
    found = [path] if path else []
    if isinstance(data, dict):
        children = list(data.items())
    else:
        children = list(enumerate(data)) if isinstance(data, list) else []
    for step, child in children:
        found += places(child, (*path, step))
    return found


PLACES = places(WHOLE)


def outcome(text: str) -> Environment | ManifestError:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "env.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            return load_environment(path, env={"PROXFLOW_STATE_DIR": folder}, seed=SEED)
        except ManifestError as error:
            return error


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PLACES), junk), min_size=1, max_size=3))
def test_any_part_may_be_replaced_by_junk(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    document = copy.deepcopy(WHOLE)
    for path, value in changes:
        part = document
        for step in path[:-1]:
            try:
                part = part[step]
            except (KeyError, IndexError, TypeError):
                break
        if isinstance(part, dict) or (isinstance(part, list) and isinstance(path[-1], int)):
            try:
                part[path[-1]] = copy.deepcopy(value)
            except IndexError:
                continue

    found = outcome(json.dumps(document))

    if isinstance(found, ManifestError):
        assert found.faults
        assert all(fault.line and fault.problem for fault in found.faults)


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=len(ENV)), st.text(max_size=6), st.integers(0, 40))
def test_any_piece_of_the_text_may_be_damaged(at: int, new: str, cut: int) -> None:
    damaged = (ENV[:at] + new + ENV[at + cut :]).encode("utf-8", "replace").decode()

    found = outcome(damaged)

    assert isinstance(found, Environment) or found.faults


ODD_PATHS = ["a\\0b", "~nobody-here/x", "n" * 5000, ".", "/", "/dev/null/x", "~"]


@pytest.mark.parametrize("odd", ODD_PATHS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("private: { cidr: 10.0.1.0/24 }", 'private: {{ $ref: "{}" }}'),
        ("distro: rocky9", 'distro: rocky9\n      root_password_hash: "${{file:{}}}"'),
        (f'"{KEY}"', '"{}"'),
        ("kind: Env\n", 'kind: Env\nextends: "{}"\n'),
        ("name: shop", 'name: "{}"'),
        ("name: shop", 'description: "${{gen:password:8}}", name: "{}"'),
    ],
)  # fmt: skip
def test_odd_paths_are_faults(old: str, new: str, odd: str) -> None:
    assert isinstance(outcome(changed(old, new.format(odd))), ManifestError)


@pytest.mark.parametrize("odd", ["a\0b", "n" * 5000, "~nobody-here/env.yaml", ""])
def test_an_odd_path_of_the_master_file_is_a_fault(odd: str) -> None:
    with pytest.raises(ManifestError):
        load_environment(odd, env={})
