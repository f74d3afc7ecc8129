"""Which connection an operator means, and what is said about bad settings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from blocks.proxmox.connection import ENVIRONMENT, resolve
from blocks.proxmox.contexts import context_names
from blocks.proxmox.errors import BadSettings

Write = Callable[..., Path]

PROD = """\
current: prod
clusters:
  prod:
    endpoint: https://pve.example.com:8006
    token_id: automation@pve!proxflow
    token_secret: literal-secret
  stage:
    endpoint: stage.example.com
    user: root@pam
    password: ${env:STAGE_PASSWORD}
    ca_file: pve-root-ca.pem
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration folder, no PROXMOX_* variables, an empty current folder."""
    for variable in ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("PROXFLOW_LAB_STATE", raising=False)
    monkeypatch.setenv("PROXFLOW_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def written(folder: Path) -> Write:
    def write(text: str, mode: int = 0o600) -> Path:
        file = folder / "clusters.yaml"
        file.write_text(text)
        file.chmod(mode)
        return file

    return write


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXMOX_ENDPOINT", "env.example.com")
    monkeypatch.setenv("PROXMOX_TOKEN_ID", "root@pam!env")
    monkeypatch.setenv("PROXMOX_TOKEN_SECRET", "env-secret")


def faults(*arguments: str, **named: str) -> tuple[str, ...]:
    with pytest.raises(BadSettings) as told:
        resolve(*arguments, **named)
    return told.value.faults


def shown(secret: SecretStr | None) -> str:
    assert secret is not None
    return secret.get_secret_value()


def test_without_a_name_the_current_context_is_meant(written: Write) -> None:
    written(PROD)
    connection = resolve()
    assert (connection.name, connection.endpoint) == ("prod", "https://pve.example.com:8006")
    assert shown(connection.token_secret) == "literal-secret"


def test_the_manifests_context_goes_before_the_current_one(
    written: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGE_PASSWORD", "p")
    written(PROD)
    assert resolve(context="stage").name == "stage"


def test_the_environment_goes_before_both(written: Write, environment: None) -> None:
    written(PROD)
    connection = resolve(context="stage")
    assert connection.endpoint == "https://env.example.com:8006"
    assert connection.identity == "root@pam!env"


def test_a_name_goes_before_everything(written: Write, environment: None) -> None:
    written(PROD)
    assert resolve("prod").name == "prod"


def test_nothing_at_all_says_what_can_be_done() -> None:
    with pytest.raises(BadSettings, match="no cluster is chosen") as told:
        resolve()
    for way in ("--cluster", "PROXMOX_ENDPOINT", "clusters.yaml", "deployments.lab"):
        assert way in str(told.value.advice)


def test_secrets_come_from_variables_and_files_beside_the_settings(
    written: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGE_PASSWORD", "from-env")
    (folder / "secret").write_text("from-file\n")
    written(PROD.replace("literal-secret", "${file:secret}"), mode=0o644)
    assert shown(resolve("prod").token_secret) == "from-file"
    stage = resolve("stage")
    assert shown(stage.password) == "from-env"
    assert stage.ca_file == folder / "pve-root-ca.pem"


def test_a_literal_secret_in_a_file_that_others_may_read_is_refused(written: Write) -> None:
    file = written(PROD, mode=0o644)
    (fault,) = faults("prod")
    assert fault.startswith(f"{file}:6: clusters.prod.token_secret:")
    assert f"chmod 600 {file}" in fault
    assert "literal-secret" not in fault


def test_all_faults_of_a_context_are_told_at_once_with_line_and_nearest_key(written: Write) -> None:
    file = written(
        """\
clusters:
  prod:
    endpoint: pve
    tokenid: automation@pve!proxflow
    token_secret: ${env:NOT_SET_ANYWHERE}
    verify: "no"
    password: ${vault:x}
    ca_file: 7
"""
    )
    assert faults("prod") == (
        f"{file}:4: clusters.prod.tokenid: unknown setting; did you mean 'token_id'?",
        f"{file}:5: clusters.prod.token_secret: environment variable NOT_SET_ANYWHERE is not set",
        f"{file}:6: clusters.prod.verify: must be true or false",
        f"{file}:7: clusters.prod.password: ${{vault:..}} is not known; use ${{env:NAME}} or "
        "${file:PATH}",
        f"{file}:8: clusters.prod.ca_file: must be a text; put it into quotes",
    )


def test_values_that_are_refused_name_their_line_too(written: Write) -> None:
    file = written(
        """\
clusters:
  prod:
    endpoint: http://pve
    token_id: nonsense
    token_secret: x
    fingerprint: abc
"""
    )
    told = faults("prod")
    assert [fault.partition(" ")[0] for fault in told] == [
        f"{file}:3:",
        f"{file}:4:",
        f"{file}:6:",
    ]
    assert "clusters.prod: endpoint Proxmox VE speaks HTTPS only" in told[0]


def test_a_missing_endpoint_and_missing_credentials_are_told(written: Write) -> None:
    file = written("clusters:\n  prod:\n    user: root@pam\n")
    endpoint, credentials = faults("prod")
    assert endpoint.startswith(f"{file}: clusters.prod: endpoint is missing")
    assert credentials == f"{file}: clusters.prod: password is missing"


def test_an_unknown_context_names_the_nearest_and_all(written: Write) -> None:
    file = written(PROD)
    assert faults("prd") == (
        f"{file}: there is no cluster 'prd'; did you mean 'prod'? (known: prod, stage)",
    )
    assert context_names() == ("prod", "stage")


def test_a_name_without_the_file_says_where_it_would_be(folder: Path) -> None:
    assert faults("prod") == (
        f"cluster 'prod' is not known: {folder / 'clusters.yaml'} does not exist",
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("clusters: [", ":1: no valid YAML"),
        ("a: 1\nclusters:\n\tprod: x\n", ":3: no valid YAML"),
        ("clusters: {a: {}}\nclusters: {b: {}}\n", "no valid YAML"),
        ("- a\n", "must hold `current` and `clusters`"),
        ("", "must hold `current` and `clusters`"),
        ("curent: prod\n", ":1: curent: unknown key; did you mean 'current'?"),
        ("current: [a]\n", ":1: current must be a name"),
        ("clusters: text\n", ":1: clusters must be a mapping"),
        ("current: prod\nclusters:\n  prod: text\n", ":3: clusters.prod must hold settings"),
        ("current: gone\n", "there is no cluster 'gone' (known: none)"),
    ],
)
def test_a_broken_file_gives_its_line_and_no_traceback(
    written: Write, text: str, what: str
) -> None:
    file = written(text)
    (fault,) = faults() if "current" in text else faults("prod")
    assert fault.startswith(str(file))
    assert what in fault


def test_a_bad_variable_is_named(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXMOX_VERIFY", "perhaps")
    monkeypatch.setenv("PROXMOX_FINGERPRINT", "abc")
    told = faults()
    assert any("variable PROXMOX_VERIFY: verify" in fault for fault in told)
    assert any("variable PROXMOX_FINGERPRINT: fingerprint is no SHA-256" in f for f in told)


@pytest.mark.parametrize(("value", "verify"), [("0", False), ("no", False), ("true", True)])
def test_verification_can_be_switched_by_a_variable(
    environment: None, monkeypatch: pytest.MonkeyPatch, value: str, verify: bool
) -> None:
    monkeypatch.setenv("PROXMOX_VERIFY", value)
    assert resolve().verify is verify


def test_the_lab_is_found_in_its_state_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = folder / "state"
    state.mkdir()
    (state / "connection.json").write_text(
        json.dumps(
            {
                "endpoint": "https://127.0.0.1:18006",
                "token_id": "root@pam!lab",
                "token_secret": "x",
                "user": "root@pam",
                "password": "y",
                "ca_file": str(state / "ca.pem"),
                "fingerprint": "AB:" * 31 + "AB",
                "guest_proxy": "socks5://127.0.0.1:11080",
                "control_token": "z",
                "pid": 1,
            }
        )
    )
    monkeypatch.setenv("PROXFLOW_LAB_STATE", str(state))
    lab = resolve("lab")
    assert (lab.name, lab.identity) == ("lab", "root@pam!lab")
    assert lab.ca_file == state / "ca.pem"
    assert lab.guest_proxy == "socks5://127.0.0.1:11080"


def test_a_lab_that_does_not_run_says_how_to_start_it(folder: Path) -> None:
    with pytest.raises(BadSettings, match="the lab does not run") as told:
        resolve("lab")
    assert "deployments.lab start" in str(told.value.advice)


def test_the_folder_where_no_lab_was_found_is_named_whole(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXFLOW_LAB_STATE", "elsewhere/lab")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSettings, match="the lab does not run") as told:
        resolve("lab")
    assert f"{tmp_path / 'elsewhere' / 'lab'}, set PROXFLOW_LAB_STATE" in str(told.value.advice)
    assert str(tmp_path / "elsewhere" / "lab" / "connection.json") in str(told.value)
