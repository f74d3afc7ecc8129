"""The privileges that the preflight asks for are enough: a token with no others does it all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blocks.manifest.loader import load_environment
from deployments.lab.testing import running_lab
from tasks.rights import needed
from tests.environments import Place
from tests.flows.commands import Commands

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"users: [{{userid: ops@pve, tokens: [{{name: t, secret: {SECRET}, privsep: false}}]}}]\n"


def grant(state: Path, wants: dict[str, frozenset[str]]) -> None:
    """Give the token's user these privileges on these paths, and none besides."""
    file = state / "etc" / "access.json"
    access = json.loads(file.read_text())
    for number, (path, privileges) in enumerate(wants.items()):
        role = f"Role{number}"
        access["roles"][role] = sorted(privileges)
        access["acl"].append({"path": path, "who": "ops@pve", "role": role, "propagate": True})
    file.write_text(json.dumps(access))


def test_a_token_with_exactly_what_is_asked_for_brings_up_verifies_and_takes_down(
    run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXFLOW_STATE_DIR", str(tmp_path / "state"))
    seed = tmp_path / "seed.yaml"
    seed.write_text(SEED)
    with running_lab(tmp_path / "lab", seed_file=seed) as lab:
        place = Place(tmp_path / "manifest", lab, 1)
        manifest = place.write(count=2, shared=True, second_nic=True, ovmf=True)
    wants = needed(load_environment(manifest).guests)
    grant(tmp_path / "lab", dict(wants))
    with running_lab(tmp_path / "lab") as lab:
        monkeypatch.setenv("PROXMOX_ENDPOINT", lab.endpoint)
        monkeypatch.setenv("PROXMOX_TOKEN_ID", "ops@pve!t")
        monkeypatch.setenv("PROXMOX_TOKEN_SECRET", SECRET)
        monkeypatch.setenv("PROXMOX_CA_FILE", lab.connection["ca_file"])
        monkeypatch.setenv("PROXMOX_GUEST_PROXY", lab.connection["guest_proxy"])

        brought = run("up", manifest, "--yes")
        checked = run("verify", manifest)
        taken = run("down", manifest, "--yes")

        assert (brought.code, checked.code, taken.code) == (0, 0, 0), brought.text
        assert "warning" not in brought.out
        assert lab.snapshot()["guests"] == {}
