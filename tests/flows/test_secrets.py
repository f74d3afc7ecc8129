"""No secret leaves the places where it belongs: the manifest's sources and the seed ISO."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter

from blocks.manifest.hooks import ExecHook
from flows.runtime.history import settle
from tests.environments import Document, Place
from tests.flows.commands import Commands, flow_run, states
from tests.history import runs_of_this_test

HASH = "$6$proxflowsalt$Zx1yW0vU9tS8rQ7pO6nM5lK4jI3hG2fE1dC0bA"
OTHER_HASH = "$6$anothersalt$aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX2yZ"
PASSPHRASE = "correct-horse-battery-staple"


def with_secrets(place: Place) -> Document:
    """An environment whose manifest names a hash, a generated password and a hook's token."""
    document = place.document()
    kickstart = document["spec"]["hypervisor"]["kickstart"]
    kickstart["root_password_hash"] = "${env:TEST_ROOT_HASH}"
    kickstart["additional_users"] = [{"name": "ops", "password_hash": "${file:./ops.hash}"}]
    command = 'test -n "$TOKEN" && echo $TOKEN >&2 && exit 9'
    told = {"type": "exec", "command": command, "env": {"TOKEN": "${env:TEST_PASSPHRASE}"}}
    generated = {"type": "exec", "command": "exit 9", "env": {"P": "${gen:password:24:test}"}}
    document["hooks"] = {"on_apply_success": [told, generated], "on_apply_failure": [told]}
    return document


def everything_prefect_knows(run_id: str) -> str:
    """Flow run, task runs, logs and artifacts of a run, as the API gives them."""
    assert settle(runs_of_this_test(), 30) == 0
    found = flow_run(run_id)
    names = states(run_id)
    with get_client(sync_client=True) as client:
        logs = client.read_logs(
            LogFilter.model_validate({"flow_run_id": {"any_": [found.id]}}), limit=200
        )
        artifacts = client.request(
            "POST", "/artifacts/filter", json={"flow_runs": {"id": {"any_": [str(found.id)]}}}
        ).text
        task_runs = client.request(
            "POST", "/task_runs/filter", json={"flow_runs": {"id": {"any_": [str(found.id)]}}}
        ).text
    assert names
    assert logs
    assert "markdown" in artifacts
    return "\n".join(
        [found.model_dump_json(), task_runs, artifacts, *(log.message for log in logs)]
    )


@pytest.fixture
def secrets(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What must be found nowhere, by a name for the message."""
    monkeypatch.setenv("TEST_ROOT_HASH", HASH)
    monkeypatch.setenv("TEST_PASSPHRASE", PASSPHRASE)
    place.folder.mkdir(parents=True)
    (place.folder / "ops.hash").write_text(OTHER_HASH + "\n")
    return {
        "hash of root": HASH,
        "hash of ops": OTHER_HASH,
        "token of a hook": PASSPHRASE,
        "secret of the API token": str(place.lab.connection["token_secret"]),
    }


@pytest.mark.parametrize("fails", [False, True])
def test_no_secret_is_in_what_prefect_keeps_or_in_what_is_said(
    place: Place, run: Commands, secrets: dict[str, str], fails: bool
) -> None:
    manifest = place.write(with_secrets(place))
    if fails:
        place.lab.fault(kind="task", type="qmstart", exitstatus="start failed: no KVM")

    said = run("up", manifest, "--yes", "--json")

    assert said.code == int(fails)
    assert "ended with 9: ***" in said.text
    kept = everything_prefect_knows(said.json()["run_id"])
    for name, secret in secrets.items():
        assert secret not in said.text, name
        assert secret not in kept, name


def test_a_generated_password_is_shown_nowhere(
    place: Place, run: Commands, secrets: dict[str, str]
) -> None:
    from blocks.manifest.loader import load_environment

    manifest = place.write(with_secrets(place))
    hook = load_environment(manifest).hooks.on_apply_success[1]
    assert isinstance(hook, ExecHook)
    (password,) = (value.get_secret_value() for value in hook.env.values())

    said = run("up", manifest, "--yes", "--json")

    assert len(password) == 24
    assert password not in said.text
    assert password not in everything_prefect_knows(said.json()["run_id"])


@pytest.mark.parametrize("name", ["plan", "status", "verify", "down", "rollback"])
def test_no_other_command_shows_a_secret(
    place: Place, run: Commands, secrets: dict[str, str], name: str
) -> None:
    manifest = place.write(with_secrets(place))
    said = run(name, manifest)
    for what, secret in secrets.items():
        assert secret not in said.text, what


def test_the_hash_is_in_the_seed_where_the_installer_needs_it(
    place: Place, run: Commands, secrets: dict[str, str]
) -> None:
    run.good("up", place.write(with_secrets(place)), "--yes")

    name = place.volumes("iso/")[0].rpartition("/")[2]
    (seed,) = place.lab.state.rglob(name)
    assert HASH.encode() in seed.read_bytes()


def test_the_journal_holds_no_secret(
    place: Place, run: Commands, secrets: dict[str, str], tmp_path: Path
) -> None:
    manifest = place.write(with_secrets(place))
    run.good("up", manifest, "--yes")
    place.edit(memory=2048)
    run.good("up", manifest, "--yes")

    files = list((tmp_path / "state").rglob("*.jsonl"))
    assert files
    for path in files:
        assert path.stat().st_mode & 0o077 == 0
        for what, secret in secrets.items():
            assert secret not in path.read_text(), what
