"""Stage image: from where a disk image comes to the storage that the node imports it from."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from blocks.manifest.guest import Digest
from blocks.proxmox.errors import ProxmoxError
from blocks.units import GIB, MIB
from tasks.errors import StageError
from tasks.fetching import OriginError
from tasks.image import image, image_digest, image_size, image_volume
from tasks.image.formats import Packing
from tasks.stage import Event, Scope, StageCancelled
from tests.environments import Place
from tests.tasks.image.files import (
    PACKERS,
    allocated,
    qcow2,
    qcow2_with_backing,
    raw,
    sha256,
    sha512,
)
from tests.tasks.image.keys import MISSING, a_key
from tests.tasks.image.orders import (
    building,
    forbid_download,
    images,
    provided,
    source,
    stored,
    uploads,
)
from tests.templates import Golden
from tests.webserver import Web


@pytest.mark.parametrize("checksum", [sha256, sha512])
def test_the_node_fetches_an_image_under_a_name_with_its_checksum(
    place: Place, web: Web, checksum: Callable[[bytes], Digest]
) -> None:
    data = qcow2(place.number)
    url = web.put("debian.img", data)
    place.lab.forget_requests()

    outcome, volid = provided(place, source(place, url, checksum=checksum(data)))

    assert volid == f"local:import/proxflow-os{place.number}-{checksum(data).hex[:12]}.qcow2"
    assert (outcome.status, outcome.warnings) == ("done", ())
    assert outcome.detail.endswith("fetched by pve1")
    assert stored(place, volid).read_bytes() == data
    assert uploads(place) == []


def test_a_raw_image_keeps_its_format_whatever_its_name_says(place: Place, web: Web) -> None:
    data = raw(place.number)
    url = web.put("disk.qcow2", data)

    _, volid = provided(place, source(place, url, checksum=sha256(data)))

    assert volid.endswith(".raw")


def test_the_size_of_the_disk_is_told_and_not_that_of_the_file(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "image.qcow2"
    path.write_bytes(qcow2(place.number, 3 * GIB))
    with building(place, source(place, path)) as (here, template):
        image.fn(here.run, template.label)
        assert image_size(here, template) == 3 * GIB
        assert image_digest(here, template) == sha256(path.read_bytes())


def test_a_file_on_this_machine_is_uploaded_once(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "golden.img"
    path.write_bytes(qcow2(place.number))
    place.lab.forget_requests()

    outcome, volid = provided(place, source(place, path))
    again, _ = provided(place, source(place, path))

    assert (outcome.status, again.status) == ("done", "unchanged")
    assert len(uploads(place)) == 1
    assert stored(place, volid).read_bytes() == path.read_bytes()


def test_a_file_on_this_machine_with_another_checksum_than_declared_is_refused(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "golden.img"
    path.write_bytes(qcow2(place.number))

    with pytest.raises(OriginError, match=r"golden\.img has the SHA-512") as refused:
        provided(place, source(place, path, checksum=sha512(b"another")))

    assert "`image.checksum`" in (refused.value.advice or "")
    assert images(place) == []


@pytest.mark.parametrize("packing", list(PACKERS))
@pytest.mark.parametrize("there", [True, False], ids=["url", "path"])
def test_a_packed_image_is_unpacked_here_and_uploaded_once(
    place: Place, tmp_path: Path, web: Web, packing: Packing, there: bool
) -> None:
    data = raw(place.number)
    packed = PACKERS[packing](data)
    name = f"disk.raw.{packing}"
    url = web.put(name, packed)
    origin = url if there else str(web.folder / name)
    wanted = source(place, origin, checksum=sha256(packed))
    place.lab.forget_requests()

    outcome, volid = provided(place, wanted)
    again, same = provided(place, wanted)

    assert (outcome.status, outcome.warnings) == ("done", ())
    assert volid == f"local:import/proxflow-os{place.number}-{sha256(packed).hex[:12]}.raw"
    assert stored(place, volid).read_bytes() == data
    assert (again.status, again.warnings, same) == ("unchanged", (), volid)
    assert len(uploads(place)) == 1


def test_a_packed_image_for_the_node_is_refused_with_what_to_do(place: Place, web: Web) -> None:
    packed = lzma.compress(raw(place.number))
    wanted = source(place, web.put("disk.raw.xz", packed), checksum=sha256(packed), fetch="node")

    with pytest.raises(StageError, match="a node unpacks no disk images") as refused:
        provided(place, wanted)

    assert "`image.fetch`" in (refused.value.advice or "")
    assert images(place) == []


def test_an_image_that_is_to_be_fetched_here_is_never_asked_of_the_node(
    place: Place, web: Web
) -> None:
    data = qcow2(place.number)
    web.deaf_to = "Python-urllib"
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data), fetch="here")
    place.lab.forget_requests()

    outcome, volid = provided(place, wanted)

    assert (outcome.status, outcome.warnings) == ("done", ())
    assert [call.rpartition("/")[2] for call in place.changes()] == ["upload"]
    assert stored(place, volid).read_bytes() == data


def test_what_the_node_cannot_reach_is_fetched_here_and_that_is_said(
    place: Place, web: Web
) -> None:
    data = qcow2(place.number)
    web.deaf_to = "Python-urllib"
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data))
    place.lab.forget_requests()

    outcome, volid = provided(place, wanted)

    assert outcome.status == "done"
    assert outcome.warnings[0].startswith("pve1 did not fetch the image (download failed")
    assert stored(place, volid).read_bytes() == data
    assert len(uploads(place)) == 1


def test_where_the_node_may_not_be_told_to_fetch_it_is_fetched_here(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data))
    forbid_download(place)

    outcome, _ = provided(place, wanted)

    assert "Permission check failed (/nodes/pve1, Sys.Modify)" in outcome.warnings[0]


def test_where_only_the_node_may_fetch_its_refusal_is_the_end(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data), fetch="node")
    forbid_download(place)

    with pytest.raises(StageError, match=r"pve1 did not fetch .*Permission check") as refused:
        provided(place, wanted)

    assert not refused.value.transient
    assert images(place) == []


def test_a_node_without_network_that_alone_may_fetch_is_tried_again(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data), fetch="node")
    place.lab.fault(kind="task", type="download", exitstatus="download failed: exit code 4")

    with pytest.raises(StageError, match="exit code 4") as failed:
        provided(place, wanted)
    outcome, _ = provided(place, wanted)

    assert failed.value.transient
    assert "`image.fetch`" in (failed.value.advice or "")
    assert outcome.status == "done"


def test_an_image_that_only_the_node_reaches_is_named_by_its_url(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    web.deaf_to = "proxflow"
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data))

    outcome, volid = provided(place, wanted)

    assert outcome.detail.endswith("fetched by pve1")
    assert volid.endswith(".qcow2")


@pytest.mark.parametrize(("make", "ending"), [(qcow2, ".qcow2"), (raw, ".raw")])
def test_where_the_name_tells_nothing_either_the_node_finds_the_format(
    place: Place, web: Web, make: Callable[[int], bytes], ending: str
) -> None:
    data = make(place.number)
    web.deaf_to = "proxflow"

    _, volid = provided(place, source(place, web.put("a.img", data), checksum=sha256(data)))

    assert volid.endswith(ending)
    assert stored(place, volid).read_bytes() == data


@pytest.mark.parametrize("fetch", ["auto", "node", "here"])
def test_a_wrong_checksum_is_refused_and_leaves_nothing(
    place: Place, web: Web, tmp_path: Path, fetch: str
) -> None:
    data = qcow2(place.number)
    url = web.put("a.qcow2", data)

    with pytest.raises(StageError, match=f"(?s)a.qcow2.*{sha256(data).hex}") as refused:
        provided(place, source(place, url, checksum=sha256(b"another"), fetch=fetch))

    assert "`image.checksum`" in (refused.value.advice or "")
    assert not refused.value.transient
    assert images(place) == []
    assert list((tmp_path / "cache").rglob("*.image")) == []


@pytest.mark.parametrize("fetch", ["auto", "node", "here"])
def test_a_url_that_names_nothing_is_told_at_once(place: Place, web: Web, fetch: str) -> None:
    wanted = source(place, f"{web.url}/gone.qcow2", checksum=sha256(b""), fetch=fetch)

    with pytest.raises(OriginError, match=r"gone\.qcow2: the server answers 404") as missing:
        provided(place, wanted)

    assert not missing.value.transient
    assert "`image.url`" in (missing.value.advice or "")


def test_a_server_in_trouble_is_asked_again_later(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data), fetch="here")
    web.fail = [503]

    with pytest.raises(OriginError, match="the server answers 503") as broken:
        provided(place, wanted)
    outcome, _ = provided(place, wanted)

    assert broken.value.transient
    assert outcome.status == "done"


def test_a_fetch_that_breaks_off_is_taken_up_where_it_was(place: Place, web: Web) -> None:
    data = qcow2(place.number, length=4 * MIB)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha512(data), fetch="here")
    web.break_after = 2 * MIB + 5000

    with pytest.raises(OriginError) as broken:
        provided(place, wanted)
    outcome, volid = provided(place, wanted)

    assert broken.value.transient
    assert outcome.status == "done"
    assert web.fetches("a.qcow2") == ["", f"bytes={2 * MIB}-"]
    assert stored(place, volid).read_bytes() == data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"<html>moved</html>" * 100, "a web page"),
        (qcow2_with_backing(), "depends on another file"),
        (lzma.compress(b"a text" * 1000), "without a partition table"),
    ],
    ids=["empty", "html", "backing", "packed-text"],
)
@pytest.mark.parametrize("there", [True, False], ids=["url", "path"])
def test_what_is_no_disk_image_reaches_no_storage(
    place: Place, tmp_path: Path, web: Web, data: bytes, words: str, there: bool
) -> None:
    url = web.put("image.img", data)
    wanted = source(place, url if there else web.folder / "image.img", checksum=sha256(data))
    place.lab.forget_requests()

    with pytest.raises(StageError, match=words):
        provided(place, wanted)

    assert place.changes() == []
    assert images(place) == []


def test_a_node_that_finds_no_image_behind_the_url_ends_it(place: Place, web: Web) -> None:
    data = b"<html>moved</html>" * 100
    web.deaf_to = "proxflow"
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data))

    with pytest.raises(StageError, match="no disk image that pve1 takes") as refused:
        provided(place, wanted)

    assert not refused.value.transient
    assert images(place) == []


def test_a_file_without_a_checksum_that_was_cut_off_is_not_used(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "image.qcow2"
    path.write_bytes(allocated(MIB)[: MIB // 2])
    with pytest.raises(OriginError, match=r"image\.qcow2 was cut off"):
        provided(place, source(place, path))
    assert images(place) == []


def test_a_storage_that_takes_no_images_says_so(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "image.qcow2"
    path.write_bytes(qcow2(place.number))
    with pytest.raises(ProxmoxError):
        provided(place, source(place, path, storage="local-lvm"))


def test_a_full_storage_is_told_in_the_words_of_the_server(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "image.qcow2"
    path.write_bytes(qcow2(place.number))
    place.lab.storage_full("local")
    try:
        with pytest.raises(ProxmoxError, match="No space left"):
            provided(place, source(place, path))
    finally:
        place.lab.storage_full("local", on=False)
    assert images(place) == []


def test_a_guest_that_is_not_made_from_an_image_has_nothing_to_do(place: Place) -> None:
    golden = Golden(place)
    template = golden.template(source=None)
    with golden.opened(golden.recipe(template=template)) as here:
        assert image.fn(here.run, template.label).status == "skipped"


def test_a_run_that_stops_gives_up_and_the_next_one_ends_it(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data), fetch="here")
    scope = Scope()
    scope.stop.set()
    with building(place, wanted) as (here, template), scope(), pytest.raises(StageCancelled):
        image.fn(here.run, template.label)

    assert provided(place, wanted)[0].status == "done"


@pytest.mark.parametrize(("fetch", "jobs"), [("auto", ["pve1 fetches"]), ("here", ["uploading"])])
def test_a_long_job_says_how_far_it_is(
    place: Place, web: Web, monkeypatch: pytest.MonkeyPatch, fetch: str, jobs: list[str]
) -> None:
    monkeypatch.setattr("tasks.progress.QUIET", 0)
    monkeypatch.setattr("tasks.progress.SOONEST", 0)
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data), fetch=fetch)
    events: list[Event] = []
    scope = Scope(emit=events.append)

    with building(place, wanted) as (here, template), scope():
        image.task.fn(here.run, template.label)

    said = [event.detail for event in events if event.state == "working"]
    for job in jobs:
        assert any(text.startswith(job) and "100 %" in text for text in said), said


def test_a_checksum_is_looked_up_in_the_publishers_list(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    url = web.put("a.qcow2", data)
    sums = web.put("SHA512SUMS", f"{sha512(data).hex}  a.qcow2\n".encode())
    with building(place, source(place, url, sums=sums)) as (here, template):
        image.fn(here.run, template.label)
        assert image_digest(here, template) == sha512(data)
        assert sha512(data).hex[:12] in image_volume(here, template)
    assert len(web.fetches("SHA512SUMS")) == 1


@pytest.mark.parametrize("fetch", ["auto", "here"])
def test_an_image_that_does_not_fit_its_publishers_list_is_not_the_operators_mistake(
    place: Place, web: Web, fetch: str
) -> None:
    url = web.put("a.qcow2", qcow2(place.number))
    sums = web.put("SUMS", f"{'a' * 64}  a.qcow2\n".encode())

    with pytest.raises(StageError) as refused:
        provided(place, source(place, url, sums=sums, fetch=fetch))

    assert "the release may just be changing" in (refused.value.advice or "")


def test_a_list_that_does_not_name_the_file_is_refused(place: Place, web: Web) -> None:
    url = web.put("a.qcow2", qcow2(place.number))
    sums = web.put("SUMS", f"{'a' * 64}  b.qcow2\n".encode())
    with pytest.raises(OriginError, match=r"SUMS does not name a\.qcow2"):
        provided(place, source(place, url, sums=sums))


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.parametrize("detached", [True, False])
def test_a_signed_list_is_checked_with_the_operators_keyring(
    place: Place, web: Web, tmp_path: Path, detached: bool
) -> None:
    data = qcow2(place.number)
    url = web.put("a.qcow2", data)
    text = f"{sha256(data).hex}  a.qcow2\n".encode()
    with a_key() as key, a_key() as stranger:
        sums = web.put("SUMS", text if detached else key.clear(text))
        signature = web.put("SUMS.asc", key.detached(text)) if detached else None
        (tmp_path / "theirs").mkdir()
        good = key.public(tmp_path, armored=True)
        bad = stranger.public(tmp_path / "theirs", armored=True)
        signed = {"sums": sums, "signature": signature}

        with pytest.raises(StageError, match="is not signed by a key of"):
            provided(place, source(place, url, keyring=str(bad), **signed))
        outcome, _ = provided(place, source(place, url, keyring=str(good), **signed))

    assert outcome.status == "done"


@pytest.mark.parametrize("fetch", ["auto", "node", "here"])
@pytest.mark.parametrize("deaf", ["Python-urllib", "proxflow", ""])
def test_a_url_never_shows_its_secrets(
    place: Place, web: Web, monkeypatch: pytest.MonkeyPatch, fetch: str, deaf: str
) -> None:
    web.put("a.qcow2", b"text")
    web.deaf_to = deaf or None
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = f"{web.url}/a.qcow2?token=hidden"

    with pytest.raises(StageError) as refused:
        provided(place, source(place, url, checksum=sha256(b"x"), fetch=fetch))

    assert "hidden" not in f"{refused.value} {refused.value.advice}"
