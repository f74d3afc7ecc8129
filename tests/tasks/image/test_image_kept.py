"""Stage image: what is on the storage already, and what of it is taken for good."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from blocks.units import GIB
from tasks.errors import StageError
from tasks.image import image, image_size, image_volume
from tasks.iso.build import parse_seed_name
from tests.environments import NODES, Place
from tests.tasks.image.files import (
    qcow2,
    raw,
    sha256,
)
from tests.tasks.image.orders import (
    building,
    forbid_download,
    provided,
    source,
    stored,
    uploads,
)
from tests.webserver import Web


def test_a_second_run_costs_one_listing_and_one_comparison(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("debian.qcow2", data), checksum=sha256(data))
    provided(place, wanted)
    web.asked.clear()

    with building(place, wanted) as (here, template):
        place.lab.forget_requests()
        outcome = image.fn(here.run, template.label)
        calls = [
            (row["method"], row["path"].rpartition("/")[2])
            for row in place.lab.requests()
            if "/tasks" not in row["path"]
        ]

    assert (outcome.status, outcome.warnings) == ("unchanged", ())
    assert calls == [("GET", "content"), ("POST", "download-url")]
    assert web.asked == []


def test_within_a_run_an_image_is_looked_at_once(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("debian.qcow2", data), checksum=sha256(data))
    with building(place, wanted) as (here, template):
        image.fn(here.run, template.label)
        size = image_size(here, template)
        place.lab.forget_requests()

        outcome = image.fn(here.run, template.label)

        assert outcome.status == "unchanged"
        assert image_size(here, template) == size == GIB
        assert image_volume(here, template) == outcome.detail
        assert place.lab.requests() == []


def test_the_volume_of_an_image_that_is_not_there_is_asked_for_in_vain(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "image.qcow2"
    path.write_bytes(qcow2(place.number))
    with (
        building(place, source(place, path)) as (here, template),
        pytest.raises(StageError, match=f"does not have the image os{place.number}") as gone,
    ):
        image_volume(here, template)
    assert "stage `image`" in (gone.value.advice or "")


def test_another_machine_knows_a_packed_image_again(
    place: Place, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = lzma.compress(raw(place.number))
    wanted = source(place, web.put("disk", packed), checksum=sha256(packed))
    provided(place, wanted)
    monkeypatch.setenv("PROXFLOW_CACHE_DIR", str(tmp_path / "elsewhere"))
    place.lab.forget_requests()

    outcome, _ = provided(place, wanted)

    assert (outcome.status, outcome.warnings) == ("unchanged", ())
    assert uploads(place) == []


@pytest.mark.parametrize("fetch", ["auto", "here"])
@pytest.mark.parametrize("damage", ["cut off", "altered"])
def test_an_image_that_was_damaged_on_the_storage_is_replaced(
    place: Place, web: Web, fetch: str, damage: str
) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data), fetch=fetch)
    _, volid = provided(place, wanted)
    file = stored(place, volid)
    file.write_bytes(data[:-1000] if damage == "cut off" else data[:-1] + b"!")

    outcome, same = provided(place, wanted)

    assert (outcome.status, same) == ("done", volid)
    assert file.read_bytes() == data


def test_a_packed_image_that_was_damaged_on_the_storage_is_replaced(place: Place, web: Web) -> None:
    data = raw(place.number)
    packed = gzip.compress(data)
    wanted = source(place, web.put("a.raw.gz", packed), checksum=sha256(packed))
    _, volid = provided(place, wanted)
    stored(place, volid).write_bytes(data[:-1] + b"!")

    outcome, _ = provided(place, wanted)

    assert outcome.status == "done"
    assert stored(place, volid).read_bytes() == data


@pytest.mark.parametrize("ending", ["image", "disk"])
def test_a_cached_file_that_was_damaged_is_not_used(
    place: Place, web: Web, tmp_path: Path, ending: str
) -> None:
    data = raw(place.number)
    packed = gzip.compress(data)
    wanted = source(place, web.put("a.raw.gz", packed), checksum=sha256(packed))
    _, volid = provided(place, wanted)
    (cached,) = (tmp_path / "cache" / "images").glob(f"*.{ending}")
    cached.write_bytes(cached.read_bytes()[:-1] + b"!")
    stored(place, volid).unlink()

    outcome, _ = provided(place, wanted)

    assert outcome.status == "done"
    assert stored(place, volid).read_bytes() == data


def test_an_image_that_cannot_be_compared_is_kept_though_its_publisher_has_it_no_more(
    place: Place, web: Web
) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data))
    provided(place, wanted)
    (web.folder / "a.qcow2").unlink()
    forbid_download(place)

    outcome, _ = provided(place, wanted)

    assert outcome.status == "unchanged"
    assert "could not be compared" in outcome.warnings[0]


@pytest.mark.parametrize("same_size", [True, False])
def test_where_the_node_may_not_compare_the_size_decides_and_that_is_said(
    place: Place, web: Web, same_size: bool
) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data))
    _, volid = provided(place, wanted)
    file = stored(place, volid)
    file.write_bytes(data[:-1] + b"!" if same_size else data[:-1])
    forbid_download(place)

    outcome, _ = provided(place, wanted)

    if same_size:
        assert outcome.status == "unchanged"
        assert "could not be compared" in outcome.warnings[0]
    else:
        assert outcome.status == "done"
        assert file.read_bytes() == data


def test_templates_share_an_image_and_each_node_has_its_own(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data))
    neighbour = place.neighbour()

    first = provided(place, wanted)[0]
    of_another = provided(neighbour, wanted)[0]
    elsewhere, volid = provided(place, wanted, node=NODES[1])

    assert (first.status, of_another.status, elsewhere.status) == ("done", "unchanged", "done")
    assert stored(place, volid, NODES[1]).read_bytes() == data


def test_nodes_that_share_a_storage_share_the_image(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(
        place, web.put("a.qcow2", data), checksum=sha256(data), storage="shared", fetch="here"
    )
    ended = [provided(place, wanted, node=node)[0].status for node in NODES]
    assert ended == ["done", "unchanged", "unchanged"]


def test_a_new_image_stands_beside_the_old_one(place: Place, web: Web) -> None:
    old, new = qcow2(place.number), qcow2(-place.number)
    _, first = provided(place, source(place, web.put("a.qcow2", old), checksum=sha256(old)))

    _, second = provided(place, source(place, web.put("a.qcow2", new), checksum=sha256(new)))

    assert stored(place, first).read_bytes() == old
    assert stored(place, second).read_bytes() == new


def test_an_image_on_a_storage_is_nobodys_seed(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "image.qcow2"
    path.write_bytes(qcow2(place.number))
    _, volid = provided(place, source(place, path))
    assert parse_seed_name(volid.rpartition("/")[2]) is None
