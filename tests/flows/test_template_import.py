"""``python -m flows.template import``: whatever the variable file is, words and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.flows.commands import Commands, Said

MINIMAL = "vm_id: 9000\nvm_name: golden\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Commands:
    """Command lines; an import asks neither a cluster nor Prefect."""
    return Commands(capsys)


def converted(tmp_path: Path, run: Commands, text: str) -> Said:
    """The import of a file with that text, which must be taken."""
    path = tmp_path / "vars.yml"
    path.write_text(text)
    return run.good("template", "import", path)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has no variables; name a file of 'key: value' lines"),
        (b"# nothing\n", "has no variables"),
        (b"42\n", "has no variables"),
        (b"vm_name: caf\xe9\n", "is no UTF-8 text; save it as UTF-8"),
        (b"a: [1\n", "vars.yml:2: is no valid YAML"),
        (b"vm_id: 1\n---\nvm_id: 2\n", "vars.yml:2: is no valid YAML"),
        (b"$ANSIBLE_VAULT;1.1;AES256\n6638\n", "is encrypted by ansible-vault; save what"),
        (b"- hosts: a\n- hosts: b\n", "is a list of plays or tasks"),
        (b"kind: Template\n", "is a template already"),
        (b"a: &x [*x]\n", "aliases (*) that go round in a circle or grow without end"),
        (BOMB.encode(), "aliases (*) that go round in a circle or grow without end"),
        (b"a: 1\n" * 250_000, "is larger than 1 MiB"),
        (b"a: " + b"[" * 5000, "is no valid YAML"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_has_no_variables_is_refused(
    tmp_path: Path, run: Commands, data: bytes, words: str
) -> None:
    path = tmp_path / "vars.yml"
    path.write_bytes(data)

    said = run("template", "import", path)

    assert said.code == 2
    assert said.out == ""
    assert words in said.err


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path, run: Commands) -> None:
    for path, words in ((tmp_path, "Is a directory"), (tmp_path / "no", "No such file")):
        said = run("template", "import", path)
        assert said.code == 2
        assert f"cannot be read: {words}" in said.err
        assert "name the variable file of the playbook" in said.err


@pytest.mark.parametrize(
    "line",
    [
        "memory: lots",
        "cores: [2]",
        "storage: [local, lvm]",
        "image_url: 7",
        "uefi_enabled: { a: b }",
        "tpm_enabled: perhaps",
        "create_clones: maybe",
        "clone_count: many",
        "vlan: office",
        "disk_size: big",
    ],
)
def test_a_value_that_makes_no_sense_is_named(tmp_path: Path, run: Commands, line: str) -> None:
    said = converted(tmp_path, run, MINIMAL + line + "\n")

    key = line.partition(":")[0]
    assert f"note: {key}: " in said.err
    assert key not in said.out


def test_clones_that_are_no_list_are_named(tmp_path: Path, run: Commands) -> None:
    said = converted(tmp_path, run, MINIMAL + "clones: web1,web2\n")
    assert "note: clones: is no list of mappings; left out" in said.err


def test_of_repeated_keys_the_last_is_taken_as_ansible_does(tmp_path: Path, run: Commands) -> None:
    said = converted(tmp_path, run, MINIMAL + "vm_id: 9001\n")

    assert YAML(typ="safe").load(said.out)["spec"]["vm_id"] == 9001
    assert "note: vm_id: is there more than once; the last one was taken" in said.err


def test_no_password_is_copied(tmp_path: Path, run: Commands) -> None:
    text = (
        "image_url: https://bob:hunter1@images.example.com/a.qcow2\n"
        "ci_password: hunter2\nroot_password: hunter3\nproxmox_api_password: hunter4\n"
        "ci_user: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6638hunter5\n"
    )
    said = converted(tmp_path, run, MINIMAL + text)

    assert "hunter" not in said.text
    assert "https://images.example.com/a.qcow2" in said.out
    assert "user and password of its URL were left out" in said.err
    assert "${env:CI_PASSWORD}" in said.out
    assert "ci_user: is encrypted by ansible-vault" in said.err


def test_jinja_that_cannot_be_filled_in_is_named(tmp_path: Path, run: Commands) -> None:
    said = converted(
        tmp_path, run, "vm_id: '{{ base + 1 }}'\nmemory: '{{ mem }}'\nmem: '{{ memory }}'\n"
    )

    for key in ("vm_id", "memory"):
        assert f"note: {key}: is a Jinja expression" in said.err
    assert "{{" not in said.out
