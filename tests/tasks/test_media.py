"""Stage media: from where an install ISO comes to the storage that the node reads it from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blocks.proxmox.errors import ProxmoxError
from deployments.lab.bootmenus import GRUB
from deployments.lab.isos import make_iso, read_file
from tasks.attach import attach
from tasks.build import build
from tasks.create import create
from tasks.errors import StageError
from tasks.findings import Finding
from tasks.iso.remaster import is_remastered, sha256_of
from tasks.iso.source import OriginError
from tasks.media import install_iso, media
from tasks.planning import plan_findings
from tasks.preflight import find
from tasks.render import render
from tasks.stage import Event, Scope, StageCancelled, StageFailed
from tasks.start import start
from tasks.survey import survey
from tasks.upload import upload
from tasks.wait import wait
from tests.environments import NODES, OTHER_RUN, ROCKY, Document, Place, opened
from tests.webserver import Web, served

UBUNTU = "ubuntu-24.04.3-live-server-amd64.iso"
NEW = "Rocky-9.9-x86_64-dvd.iso"
_numbers = itertools.count(1)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    folder = tmp_path / "web"
    folder.mkdir()
    with served(folder) as running:
        yield running


def lab_iso(place: Place, name: str, node: str = "pve1", storage: str = "local") -> Path:
    """Where the lab keeps an ISO."""
    found = sorted(place.lab.state.rglob(f"{storage}/**/{name}"))
    return next((path for path in found if storage == "shared" or node in path.parts), Path())


def ubuntu_source(place: Place, tmp_path: Path, lines: int = 300) -> Path:
    """An untouched install ISO on the operator's machine, with a content of its own."""
    source = tmp_path / "download" / UBUNTU
    menu = read_file(lab_iso(place, UBUNTU), GRUB)
    assert menu is not None
    make_iso(source, "UBUNTU", {"README": f"{place.env}\n" * lines, GRUB: menu})
    return source


def plain_source(place: Place, tmp_path: Path) -> Path:
    """An ISO that its installer needs no other boot menu on, with a content of its own."""
    source = tmp_path / "download" / NEW
    make_iso(source, "ROCKY", {"README": f"{place.env}\n" * 300})
    return source


def document(place: Place, source: Path | str, count: int = 1, **iso: Any) -> Document:
    """Guests whose ISO comes from ``source``; the distribution goes by its name."""
    made = place.document(count=count)
    hypervisor = made["spec"]["hypervisor"]
    name = str(source).rpartition("/")[2].partition("?")[0]
    image = f"{place.env}-{name}"
    hypervisor["iso"] = {"storage": "local", "image": image, "source": str(source), **iso}
    if "ubuntu" in name:
        hypervisor["kickstart"]["distro"] = "ubuntu2404"
    return made


def provided(place: Place, manifest: Path, run_id: str = OTHER_RUN, label: str = "n1") -> Any:
    """The outcome of the stage for a guest, in a run of its own, and the volume."""
    with opened(manifest, run_id) as here:
        outcome = media.fn(here.run, label)
        return outcome, install_iso(here, here.guest(label))


def uploads(place: Place) -> list[str]:
    return [call for call in place.changes() if call.endswith("/upload")]


def found_before(place: Place, manifest: Path) -> list[Finding]:
    """What plan and preflight find; they change nothing."""
    before = place.lab.snapshot()
    with opened(manifest) as here:
        seen = survey(here.client, here.environment)
        findings = [
            *plan_findings(seen),
            *find(here.client, here.connection, seen.building(), seen.inventory),
        ]
    assert place.lab.snapshot() == before
    return findings


def test_a_rewritten_iso_is_uploaded_once_for_all_guests_of_a_storage(
    place: Place, tmp_path: Path
) -> None:
    source = ubuntu_source(place, tmp_path)
    manifest = place.write(document(place, source, count=3, storage="shared"))
    place.lab.forget_requests()

    with opened(manifest) as here:
        outcomes = [media.fn(here.run, f"n{n}") for n in (1, 2, 3)]
        volumes = {install_iso(here, here.guest(f"n{n}")) for n in (1, 2, 3)}

    assert [outcome.status for outcome in outcomes] == ["done", "unchanged", "unchanged"]
    assert len(uploads(place)) == 1
    (volid,) = volumes
    assert volid.startswith("shared:iso/")
    assert is_remastered(volid)
    stored = lab_iso(place, volid.rpartition("/")[2], storage="shared")
    assert "autoinstall" in (read_file(stored, GRUB) or "")
    assert "autoinstall" not in (read_file(source, GRUB) or "")


def test_each_node_with_a_storage_of_its_own_gets_the_rewritten_iso_once(
    place: Place, tmp_path: Path
) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path), count=4))
    place.lab.forget_requests()

    with opened(manifest) as here:
        outcomes = [media.fn(here.run, f"n{n}").status for n in (1, 2, 3, 4)]

    assert outcomes == ["done", "done", "done", "unchanged"]
    assert sorted(uploads(place)) == [f"POST /nodes/{n}/storage/local/upload" for n in NODES]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(guests=st.lists(st.sampled_from(["local", "shared"]), min_size=1, max_size=5))
def test_there_is_one_upload_a_storage_whoever_shares_a_source(
    place: Place, tmp_path: Path, guests: list[str]
) -> None:
    made = document(place, ubuntu_source(place, tmp_path), count=len(guests))
    made["spec"]["hypervisor"]["iso"]["image"] = f"{place.env}-{next(_numbers)}-ubuntu.iso"
    for node, storage in zip(made["spec"]["hypervisor"]["nodes"].values(), guests, strict=True):
        node["iso"] = {"storage": storage}
    place.lab.forget_requests()

    with opened(place.write(made)) as here:
        for label in made["spec"]["hypervisor"]["nodes"]:
            media.fn(here.run, label)

    places = {"shared" if storage == "shared" else NODES[n % 3] for n, storage in enumerate(guests)}
    assert len(uploads(place)) == len(places)


def test_the_next_run_finds_the_rewritten_iso_and_sends_nothing(
    place: Place, tmp_path: Path
) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path)))
    _, first = provided(place, manifest)
    place.lab.forget_requests()

    outcome, again = provided(place, manifest)

    assert (outcome.status, outcome.warnings, again) == ("unchanged", (), first)
    assert uploads(place) == []


def test_a_rewritten_iso_that_was_altered_on_the_storage_is_replaced(
    place: Place, tmp_path: Path
) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path)))
    _, volid = provided(place, manifest)
    stored = lab_iso(place, volid.rpartition("/")[2])
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    outcome, _ = provided(place, manifest)

    assert outcome.status == "done"
    assert stored.read_bytes() == whole


@pytest.mark.parametrize("damage", [b"", b"x"], ids=["torn", "altered"])
def test_a_cached_iso_that_was_altered_is_not_used(
    place: Place, tmp_path: Path, damage: bytes
) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path)))
    _, volid = provided(place, manifest)
    (cached,) = (tmp_path / "cache" / "rewritten").glob("*.iso")
    whole = cached.read_bytes()
    cached.write_bytes(whole[:-1] + damage)
    stored = lab_iso(place, volid.rpartition("/")[2])
    stored.unlink()

    outcome, _ = provided(place, manifest)

    assert outcome.status == "done"
    assert stored.read_bytes() == cached.read_bytes() == whole


def test_an_installer_that_needs_it_installs_from_the_rewritten_iso_without_a_question(
    place: Place, tmp_path: Path
) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path)))
    with opened(manifest) as here:
        here.look(here.guest("n1"))
        for stage in (render, build, media, upload, create, attach, start, wait):
            outcome = stage.fn(here.run, "n1")
        volid = install_iso(here, here.guest("n1"))

    assert outcome.status == "done"
    assert place.config()["ide2"].startswith(f"{volid},media=cdrom")


def test_an_iso_that_needs_no_rewriting_is_uploaded_as_it_is(place: Place, tmp_path: Path) -> None:
    source = plain_source(place, tmp_path)
    manifest = place.write(document(place, source))

    outcome, volid = provided(place, manifest)
    again, _ = provided(place, manifest)

    assert (outcome.status, again.status) == ("done", "unchanged")
    assert volid == f"local:iso/{place.env}-{NEW}"
    assert lab_iso(place, f"{place.env}-{NEW}").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("same_size", [True, False])
def test_another_iso_of_the_same_name_is_never_overwritten(
    place: Place, tmp_path: Path, same_size: bool
) -> None:
    source = plain_source(place, tmp_path)
    manifest = place.write(document(place, source))
    provided(place, manifest)
    stored = lab_iso(place, f"{place.env}-{NEW}")
    data = source.read_bytes()
    strange = data[:-1] + b"x" if same_size else data + data
    stored.write_bytes(strange)

    with pytest.raises(StageError, match="is another ISO than") as refused:
        provided(place, manifest)

    assert "`iso.image`" in (refused.value.advice or "")
    assert stored.read_bytes() == strange


def test_where_the_node_may_not_be_asked_the_size_decides_and_that_is_said(
    place: Place, tmp_path: Path
) -> None:
    manifest = place.write(document(place, plain_source(place, tmp_path)))
    provided(place, manifest)
    place.lab.fault(
        method="POST",
        path=".*/download-url",
        status=403,
        reason="Permission check failed (/nodes/pve1, Sys.Modify)",
    )

    outcome, _ = provided(place, manifest)

    assert outcome.status == "unchanged"
    assert "could not be compared, only its size" in outcome.warnings[0]


def test_a_node_fetches_an_iso_from_a_url_itself(place: Place, tmp_path: Path, web: Web) -> None:
    source = plain_source(place, tmp_path)
    (web.folder / NEW).write_bytes(source.read_bytes())
    manifest = place.write(
        document(place, f"{web.url}/{NEW}", checksum=f"sha256:{sha256_of(source)}")
    )
    place.lab.forget_requests()

    outcome, _ = provided(place, manifest)

    assert outcome.detail.endswith("fetched by pve1")
    assert uploads(place) == []
    assert lab_iso(place, f"{place.env}-{NEW}").read_bytes() == source.read_bytes()


def test_what_the_node_cannot_fetch_is_fetched_here_and_uploaded(
    place: Place, tmp_path: Path, web: Web
) -> None:
    source = plain_source(place, tmp_path)
    (web.folder / NEW).write_bytes(source.read_bytes())
    manifest = place.write(
        document(place, f"{web.url}/{NEW}", checksum=f"sha256:{sha256_of(source)}")
    )
    place.lab.fault(kind="task", type="download", exitstatus="download failed: exit code 4")
    place.lab.forget_requests()

    outcome, _ = provided(place, manifest)

    assert outcome.status == "done"
    assert "did not fetch the ISO (download failed: exit code 4)" in outcome.warnings[0]
    assert len(uploads(place)) == 1


def test_a_url_is_fetched_and_rewritten_once_and_taken_up_where_it_broke_off(
    place: Place, tmp_path: Path, web: Web
) -> None:
    source = ubuntu_source(place, tmp_path, lines=500_000)
    (web.folder / UBUNTU).write_bytes(source.read_bytes())
    manifest = place.write(
        document(place, f"{web.url}/{UBUNTU}?token=x", checksum=f"sha256:{sha256_of(source)}")
    )
    web.break_after = 2 * 2**20 + 5000

    with pytest.raises(OriginError) as broken:
        provided(place, manifest)
    outcome, volid = provided(place, manifest)

    assert broken.value.transient
    assert "token" not in str(broken.value)
    assert outcome.status == "done"
    assert is_remastered(volid)
    assert web.gets == ["", f"bytes={2 * 2**20}-"]


@pytest.mark.parametrize("name", [NEW, UBUNTU])
def test_a_wrong_checksum_of_a_url_is_refused_and_leaves_nothing(
    place: Place, tmp_path: Path, web: Web, name: str
) -> None:
    source = ubuntu_source(place, tmp_path)
    (web.folder / name).write_bytes(source.read_bytes())
    manifest = place.write(document(place, f"{web.url}/{name}", checksum="sha256:" + "0" * 64))
    before = place.lab.snapshot()["volumes"]

    with pytest.raises(StageError, match=f"(?s){name}.*{sha256_of(source)}") as refused:
        provided(place, manifest)

    assert "`iso.checksum`" in (refused.value.advice or "")
    assert not refused.value.transient
    assert place.lab.snapshot()["volumes"] == before
    assert list((tmp_path / "cache").rglob("*.iso")) == []


def test_a_wrong_checksum_of_a_path_is_found_before_anything_changes(
    place: Place, tmp_path: Path
) -> None:
    source = ubuntu_source(place, tmp_path)
    manifest = place.write(document(place, source, checksum="sha256:" + "0" * 64))

    (finding,) = found_before(place, manifest)

    assert finding.severity == "error"
    assert sha256_of(source) in finding.problem


def test_a_url_that_names_nothing_is_found_before_anything_changes(place: Place, web: Web) -> None:
    manifest = place.write(
        document(place, f"{web.url}/{UBUNTU}", checksum="sha256:" + "0" * 64, storage="shared")
    )

    (finding,) = found_before(place, manifest)

    assert f"{web.url}/{UBUNTU}: the server answers 404" in finding.problem
    with pytest.raises(OriginError, match="answers 404"):
        provided(place, manifest)


def test_a_source_that_is_not_there_or_no_iso_is_found_before_anything_changes(
    place: Place, tmp_path: Path
) -> None:
    text = tmp_path / f"notes-{UBUNTU}"
    text.write_text("no ISO" * 10_000)

    (missing,) = found_before(place, place.write(document(place, tmp_path / UBUNTU)))
    (wrong,) = found_before(place, place.write(document(place, text)))

    assert f"the ISO {tmp_path / UBUNTU} cannot be read: No such file" in missing.problem
    assert "no ISO 9660 image" in wrong.problem


def test_an_iso_that_the_run_will_upload_is_not_missing_and_asks_nothing(
    place: Place, tmp_path: Path
) -> None:
    assert found_before(place, place.write(document(place, ubuntu_source(place, tmp_path)))) == []


def test_an_iso_for_which_there_is_no_room_is_found_before_anything_changes(
    place: Place, tmp_path: Path
) -> None:
    source = plain_source(place, tmp_path)
    with source.open("r+b") as stream:
        stream.truncate(600 * 2**30)

    manifest = place.write(document(place, source, checksum=None))
    known = tmp_path / "cache" / "sums"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.iso.source.file_sha256", lambda *_: "0" * 64)
        (finding,) = found_before(place, manifest)

    assert not known.exists()
    assert "storage local on pve1 has 500 GiB left" in finding.problem
    assert "take 600 GiB" in finding.problem


def test_a_relative_path_starts_at_the_manifest(place: Place, tmp_path: Path) -> None:
    source = ubuntu_source(place, tmp_path)
    made = document(place, source)
    made["spec"]["hypervisor"]["iso"]["source"] = f"../download/{UBUNTU}"

    outcome, _ = provided(place, place.write(made))

    assert outcome.status == "done"


def test_an_upload_that_is_interrupted_is_given_up_and_the_next_one_ends_it(
    place: Place, tmp_path: Path
) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path)))
    scope = Scope()
    scope.stop.set()
    with opened(manifest) as here, scope(), pytest.raises(StageCancelled):
        media.fn(here.run, "n1")

    assert provided(place, manifest)[0].status == "done"


def test_an_upload_that_is_refused_names_what_is_missing(place: Place, tmp_path: Path) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path)))
    place.lab.storage_full("local")
    try:
        with pytest.raises(ProxmoxError, match="No space left"):
            provided(place, manifest)
    finally:
        place.lab.storage_full("local", on=False)


def test_a_long_job_says_how_far_it_is(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.progress.QUIET", 0)
    monkeypatch.setattr("tasks.progress.SOONEST", 0)
    manifest = place.write(document(place, ubuntu_source(place, tmp_path)))
    events: list[Event] = []
    scope = Scope(emit=events.append)

    with opened(manifest) as here, scope():
        media.task.fn(here.run, "n1")

    said = [event.detail for event in events if event.state == "working"]
    for job in (f"reading {UBUNTU}", f"rewriting {UBUNTU}", f"uploading {place.env}-ubuntu"):
        assert any(text.startswith(job) and "100 % of" in text for text in said), said


def test_an_image_that_was_rewritten_already_is_taken_as_it_is(
    place: Place, tmp_path: Path
) -> None:
    manifest = place.write(document(place, ubuntu_source(place, tmp_path)))
    _, volid = provided(place, manifest)
    made = place.document()
    made["spec"]["hypervisor"]["iso"]["image"] = volid.rpartition("/")[2]
    made["spec"]["hypervisor"]["kickstart"]["distro"] = "ubuntu2404"

    assert found_before(place, place.write(made)) == []


def test_without_an_origin_nothing_is_done(place: Place) -> None:
    outcome, volid = provided(place, place.write())
    assert (outcome.status, volid) == ("skipped", f"local:iso/{ROCKY}")


def test_an_error_of_the_stage_says_what_to_do_next(place: Place, tmp_path: Path) -> None:
    manifest = place.write(document(place, tmp_path / UBUNTU))
    with pytest.raises(OriginError) as missing:
        provided(place, manifest)

    text = str(StageFailed("n1", "media", missing.value))
    assert "next: `iso.source` is a path on the machine that runs Proxflow, or a URL" in text
