"""Templates in trouble while a run works, and what is never said about them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from blocks.units import GIB
from tests.environments import Place
from tests.flows.commands import Commands
from tests.templates import Golden

pytestmark = pytest.mark.usefixtures("prefect_api")


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def image(golden: Golden, tmp_path: Path) -> Path:
    return golden.image_file(tmp_path / "images")


def test_a_snippet_that_is_gone_when_a_clone_starts_is_named_with_what_to_do(
    golden: Golden, image: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(image, clones=2))
    first = golden.vmid + 1
    gone = "local:snippets/proxflow_golden_c1_0a0a0a0a0a0a_0000000a_user.yaml"
    golden.place.lab.fault(
        kind="task", type="qmstart", id=str(first), exitstatus=f"volume '{gone}' does not exist"
    )

    said = run("template", "build", manifest, "--yes", "--json")

    assert said.code == 1
    (told,) = said.json()["errors"]
    assert f"c1-{golden.place.number}: start failed: volume '{gone}' does not exist" in told
    assert f"the snippet {gone}" in told
    assert "run the same again, which writes it anew" in told
    there = set(map(int, golden.place.lab.snapshot()["guests"]))
    assert first not in there
    assert golden.vmid + 2 in there


def test_a_rebuild_leaves_the_generation_of_running_linked_clones_where_it_is(
    golden: Golden, image: Path, tmp_path: Path, run: Commands
) -> None:
    old = golden.vmid + 10
    document = golden.document(image, clones=1)
    document["spec"] |= {
        "vm_id": old,
        "disk": {"size": "4G", "storage": "local"},
        "rebuild": {"when": "on-new-image", "keep": 1, "vm_ids": f"{old}-{old + 3}"},
    }
    document["spec"]["clones"][0]["mode"] = "linked"
    run.good("template", "build", golden.write(document), "--yes")
    clone = golden.vmid + 1
    newer = golden.image_file(tmp_path / "newer", size=2 * GIB)
    document["spec"]["image"]["path"] = str(newer)

    said = run.good("template", "build", golden.write(document), "--yes", "--json")

    warnings = "\n".join(said.json()["warnings"])
    assert f"linked clones of the template are running: c1-{golden.place.number}" in warnings
    assert "remove them to have the old generation retired" in warnings
    after = golden.place.lab.snapshot()
    assert {str(old), str(old + 1), str(clone)} <= set(after["guests"])
    assert clone in {row["vmid"] for row in after["running"]}


def test_a_pipe_that_closes_ends_a_dry_run_with_words(golden: Golden, image: Path) -> None:
    manifest = golden.write(golden.document(image, clones=1))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "flows.template", "build", manifest, "--dry-run", "--json"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)

    assert ended.returncode == 1
    assert "cannot write to standard output" in ended.stderr
    assert "Traceback" not in ended.stderr
