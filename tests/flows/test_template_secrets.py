"""No secret of a template leaves the places where it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments import KEY, Document, Place
from tests.flows.commands import Commands
from tests.flows.test_secrets import everything_prefect_knows
from tests.templates import Golden

pytestmark = pytest.mark.usefixtures("prefect_api")

PASSWORD = "correct-horse-battery-staple"
HASH = "$6$proxflowsalt$Zx1yW0vU9tS8rQ7pO6nM5lK4jI3hG2fE1dC0bA"
TOKEN = "registration-7f3b9c"


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def image(golden: Golden, tmp_path: Path) -> Path:
    return golden.image_file(tmp_path / "images")


def with_secrets(golden: Golden, image: Path) -> Document:
    """A seed with a password and a command's token; a clone with a hash of its own."""
    document = golden.document(image, clones=2)
    document["spec"]["cloud_init"] = {
        "user": "ops",
        "ssh_keys": [KEY],
        "password": "${env:TEST_PASSWORD}",
        "commands": ["register --token ${env:TEST_TOKEN}"],
    }
    document["spec"]["clones"][1]["cloud_init"] = {
        "password": None,
        "password_hash": "${env:TEST_HASH}",
    }
    return document


@pytest.mark.parametrize("fails", [False, True])
def test_no_secret_of_a_template_is_said_or_kept(
    golden: Golden,
    image: Path,
    run: Commands,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fails: bool,
) -> None:
    secrets = {"TEST_PASSWORD": PASSWORD, "TEST_HASH": HASH, "TEST_TOKEN": TOKEN}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    manifest = golden.write(with_secrets(golden, image))
    if fails:
        golden.place.lab.fault(
            kind="task", type="qmstart", id=str(golden.vmid + 1), exitstatus="no KVM"
        )

    dry = run.good("template", "build", manifest, "--dry-run", "--json")
    built = run("template", "build", manifest, "--yes", "--json")
    shown = run("status", manifest)
    rendered = run.good("manifest", "render", manifest, "--guests")

    assert built.code == int(fails), built.text
    state = [file.read_text() for file in (tmp_path / "state").rglob("*") if file.is_file()]
    kept = everything_prefect_knows(built.json()["run_id"])
    for what, secret in secrets.items():
        for text in (dry.text, built.text, shown.text, rendered.text, kept, *state):
            assert secret not in text, what
