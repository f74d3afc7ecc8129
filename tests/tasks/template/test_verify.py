"""Stage verify of a template and its clones: every way in which one is not as declared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tasks import verify as verifying
from tasks.stage import RunRef
from tasks.template.verify import deviations, verify_built
from tests.environments import NODES, Document, opened
from tests.tasks.template.runs import build, rebuilt, surveyed
from tests.templates import Golden

RUN = "0000000a"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that does not answer is not waited for."""
    monkeypatch.setattr(verifying, "GRACE", 0.1)


@pytest.fixture
def document(golden: Golden, tmp_path: Path) -> Document:
    """A template with generations and one clone, built."""
    declared = rebuilt(golden, golden.image_file(tmp_path / "images"), clones=1)
    assert build(golden, declared, RUN).ok
    return declared


def kinds(golden: Golden, document: Document, label: str) -> list[str]:
    """Kinds of a guest's deviations, in order; reading must not change anything."""
    with opened(golden.write(document), "0000000b") as here:
        surveyed(here)
        golden.place.lab.forget_requests()
        found = deviations(here, here.guest(label))
    assert golden.place.changes() == []
    return [deviation.kind for deviation in found]


def clone_of(golden: Golden) -> str:
    return f"c1-{golden.place.number}"


def edit(golden: Golden, vmid: int, **values: Any) -> None:
    with golden.place.client() as client:
        client.run("PUT", f"/nodes/{NODES[0]}/qemu/{vmid}/config", **values)


def test_what_is_as_declared_passes_with_what_was_checked(
    golden: Golden, document: Document
) -> None:
    with opened(golden.write(document), "0000000b") as here:
        surveyed(here)
        run: RunRef = here.run
        details = [verify_built.fn(run, label).detail for label in ("template", clone_of(golden))]

    assert details == ["config, is a template", "config, runs, SSH, agent"]


def test_nothing_built_is_missing(golden: Golden, tmp_path: Path) -> None:
    declared = golden.document(golden.image_file(tmp_path), clones=1)

    assert kinds(golden, declared, "template") == ["missing"]
    assert kinds(golden, declared, clone_of(golden)) == ["missing"]


def test_a_template_whose_alias_somebody_took_away(golden: Golden, document: Document) -> None:
    edit(golden, golden.vmid + 10, tags="mine")

    assert kinds(golden, document, "template") == ["template"]


def test_a_template_that_is_not_as_declared_any_more(golden: Golden, document: Document) -> None:
    document["spec"]["resources"]["memory"] = 2048

    assert kinds(golden, document, "template") == ["config"]


def test_a_machine_that_was_never_made_a_template(golden: Golden, tmp_path: Path) -> None:
    declared = golden.document(golden.image_file(tmp_path))

    def before(here: object, label: str, stage: str) -> None:
        if stage == "template":
            raise InterruptedError(stage)

    with pytest.raises(InterruptedError):
        build(golden, declared, RUN, between=before)

    assert kinds(golden, declared, "template") == ["template"]


def test_a_clone_that_was_changed_and_one_that_is_off(golden: Golden, document: Document) -> None:
    vmid = golden.vmid + 1
    edit(golden, vmid, memory=2048)
    with golden.place.client() as client:
        client.run("POST", f"/nodes/{NODES[0]}/qemu/{vmid}/status/stop")

    assert kinds(golden, document, clone_of(golden)) == ["config", "power"]


def test_a_clone_that_is_not_to_run_may_be_off(golden: Golden, document: Document) -> None:
    document["spec"]["clones"][0]["start"] = False
    with golden.place.client() as client:
        client.run("POST", f"/nodes/{NODES[0]}/qemu/{golden.vmid + 1}/status/stop")

    assert kinds(golden, document, clone_of(golden)) == []


def test_a_clone_whose_notes_were_overwritten_is_adopted_back_by_the_line_that_is_told(
    golden: Golden, document: Document
) -> None:
    edit(golden, golden.vmid + 1, description="mine")
    with opened(golden.write(document), "0000000b") as here:
        surveyed(here)
        (told,) = deviations(here, here.guest(clone_of(golden)))
    (mark,) = re.findall(r"<!--.*?-->", told.detail)
    edit(golden, golden.vmid + 1, description=mark)

    assert "do not hold the mark" in told.detail
    assert kinds(golden, document, clone_of(golden)) == []


def test_a_stranger_in_a_clones_place(golden: Golden, document: Document) -> None:
    edit(golden, golden.vmid + 1, description="mine")

    assert kinds(golden, document, clone_of(golden)) == ["foreign"]
