"""Builds of templates that are stopped or killed, in processes of their own."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from blocks.units import GIB, MIB
from tests.environments import Place
from tests.flows.commands import Commands
from tests.flows.processes import Program, eventually
from tests.tasks.template.runs import clones, finished, generations, rebuilt, volumes
from tests.templates import Golden

pytestmark = pytest.mark.processes

RUN = ("--yes", "--json")
WHERE = {"import": "qmconfig", "clone": "qmclone", "retirement": "qmdestroy"}
"""Task type that the lab takes very long for."""


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@contextmanager
def building(golden: Golden, manifest: Path, api: str, where: str) -> Iterator[Program]:
    """A build in a process, as far as the task that takes long."""
    kind = WHERE[where]
    golden.place.lab.set_time(scale=1.0, **{**dict.fromkeys(_FAST, 0.0), kind: 600})
    home = Path(os.environ["PREFECT_HOME"])
    words = ("-m", "flows.template", "build", str(manifest), "--yes")
    with Program(*words, home=home, api=api) as process:
        try:
            assert eventually(lambda: _under_way(golden, kind), 120), "it never got there"
            yield process
        finally:
            golden.place.lab.set_time(scale=0.0)
    golden.place.lab.settle()


_FAST = (
    "imgcopy",
    "imgdel",
    "qmcreate",
    "qmconfig",
    "qmstart",
    "qmstop",
    "qmdestroy",
    "qmclone",
    "qmtemplate",
    "resize",
    "boot",
    "dhcp",
)


def _under_way(golden: Golden, kind: str) -> bool:
    with golden.place.client() as client:
        rows = client.get("/nodes/pve1/tasks", source="active", typefilter=kind)
        return bool(rows)


def older(golden: Golden, tmp_path: Path, run: Commands) -> dict[str, Any]:
    """One generation that is there, and a manifest with a new image and two clones."""
    document = rebuilt(golden, golden.image_file(tmp_path / "old"))
    declared = document["spec"].pop("clones")
    run.good("template", "build", golden.write(document), *RUN)
    document["spec"]["clones"] = declared
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "new", GIB + MIB))
    return document


@pytest.mark.parametrize(
    ("number", "code", "where"),
    [
        (signal.SIGINT, {1, 130}, "import"),
        (signal.SIGTERM, {-signal.SIGTERM, 143}, "import"),
        (signal.SIGINT, {1, 130}, "clone"),
        (signal.SIGTERM, {-signal.SIGTERM, 143}, "clone"),
    ],
)
def test_a_signal_leaves_the_older_generation_and_nothing_of_the_run(
    golden: Golden,
    tmp_path: Path,
    run: Commands,
    prefect_api: str,
    number: signal.Signals,
    code: set[int],
    where: str,
) -> None:
    document = older(golden, tmp_path, run)
    before = volumes(golden)
    (old,) = generations(golden)

    with building(golden, golden.write(document), prefect_api, where) as stopped:
        stopped.send(number)
        ended = stopped.rest()

    said = "\n".join(stopped.lines)
    assert ended in code, said
    assert "Traceback" not in said
    assert (list(generations(golden)), clones(golden)) == ([old], {}), said
    assert volumes(golden) == before
    images = [name for name in golden.place.lab.snapshot()["volumes"] if "import/" in name]
    assert any(golden.name in name for name in images), "cached images stay"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_older_generation_goes_keeps_the_new_one(
    golden: Golden, tmp_path: Path, run: Commands, prefect_api: str, number: signal.Signals
) -> None:
    document = older(golden, tmp_path, run)
    manifest = golden.write(document)

    with building(golden, manifest, prefect_api, "retirement") as stopped:
        stopped.send(number)
        golden.place.lab.set_time(scale=0.0)  # a removal is not stopped
        stopped.rest()
    left = finished(golden)
    again = run.good("template", "build", manifest, *RUN).json()

    new = golden.vmid + 11
    assert new in left, "\n".join(stopped.lines)
    assert finished(golden) == [golden.vmid + 1, golden.vmid + 2, new]
    assert again["ok"]


@pytest.mark.parametrize("where", ["import", "clone", "retirement"])
def test_a_killed_build_is_taken_up_by_the_next_one(
    golden: Golden, tmp_path: Path, run: Commands, prefect_api: str, where: str
) -> None:
    document = older(golden, tmp_path, run)
    manifest = golden.write(document)
    with building(golden, manifest, prefect_api, where) as killed:
        killed.send(signal.SIGKILL)
        assert killed.rest() == -signal.SIGKILL

    run.good("template", "build", manifest, *RUN)

    assert finished(golden) == [golden.vmid + 1, golden.vmid + 2, golden.vmid + 11]
    assert list(generations(golden)) == [golden.vmid + 11]


def test_a_killed_build_is_undone_by_rollback(
    golden: Golden, tmp_path: Path, run: Commands, prefect_api: str
) -> None:
    document = older(golden, tmp_path, run)
    before = volumes(golden)
    (old,) = generations(golden)
    manifest = golden.write(document)
    with building(golden, manifest, prefect_api, "import") as killed:
        killed.send(signal.SIGKILL)
        killed.rest()

    said = run.good("rollback", manifest, "--yes")

    assert re.search(r"1 guest removed", said.out)
    assert list(generations(golden)) == [old]
    assert volumes(golden) == before
