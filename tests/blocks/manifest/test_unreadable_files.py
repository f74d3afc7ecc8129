"""Files of a manifest that cannot be read, or are not what they are taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.blocks.manifest.sample import (
    ENV,
    changed,
    faults_of,
    line_of,
    only_fault,
    write,
)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("a: [1,\nb: 2", 2, "is no valid YAML: while parsing a flow sequence"),
        ("a: b: c", 1, "is no valid YAML: mapping values are not allowed here (column 5)"),
        ("kind: Networks\n\tpublic: 1", 2, "is no valid YAML"),
        ("a: *nowhere", 1, "found undefined alias"),
        ("a: !vault x", 1, "has the tag '!vault'"),
        ("a: 1\n---\nb: 2", 2, "is no valid YAML"),
        ("- one\n- two", 1, "must be a mapping"),
        ("a: \x01", 1, "has a character that YAML does not allow"),
        ("", None, "is empty"),
        ("? [a, b]\n: c", 1, "has a key that is no plain word"),
    ],
)
def test_a_file_that_is_no_yaml_is_refused_with_its_line(
    content: str, line: int | None, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path, content)

    fault = faults_of(path)[0]

    assert words in fault.problem
    assert fault.line == line


def test_a_layer_that_is_no_yaml_does_not_hide_the_faults_of_the_others(tmp_path: Path) -> None:
    text = changed("cores: 2", "coers: 2")
    at = text.index("  networks:")
    text = text[:at] + "  networks: { $ref: ./net.yaml }\n" + text[text.index("  storage_cl") :]
    path = write(tmp_path, text, net_yaml="kind: Networks\npublic: [")

    faults = faults_of(path)

    assert [(Path(fault.file).name, fault.key) for fault in faults] == [
        ("env.yaml", "spec.hypervisor.nodes.db1.resources.coers"),
        ("net.yaml", "spec.networks"),
    ]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "env.yaml"
    path.write_bytes(b"kind: \xff\xfe")

    assert "is no UTF-8 text" in str(faults_of(path)[0])


def test_a_missing_master_file_is_named(tmp_path: Path) -> None:
    faults = faults_of(tmp_path / "nope.yaml")

    assert str(faults[0]) == f"{tmp_path / 'nope.yaml'}: no such file"


def test_a_folder_in_place_of_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    assert "is a folder" in str(faults_of(tmp_path)[0])


def test_a_layer_in_place_of_the_master_file_is_said_to_be_one(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, "kind: Networks\npublic: { cidr: 10.0.0.0/24 }\n")

    assert str(fault).endswith(
        "env.yaml:1: kind: this is a Networks document; name the master file (kind: Env) instead"
    )


def test_a_missing_layer_file_is_said_where_it_is_named_with_the_nearest_one(
    tmp_path: Path,
) -> None:
    at = ENV.index("  networks:")
    text = ENV[:at] + "  networks: { $ref: ./netwrks.yaml }\n" + ENV[ENV.index("  storage_cl") :]
    path = write(tmp_path, text, networks_yaml="kind: Networks")

    (fault,) = faults_of(path)

    assert fault.key == "spec.networks.$ref"
    assert fault.line == line_of(text, "netwrks")
    assert "there is no such file; did you mean 'networks.yaml'?" in str(fault)


def test_references_in_a_circle_are_shown_as_a_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    at = ENV.index("  networks:")
    text = ENV[:at] + "  networks: { $ref: ./a.yaml }\n" + ENV[ENV.index("  storage_cl") :]
    path = write(
        tmp_path,
        text,
        a_yaml="kind: Networks\npublic: { $ref: ./b.yaml }",
        b_yaml="cidr: 10.0.0.0/24\ndns: { $ref: ./a.yaml }",
    )

    faults = faults_of(path)

    (circle,) = [fault for fault in faults if "circle" in fault.problem]
    assert "a.yaml -> b.yaml -> a.yaml" in circle.problem
    assert circle.file == "b.yaml"


def test_a_key_that_is_written_twice_is_refused_with_the_first_line(tmp_path: Path) -> None:
    text = changed("cores: 2", "cores: 2, cores: 4")

    fault = only_fault(tmp_path, text)

    assert fault.key == "spec.hypervisor.nodes.db1.resources.cores"
    assert f"the first time in line {line_of(text, 'cores: 2')}" in fault.problem


def test_aliases_that_multiply_are_stopped(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for step in range(1, 9):
        lines.append(f"a{step}: &a{step} [{', '.join([f'*a{step - 1}'] * 10)}]")
    path = write(tmp_path, "\n".join(lines))

    assert any("parts" in fault.problem for fault in faults_of(path))
