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
        "image_url: 7",
        "tpm_enabled: perhaps",
        "domain: a domain",
        "nameserver: true",
        "tags: '!!!'",
        "bios: award",
        "cache: fast",
        "machine: 35",
        "ci_user: 7",
        "timezone: 2",
        "bridge: 0",
        "ip_mode: guessed",
        "netmask: 24",
        "net0: virtio,rate=5",
        "ipconfig0: ip6=auto",
        "checksum: abc",
        "efi_storage: fast\nuefi: false",
        "tpm_storage: fast\ntpm: false",
        "clone_prefix: web",
        "distro: plan9",
        "create_clones: maybe",
        "clone_count: many",
        "vlan: office",
        "disk_size: big",
    ],
)
def test_a_value_that_makes_no_sense_is_named(tmp_path: Path, run: Commands, line: str) -> None:
    said = converted(tmp_path, run, MINIMAL + line + "\n")

    key = {"distro": "image"}.get(line.partition(":")[0], line.partition(":")[0])
    assert f"note: {key}: " in said.err
    assert line.partition(":")[0] not in said.out


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("cores: [2]", "cores: is a list; write one value"),
        ("storage: [local, lvm]", "storage: is a list; write one value"),
        ("uefi_enabled: { a: b }", "uefi_enabled: is a mapping; write one value"),
        ("nameserver: { first: 10.0.0.1 }", "nameserver: is a mapping; write one value, or a list"),
        ("tags: { os: linux }", "tags: is a mapping; write one value, or a list of them"),
        ("packages: [{ name: htop }]", "packages: is a list of lists or mappings"),
        ("cloud_init: { ssh_keys: { a: b } }", "cloud_init_ssh_keys: is a mapping"),
        ("ci_password: { a: hunter2 }", "ci_password: is a mapping"),
        ("clones: web1,web2", "clones: is no list of mappings; write a list of mappings"),
        ("clones: [web1]", "clones: is no list of mappings; write a list of mappings"),
        ("clones: [{ id: 200, tags: { a: b } }]", "clones[0].tags: is a mapping"),
    ],
)
def test_a_value_of_a_wrong_shape_is_a_fault_with_line_and_key(
    tmp_path: Path, run: Commands, line: str, fault: str
) -> None:
    path = tmp_path / "vars.yml"
    path.write_text(MINIMAL + line + "\n")

    said = run("template", "import", path)

    assert said.code == 2
    assert said.out == ""
    assert f"{path}:3: {fault}" in said.err
    assert "hunter2" not in said.text


def test_all_values_of_a_wrong_shape_are_told_at_once(tmp_path: Path, run: Commands) -> None:
    path = tmp_path / "vars.yml"
    path.write_text(MINIMAL + "clones:\n  - id: 200\n    dns: { a: b }\nnameserver: { a: b }\n")

    said = run("template", "import", path)

    assert f"{path}:5: clones[0].dns: " in said.err
    assert f"{path}:6: nameserver: " in said.err


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
