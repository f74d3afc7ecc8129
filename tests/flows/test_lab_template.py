"""The template of ``make demo-template``: valid as shipped, built of the lab's own image."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from blocks.manifest.environment import Environment
from blocks.manifest.guest import CloneSource
from blocks.manifest.loader import load_environment
from deployments.lab.__main__ import main as lab_command
from tests.environments import Place
from tests.flows.commands import Commands

ROOT = Path(__file__).parents[2]
MANIFEST = Path("deployments", "environments", "lab", "template.yaml")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The manifest in a clone of its own, with the image where it is looked for."""
    path = tmp_path / "clone" / MANIFEST
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / MANIFEST, path)
    demo = tmp_path / "clone" / ".demo"
    demo.mkdir()
    assert lab_command(["image", str(demo / "golden.qcow2")]) == 0
    return path


def taken(environment: Environment) -> set[str]:
    """Names, numbers and addresses of its guests."""
    return {
        str(each)
        for guest in environment.guests
        for each in (guest.name, guest.vmid, *guest.ssh_addresses)
    }


def test_the_manifest_is_valid_and_shows_full_and_linked_clones() -> None:
    found = load_environment(ROOT / MANIFEST, env={})

    assert found.notices == ()
    assert found.recipe is not None
    template, clones = found.recipe.template, found.recipe.clones
    full, *linked = clones
    assert full.node != template.node
    assert full.disks[0].size > template.disks[0].size
    assert [clone.name for clone in linked] == ["job01", "job02"]
    whole = [clone.source.full for clone in clones if isinstance(clone.source, CloneSource)]
    assert whole == [True, False, False]


def test_it_can_stand_beside_the_environment_of_the_other_demo() -> None:
    template = load_environment(ROOT / MANIFEST, env={})
    environment = load_environment(ROOT / MANIFEST.with_name("env.yaml"), env={})

    assert template.name != environment.name
    assert taken(template) & taken(environment) == set()


@pytest.mark.usefixtures("prefect_api")
def test_it_is_built_once_and_then_there_is_nothing_to_do(
    place: Place, manifest: Path, run: Commands
) -> None:
    words = ("template", "build", manifest, "--cluster", "lab", "--yes")
    first = run.good(*words)
    before = place.lab.snapshot()
    place.lab.forget_requests()

    second = run.good(*words)

    assert "6 stages done; 3 clones done" in first.out
    assert "6 stages unchanged; 3 clones unchanged" in second.out
    assert place.changes() == []
    assert place.lab.snapshot() == before
    assert "4 guests as declared" in run.good("status", manifest, "--cluster", "lab").out
    with place.client() as client:
        disk = client.get("/nodes/pve2/qemu/1201/config")["scsi0"]
    assert "size=16G" in disk

    run.good("down", manifest, "--cluster", "lab", "--yes")

    assert {"1200", "1201", "1211", "1212"} & set(place.lab.snapshot()["guests"]) == set()
