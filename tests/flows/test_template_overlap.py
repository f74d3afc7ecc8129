"""Two builds of one template in two processes: the second leaves the first alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.environments import Place
from tests.flows.commands import Commands
from tests.flows.processes import Program, eventually
from tests.templates import Golden

pytestmark = pytest.mark.processes


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@contextmanager
def importing(golden: Golden, manifest: Path, api: str, **variables: str) -> Iterator[Program]:
    """A build in a process, as far as the import, which lasts until the lab hurries."""
    lab = golden.place.lab
    quick: Mapping[str, Any] = dict.fromkeys(("imgcopy", "qmcreate", "qmtemplate", "resize"), 0.0)
    lab.set_time(scale=1.0, **{**quick, "qmconfig": 600})
    words = ("-m", "flows.template", "build", str(manifest), "--yes")
    home = Path(os.environ["PREFECT_HOME"])
    with Program(*words, home=home, api=api, variables=variables) as process:
        try:
            assert eventually(lambda: _imports(golden), 120), "it never got there"
            yield process
        finally:
            lab.set_time(scale=0.0)
    lab.settle()


def _imports(golden: Golden) -> bool:
    with golden.place.client() as client:
        return bool(client.get("/nodes/pve1/tasks", source="active", typefilter="qmconfig"))


@pytest.mark.parametrize(
    ("machine", "words"),
    [("this", "at work on this machine since"), ("another", "and last seen at work at")],
)
def test_the_second_build_is_refused_and_the_first_one_ends_well(
    golden: Golden, tmp_path: Path, run: Commands, prefect_api: str, machine: str, words: str
) -> None:
    manifest = golden.write(golden.document(golden.image_file(tmp_path / "image")))
    own = {"PROXFLOW_STATE_DIR": str(tmp_path / "elsewhere")} if machine == "another" else {}

    with importing(golden, manifest, prefect_api, **own) as first:
        planned = run.good("template", "build", manifest, "--dry-run")
        said = run("template", "build", manifest, "--yes")
        golden.place.lab.set_time(scale=0.0)
        code = first.rest()

    assert said.code == 1
    assert f"VM {golden.vmid} ({golden.name}) on pve1 is being made by run " in said.err
    assert words in said.err
    assert "let that run end" in said.err
    assert "is being made by run" in planned.err
    assert code == 0, "\n".join(first.lines)
    with golden.place.client() as client:
        assert client.get(f"/nodes/pve1/qemu/{golden.vmid}/config")["template"] == 1
