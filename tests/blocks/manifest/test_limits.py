"""What has no end, or far too much of it, is refused soon and in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.blocks.manifest.sample import KEY, changed, faults_of, line_of, load, write

PRIVATE = "private: { cidr: 10.0.1.0/24 }"


def said(path: Path) -> str:
    return "\n".join(map(str, faults_of(path)))


@pytest.mark.parametrize(
    "anchored", ["linux: &a [*a]", "linux: &a { x: *a }", "linux: &a\n    <<: *a"]
)
def test_an_anchor_in_itself_is_said_with_its_line(tmp_path: Path, anchored: str) -> None:
    text = changed("  networks:\n", f"  {anchored}\n  networks:\n")

    faults = [fault for fault in faults_of(write(tmp_path, text)) if "itself" in fault.problem]

    assert [fault.problem for fault in faults] == ["refers to itself"]
    assert (faults[0].line or 0) - line_of(text, "linux:") in (0, 1)


def test_an_anchor_may_be_used_again_beside_itself(tmp_path: Path) -> None:
    text = changed("dns: [10.0.0.2]", "dns: &servers [10.0.0.2]")
    text = changed(PRIVATE, "private: { cidr: 10.0.1.0/24, dns: *servers }", text)

    assert load(tmp_path, text).guests


@pytest.mark.parametrize("digits", ["9" * 10_000, "0x" + "f" * 10_000, f"'{'9' * 10_000}'"])
@pytest.mark.parametrize("old", ["vm_id: 101", "size: 32G", "cores: 2"])
def test_a_number_of_very_many_digits_is_a_fault(tmp_path: Path, old: str, digits: str) -> None:
    key = old.partition(":")[0]

    faults = faults_of(write(tmp_path, changed(old, f"{key}: {digits}")))

    assert any(fault.key.endswith(key) for fault in faults)


def test_a_template_with_an_index_of_very_many_digits_is_a_fault(tmp_path: Path) -> None:
    template = f"${{ref:metadata.tags[{'9' * 10_000}]}}"
    text = changed("name: shop", f"name: shop, tags: [a], description: '{template}'")

    assert "to refer to" in said(write(tmp_path, text))


def test_links_in_a_circle_are_said_at_the_reference(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    text = changed(PRIVATE, "private: { $ref: a.yaml }")

    assert "its symbolic links lead round in a circle" in said(write(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (PRIVATE, "private: {{ $ref: {} }}"),
        ("distro: rocky9", 'distro: rocky9\n      root_password_hash: "${{file:{}}}"'),
        (f'"{KEY}"', '"{}"'),
    ],
)
@pytest.mark.parametrize("odd", ["/dev/zero", "./fifo"])
def test_a_device_or_a_pipe_is_not_read(tmp_path: Path, old: str, new: str, odd: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    text = changed(old, new.format(odd))

    assert "a device or a pipe, not a regular file" in said(write(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "limit"),
    [
        (PRIVATE, "private: { $ref: ./big }", "5 MiB"),
        ("distro: rocky9", 'distro: rocky9\n      root_password_hash: "${file:./big}"', "1 MiB"),
        (f'"{KEY}"', '"./big"', "1 MiB"),
    ],
)
def test_a_file_that_is_too_large_is_refused_with_the_limit(
    tmp_path: Path, old: str, new: str, limit: str
) -> None:
    with (tmp_path / "big").open("wb") as big:
        big.truncate(5 * 2**20 + 1)

    assert f"larger than {limit}" in said(write(tmp_path, changed(old, new)))


def chained(folder: Path, length: int) -> Path:
    """A master file whose zone is the last of a chain of references."""
    for number in range(length - 1):
        (folder / f"z{number}.yaml").write_text(f"$ref: z{number + 1}.yaml\n")
    (folder / f"z{length - 1}.yaml").write_text("cidr: 10.0.1.0/33\n")
    return write(folder, changed(PRIVATE, "private: { $ref: z0.yaml }"))


def test_a_chain_of_very_many_references_is_cut_with_its_own_words(tmp_path: Path) -> None:
    faults = faults_of(chained(tmp_path, 1500))

    assert [fault.problem for fault in faults] == ["is reached by more than 50 references in a row"]


def test_a_chain_of_fifty_references_is_followed_to_its_end(tmp_path: Path) -> None:
    faults = faults_of(chained(tmp_path, 50))

    assert [Path(fault.file).name for fault in faults] == ["z49.yaml"]


def test_references_that_multiply_are_stopped(tmp_path: Path) -> None:
    for number in range(25):
        step = f"{{ $ref: f{number + 1}.yaml }}"
        (tmp_path / f"f{number}.yaml").write_text(f"a: {step}\nb: {step}\n")
    (tmp_path / "f25.yaml").write_text("cidr: 10.0.1.0/24\n")
    text = changed(PRIVATE, "private: { $ref: f0.yaml }")

    faults = faults_of(write(tmp_path, text))

    assert [fault.problem for fault in faults] == ["is one of more than 2000 references"]


@pytest.mark.parametrize("levels", [150, 1_000])
def test_what_is_nested_too_deeply_is_refused_in_these_words(tmp_path: Path, levels: int) -> None:
    deep = "[" * levels + "]" * levels
    text = changed("  networks:\n", f"  linux: {{ kind: Linux, x: {deep} }}\n  networks:\n")

    assert "is nested too deeply" in said(write(tmp_path, text))


def test_a_chain_of_very_many_templates_is_cut(tmp_path: Path) -> None:
    tags = ", ".join(f"'${{ref:metadata.tags[{n + 1}]}}'" for n in range(1500))
    text = changed("name: shop", f"name: shop, tags: [{tags}, a]")

    assert "is reached by more than 50 references in a row" in said(write(tmp_path, text))


def test_of_very_many_faults_the_first_thousand_are_said(tmp_path: Path) -> None:
    keys = "".join(f"k{n}: 1\n" for n in range(3_000))

    faults = faults_of(write(tmp_path, changed("kind: Env\n", f"kind: Env\n{keys}")))

    assert len(faults) == 1_000
