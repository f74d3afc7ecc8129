"""``python -m flows.verify`` of a template's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments import NODES, Place
from tests.flows.commands import Commands
from tests.templates import Golden

pytestmark = pytest.mark.usefixtures("prefect_api")


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def manifest(golden: Golden, tmp_path: Path, run: Commands) -> Path:
    """A template with one clone, built."""
    path = golden.write(golden.document(golden.image_file(tmp_path / "images"), clones=1))
    run.good("template", "build", path, "--yes", "--json")
    return path


def test_template_and_clones_that_are_as_declared_end_with_0(manifest: Path, run: Commands) -> None:
    said = run.good("verify", manifest)

    assert "2 guests as declared" in said.out


def test_drift_of_a_clone_is_told_with_what_shows_more(
    golden: Golden, manifest: Path, run: Commands
) -> None:
    with golden.place.client() as client:
        client.run("PUT", f"/nodes/{NODES[0]}/qemu/{golden.vmid + 1}/config", memory=2048)

    said = run("verify", manifest)

    assert said.code == 3
    assert "1 guest as declared, 1 deviates" in said.out
    assert f"template build {manifest} --reconcile --dry-run  # shows" in said.out


def test_a_clone_alone_can_be_checked(golden: Golden, manifest: Path, run: Commands) -> None:
    result = run.good("verify", manifest, "--only", golden.vmid + 1, "--json").json()

    assert [guest["vmid"] for guest in result["guests"]] == [golden.vmid + 1]


def test_a_clone_that_somebody_stopped_is_told_by_all_and_started_by_reconcile(
    golden: Golden, manifest: Path, run: Commands
) -> None:
    clone = f"/nodes/{NODES[0]}/qemu/{golden.vmid + 1}/status"
    with golden.place.client() as client:
        client.run("POST", f"{clone}/stop")

        told = {
            "verify": run("verify", manifest).out,
            "status": run.good("status", manifest).out,
            "dry run": run.good("template", "build", manifest, "--dry-run").err,
            "left": run.good("template", "build", manifest, "--yes").out,
        }
        run.good("template", "build", manifest, "--yes", "--reconcile")

        assert client.get(f"{clone}/current")["status"] == "running"
    assert "does not run" in told["verify"]
    assert "1 to start" in told["status"]
    assert "clone, does not run" in told["dry run"]
    assert "--reconcile starts it" in told["left"]
    assert run("verify", manifest).code == 0


def test_status_and_verify_tell_the_same_of_a_template_by_its_name(
    golden: Golden, manifest: Path, run: Commands
) -> None:
    with golden.place.client() as client:
        for vmid in (golden.vmid, golden.vmid + 1):
            client.run("PUT", f"/nodes/{NODES[0]}/qemu/{vmid}/config", memory=2048)

    status = " ".join(run.good("status", manifest).out.split())
    verified = run("verify", manifest)

    change = "~ memory: 2048 MiB -> 1024 MiB"
    assert status.startswith("guest vmid node")
    assert golden.name in status
    assert golden.name in verified.out
    assert verified.out.count(change) == 2
    assert status.count("2048 MiB") == 2, "the restart that is waited for is no second line"
    assert "configured only" in status
    assert "Changes wait for a restart" not in status
    assert "2 not as declared" in status
    assert verified.text.count("next:") == 1
