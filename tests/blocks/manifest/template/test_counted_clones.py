"""Counted clones: patterns are filled in, and never evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocks.manifest.template.patterns import fill
from tests.blocks.manifest.sample import only_fault
from tests.blocks.manifest.template.sample import MINIMAL, recipe, with_spec


@pytest.mark.parametrize(
    ("pattern", "number", "filled"),
    [
        ("web{n}", 7, "web7"),
        ("web{n:02}", 7, "web07"),
        ("web{n:3}", 7, "web007"),
        ("10.0.0.{n+10}/24", 7, "10.0.0.17/24"),
        ("{n-1}-{n}", 1, "0-1"),
        ("{ n + 99 :02}", 1, "100"),
        ("none", 1, "none"),
        ("${n}", 1, "${n}"),
    ],
)
def test_patterns_are_filled_in(pattern: str, number: int, filled: str) -> None:
    assert fill(pattern, number) == filled


@pytest.mark.parametrize(
    "pattern", ["{i}", "{n*2}", "{}", "{n.__class__}", "{n!r}", "{n:>9}", "{n-2}", "{0}"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"write \{n\}"):
        fill(pattern, 1)


@given(st.text(max_size=30), st.integers(min_value=1, max_value=500))
def test_any_text_is_filled_in_or_refused(pattern: str, number: int) -> None:
    try:
        made = fill(pattern, number)
    except ValueError:
        return
    assert ("{" in pattern and "}" in pattern) or made == pattern


def test_a_count_makes_that_many_clones_on_the_nodes_in_turn(tmp_path: Path) -> None:
    text = with_spec(
        """
clones:
  - count: 5
    name: web{n:02}
    vm_id: 9101
    node: [pve1, pve2]
    ip: 10.0.0.{n+10}/24
    gateway: 10.0.0.1
    description: number {n}
""",
        MINIMAL,
    )

    clones = recipe(tmp_path, text).clones

    assert [clone.name for clone in clones] == ["web01", "web02", "web03", "web04", "web05"]
    assert [clone.vmid for clone in clones] == [9101, 9102, 9103, 9104, 9105]
    assert [clone.node for clone in clones] == ["pve1", "pve2", "pve1", "pve2", "pve1"]
    assert [str(clone.ssh_addresses[0]) for clone in clones][-1] == "10.0.0.15"
    assert clones[4].description == "number 5"


def test_numbers_may_follow_a_pattern_and_one_entry_needs_no_list(tmp_path: Path) -> None:
    text = with_spec(
        'clones: { count: 2, name: "w{n}", vm_id: "91{n:02}", ip: ["10.0.0.{n}/24", auto6],'
        " nics: [vmbr0, vmbr1] }"
    )

    clones = recipe(tmp_path, text).clones

    assert [clone.vmid for clone in clones] == [9101, 9102]
    assert [clone.nics[1].inet.ipv6 for clone in clones] == ["auto", "auto"]


def test_braces_in_commands_and_documents_stay(tmp_path: Path) -> None:
    text = with_spec(
        'clones: [{ count: 2, name: "w{n}", vm_id: 200,'
        ' cloud_init: { commands: ["echo {n} {x}"] } }]'
    )

    clones = recipe(tmp_path, text).clones

    assert {clone.cloud_init.commands for clone in clones if clone.cloud_init} == {
        ("echo {n} {x}",)
    }


@pytest.mark.parametrize(
    ("entry", "key", "words"),
    [
        ("name: web, vm_id: 200", "name", "is the same for all 3 clones; write a pattern such as"),
        ("name: 'web{i}', vm_id: 200", "name", "has {i}, which is no pattern; write {n}"),
        ("name: 'web{n}', vm_id: '200'", "vm_id", "is text, and the same for all 3 clones"),
        ("name: 'web{n}', vm_id: 200, ip: 10.0.0.5/24", "ip", "is the same for all 3 clones"),
        (
            "name: 'web{n}', vm_id: 200, ip: '10.0.0.{n+253}/24'",
            "ip",
            "is 10.0.0.256/24 for clone 3, which is no address",
        ),
        ("name: 'web{n}'", "vm_id", "is missing; add 'vm_id: ...'"),
    ],
)
def test_a_mistake_in_a_counted_entry_is_said_once(
    entry: str, key: str, words: str, tmp_path: Path
) -> None:
    fault = only_fault(tmp_path, with_spec(f"clones: [{{ count: 3, {entry} }}]"))

    assert fault.key == f"spec.clones[0].{key}"
    assert words in str(fault)


def test_counted_clones_may_not_run_into_generations(tmp_path: Path) -> None:
    text = with_spec("rebuild: weekly\nclones: [{ count: 3, name: 'w{n}', vm_id: 8998 }]")

    fault = only_fault(tmp_path, text)

    assert "the number 9000 is taken at" in str(fault)
