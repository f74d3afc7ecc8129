"""``python -m flows.template images``: what is kept, who needs it, and what may go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blocks.paths import cache_dir
from blocks.proxmox.upload import UploadKind, upload
from blocks.units import GIB, MIB
from deployments.lab.testing import RunningLab
from flows.template_images import state_of
from tasks.template.cached import Cached
from tests.environments import RUN, Place
from tests.flows.commands import Commands
from tests.labfixture import LabFactory
from tests.tasks.template.runs import build, rebuilt
from tests.templates import Golden

NOW = ("--older-than", "0")


@pytest.fixture
def lab(lab_factory: LabFactory) -> RunningLab:
    """A lab of the test's own: what is cleared is cleared on the whole cluster."""
    return lab_factory()


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def document(golden: Golden, tmp_path: Path) -> dict[str, Any]:
    """A template with one generation, which was made of an older image than it is declared with."""
    document = rebuilt(golden, golden.image_file(tmp_path / "old"), clones=0)
    assert build(golden, document, RUN).ok
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "new", GIB + MIB))
    return document


def files(run: Commands, *words: object) -> dict[str, dict[str, Any]]:
    """Rows of the list, by the last part of their names."""
    said = run.good("template", "images", *words, "--cluster", "lab", "--json").json()
    return {str(row["name"]).rpartition("/")[2]: row for row in said["files"]}


def images(golden: Golden) -> list[str]:
    names = golden.place.lab.snapshot()["volumes"]
    return sorted(name for name in names if f"proxflow-{golden.name}-" in name)


def put(golden: Golden, name: str, content: UploadKind = "import") -> None:
    """A file of that name on ``local``, as somebody uploads it."""
    path = golden.image_file(golden.place.folder / "put")
    with golden.place.client() as client:
        upload(client, "pve1", "local", path, content=content, filename=name)


def test_the_image_of_an_existing_generation_is_needed_and_says_by_whom(
    golden: Golden, document: dict[str, Any], run: Commands
) -> None:
    (row,) = [r for r in files(run, *NOW).values() if r["kind"] == "image"]

    assert not row["may_go"]
    assert "was made of it" in row["needed_by"][0]


def test_an_image_goes_once_no_generation_and_no_manifest_needs_it(
    golden: Golden, document: dict[str, Any], run: Commands
) -> None:
    (old,) = images(golden)
    assert build(golden, document, RUN).ok
    both = images(golden)

    run.good("template", "images", "--cluster", "lab", "--clear", "--yes", *NOW)

    assert len(both) == 2
    assert images(golden) == [name for name in both if name != old]


def test_while_a_template_is_unfinished_and_does_not_tell_its_image_every_image_stays(
    golden: Golden, tmp_path: Path, run: Commands
) -> None:
    manifest = golden.write(golden.document(golden.image_file(tmp_path / "image")))
    run.good("template", "build", manifest, "--stages", "image,create", "--yes")

    (row,) = [r for r in files(run, *NOW).values() if r["kind"] == "image"]

    assert "does not tell its image" in row["needed_by"][0]


def test_the_image_of_a_given_manifest_stays_before_anything_was_made_of_it(
    golden: Golden, tmp_path: Path, run: Commands
) -> None:
    document = golden.document(golden.image_file(tmp_path / "image"))
    manifest = golden.write(document)
    run.good("template", "build", manifest, "--stages", "image", "--yes")

    needed = [r for r in files(run, manifest, *NOW).values() if r["kind"] == "image"]
    unneeded = [r for r in files(run, *NOW).values() if r["kind"] == "image"]

    assert [row["needed_by"] for row in needed] == [[f"template {golden.name}"]]
    assert [row["may_go"] for row in unneeded] == [True]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("proxflow-os-abcdef012345.vmdk", "import"),
        ("proxflow-os-ABCDEF012345.qcow2", "import"),
        ("proxflow-os-abcdef01234.qcow2", "import"),
        ("proxflow.qcow2", "import"),
        ("proxflow-handmade.iso", "iso"),
        ("proxflow_env_guest_abcdef012345.iso", "iso"),
    ],
)
def test_what_only_begins_like_ours_is_listed_and_stays(
    golden: Golden, run: Commands, name: str, content: UploadKind
) -> None:
    put(golden, name, content)
    before = golden.place.lab.snapshot()

    row = files(run, *NOW)[name]
    run.good("template", "images", "--cluster", "lab", "--clear", "--yes", *NOW)

    assert row["kind"] == "unclear"
    assert golden.place.lab.snapshot() == before


def test_strangers_files_are_not_even_listed(golden: Golden, run: Commands) -> None:
    put(golden, "debian-13.qcow2")

    assert "debian-13.qcow2" not in files(run, *NOW)


def test_an_image_that_a_guest_names_stays(golden: Golden, tmp_path: Path, run: Commands) -> None:
    put(golden, "proxflow-os-abcdef012345.qcow2")
    put(golden, f"proxflow_{golden.name}_web_abcdef012345_0000000a.iso", "iso")
    volid = f"local:iso/proxflow_{golden.name}_web_abcdef012345_0000000a.iso"
    with golden.place.client() as client:
        client.run("POST", "/nodes/pve1/qemu", vmid=golden.vmid + 3, ide2=f"{volid},media=cdrom")

    run.good("template", "images", "--cluster", "lab", "--clear", "--yes", *NOW)

    there = files(run, *NOW)
    assert f"VM {golden.vmid + 3}" in there[volid.rpartition("/")[2]]["needed_by"][0]
    assert "proxflow-os-abcdef012345.qcow2" not in there


def test_a_file_of_today_stays_unless_it_is_asked_for(golden: Golden, run: Commands) -> None:
    put(golden, "proxflow-os-abcdef012345.qcow2")

    said = run.good("template", "images", "--cluster", "lab", "--clear", "--yes")

    assert "proxflow-os-abcdef012345.qcow2" in files(run)
    assert "younger than 1 day" in said.out
    assert "1 file that nobody needs is too young; --older-than 0" in said.err


def test_without_clear_nothing_is_deleted(golden: Golden, run: Commands) -> None:
    put(golden, "proxflow-os-abcdef012345.qcow2")
    golden.place.lab.forget_requests()

    said = run.good("template", "images", "--cluster", "lab", *NOW)

    assert golden.place.changes() == []
    assert "1 file" in said.err


def test_an_image_that_is_named_while_the_question_stands_stays(
    golden: Golden, tmp_path: Path, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = golden.write(golden.document(golden.image_file(tmp_path / "image")))
    run.good("template", "build", manifest, "--stages", "image,create", "--yes")
    run.good("down", manifest, "--yes")
    before = images(golden)

    def answered(question: str, *, yes: bool) -> None:
        run.good("template", "build", manifest, "--stages", "create", "--yes")

    monkeypatch.setattr("flows.template_images.confirm", answered)
    run.good("template", "images", "--cluster", "lab", "--clear", *NOW)

    assert len(before) == 1
    assert images(golden) == before


def test_this_machines_cache_goes_but_for_what_a_given_manifest_needs(
    golden: Golden, tmp_path: Path, run: Commands
) -> None:
    kept, gone = "a" * 64, "b" * 128
    folder = cache_dir() / "images"
    folder.mkdir(parents=True)
    for name in (f"{kept}.image", f"{gone}.image", f"{gone}.json", "notes.txt"):
        (folder / name).write_text("x")
    image = {"url": "https://images.example.com/a.qcow2", "checksum": f"sha256:{kept}"}
    document = golden.document("/nowhere")
    document["spec"]["image"] = image
    manifest = golden.write(document)

    run.good("template", "images", manifest, "--clear", "--yes", *NOW)

    left = {path.name for path in folder.iterdir() if path.suffix != ".lock"}
    assert left == {f"{kept}.image", f"{gone}.json", "notes.txt"}


def test_templates_of_two_clusters_are_refused(golden: Golden, run: Commands) -> None:
    first = golden.write(golden.document("/nowhere.qcow2"))
    other = golden.document("/nowhere.qcow2")
    other["metadata"]["proxmox_context"] = "elsewhere"
    second = Golden(golden.place.neighbour()).write(other)

    said = run("template", "images", first, second)

    assert said.code == 2
    assert "different clusters: elsewhere, lab" in said.err


def test_who_needs_a_file_is_named_once_though_for_several_reasons() -> None:
    needed = (
        "VM 101 (web) on pve1 names it",
        "VM 101 (web) on pve1, in its snapshot s, names it",
        "VM 101 (web) on pve1, whose seed it is",
        "template gold, which declares web",
        "template other",
    )
    seed = Cached(kind="seed", name="a", place="b", size=1, days=2.0, needed_by=needed)

    assert state_of(seed, 1.0) == "VM 101 (web) on pve1 names it; template other"
