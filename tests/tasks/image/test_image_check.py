"""Preflight of disk images: everything that would go wrong, without fetching anything."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import pytest

from blocks.manifest.guest import ImageSource
from blocks.proxmox.inventory import read_inventory
from blocks.proxmox.upload import upload
from blocks.units import GIB, MIB
from tasks.findings import Finding
from tasks.image import check_image, image_digest
from tasks.image.formats import Packing
from tasks.image.origin import stem
from tests.environments import Place
from tests.tasks.image.files import PACKERS, qcow2, qcow2_header, raw, sha256
from tests.tasks.image.keys import MISSING, a_key
from tests.tasks.image.orders import building, provided, source
from tests.templates import Golden
from tests.webserver import Web


def found(place: Place, wanted: ImageSource, **storage: Any) -> list[Finding]:
    """What preflight finds, which changes nothing and fetches no image."""
    before = place.lab.snapshot()
    with building(place, wanted) as (here, template):
        inventory = read_inventory(here.client)
        if storage:
            rows = tuple(
                row.model_copy(update=storage) if row.storage == wanted.storage else row
                for row in inventory.storages
            )
            inventory = inventory.model_copy(update={"storages": rows})
        findings = list(check_image(here.client, template, inventory))
    assert place.lab.snapshot() == before
    return findings


def test_an_image_that_can_be_had_is_no_finding_and_is_not_fetched(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    url = web.put("a.qcow2", data)
    sums = web.put("SUMS", f"{sha256(data).hex}  a.qcow2\n".encode())

    assert found(place, source(place, url, sums=sums)) == []
    assert web.fetches("a.qcow2") == []


def test_what_preflight_has_looked_up_the_stage_does_not_ask_again(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    url = web.put("a.qcow2", data)
    sums = web.put("SUMS", f"{sha256(data).hex}  a.qcow2\n".encode())
    with building(place, source(place, url, sums=sums)) as (here, template):
        check_image(here.client, template, read_inventory(here.client))
        image_digest(here, template)
    assert len(web.fetches("SUMS")) == 1


def test_an_image_that_is_on_the_storage_needs_no_publisher(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data))
    provided(place, wanted)
    (web.folder / "a.qcow2").unlink()

    assert found(place, wanted) == []


def test_all_that_is_wrong_is_told_at_once(place: Place, web: Web) -> None:
    wanted = source(place, f"{web.url}/a.qcow2", sums=f"{web.url}/SUMS", storage="local-lvm")

    texts = [finding.problem for finding in found(place, wanted)]

    assert len(texts) == 3
    assert "storage local-lvm on pve1 does not take disk images" in texts[0]
    assert "SUMS: the server answers 404" in texts[1]
    assert "a.qcow2: the server answers 404" in texts[2]


def test_a_storage_without_images_is_told_with_those_that_have_them(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "a.qcow2"
    path.write_bytes(qcow2(place.number))

    (finding,) = found(place, source(place, path, storage="local-lvm"))

    assert "no content type `import`" in finding.problem
    assert "local, shared" in finding.remedy


def test_a_storage_that_is_not_there_or_not_active_is_told(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "a.qcow2"
    path.write_bytes(qcow2(place.number))

    (missing,) = found(place, source(place, path, storage="nosuch"))
    (inactive,) = found(place, source(place, path), active=False)

    assert "pve1 has no storage nosuch" in missing.problem
    assert "local is not active on pve1" in inactive.problem


@pytest.mark.parametrize("packed", [True, False])
def test_an_image_for_which_there_is_no_room_is_told(place: Place, web: Web, packed: bool) -> None:
    data = lzma.compress(raw(place.number)) if packed else qcow2(place.number)
    wanted = source(place, web.put("a.img", data), checksum=sha256(data))

    (finding,) = found(place, wanted, total=GIB, used=GIB - 1024)

    assert "local on pve1 has 1 KiB left" in finding.problem
    assert ("at least" in finding.problem) == packed


@pytest.mark.parametrize("there", [True, False], ids=["url", "path"])
def test_what_is_no_disk_image_is_told_by_its_first_bytes(
    place: Place, web: Web, there: bool
) -> None:
    data = b"<!DOCTYPE html>" + bytes(1000)
    url = web.put("a.qcow2", data)
    origin = url if there else web.folder / "a.qcow2"

    (finding,) = found(place, source(place, origin, checksum=sha256(data)))

    assert "a.qcow2 is no disk image: it is a web page" in finding.problem


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (qcow2_header(), "it is the header of a qcow2 image"),
        (qcow2(size=0), "it is a qcow2 image with a disk of 0 B"),
    ],
    ids=["nothing", "header", "no disk"],
)
@pytest.mark.parametrize("there", [True, False], ids=["url", "path"])
def test_an_image_without_a_disk_in_it_is_told(
    place: Place, web: Web, there: bool, data: bytes, words: str
) -> None:
    url = web.put("a.qcow2", data)
    origin = url if there else web.folder / "a.qcow2"

    (finding,) = found(place, source(place, origin, checksum=sha256(data)))

    assert (finding.severity, words in finding.problem) == ("error", True), finding


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("there", [True, False], ids=["url", "path"])
def test_what_is_packed_and_no_disk_image_is_told_without_unpacking_it(
    place: Place, web: Web, there: bool, packing: Packing
) -> None:
    data = PACKERS[packing](bytes(MIB))
    url = web.put("a.img", data)

    (finding,) = found(
        place, source(place, url if there else web.folder / "a.img", checksum=sha256(data))
    )

    assert finding.severity == "error"
    assert "what is in a.img is no disk image" in finding.problem


def test_a_packed_disk_that_is_larger_than_the_one_declared_is_told(place: Place, web: Web) -> None:
    data = lzma.compress(qcow2(place.number, size=8 * GIB))
    (finding,) = found(place, source(place, web.put("a.xz", data), checksum=sha256(data)))
    assert "the image is larger than scsi0: 8 GiB" in finding.problem


def test_a_packed_image_that_is_damaged_from_its_beginning_is_told(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "a.xz"
    data = lzma.compress(raw(place.number))
    path.write_bytes(data[:12] + bytes(len(data) - 12))
    (finding,) = found(place, source(place, path))
    assert "a.xz cannot be unpacked" in finding.problem


def test_an_image_without_a_disk_is_told_although_it_is_on_the_storage(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "a.qcow2"
    path.write_bytes(qcow2_header())
    wanted = source(place, path)
    volume = f"{stem(wanted, sha256(path.read_bytes()))}.qcow2"
    with building(place, wanted) as (here, template):
        upload(here.client, template.node, "local", path, content="import", filename=volume)

    (finding,) = found(place, wanted)

    assert "a.qcow2 is no disk image: it is the header of a qcow2 image" in finding.problem


def test_a_path_that_is_not_there_is_told_once(place: Place, tmp_path: Path) -> None:
    (finding,) = found(place, source(place, tmp_path / "a.qcow2"))
    assert "a.qcow2 cannot be read: No such file" in finding.problem
    assert "`image.path`" in finding.remedy


def test_a_file_of_another_checksum_than_declared_is_told(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "a.qcow2"
    path.write_bytes(qcow2(place.number))
    (finding,) = found(place, source(place, path, checksum=sha256(b"another")))
    assert sha256(path.read_bytes()).hex in finding.problem


def test_a_list_that_does_not_name_the_image_is_told(place: Place, web: Web) -> None:
    url = web.put("a.qcow2", qcow2(place.number))
    sums = web.put("SUMS", f"{'a' * 64}  b.qcow2\n".encode())
    (finding,) = found(place, source(place, url, sums=sums))
    assert "SUMS does not name a.qcow2" in finding.problem
    assert "b.qcow2" in finding.remedy


def test_a_publisher_that_only_the_node_may_reach_is_a_warning(place: Place, web: Web) -> None:
    data = qcow2(place.number)
    web.deaf_to = "proxflow"
    url = web.put("a.qcow2", data)

    (auto,) = found(place, source(place, url, checksum=sha256(data)))
    (here,) = found(place, source(place, url, checksum=sha256(data), fetch="here"))

    assert (auto.severity, here.severity) == ("warning", "error")
    assert "node pve1 is to fetch it" in auto.problem


def test_a_packed_image_that_only_the_node_may_fetch_is_told(place: Place, web: Web) -> None:
    data = lzma.compress(raw(place.number))
    wanted = source(place, web.put("a.img", data), checksum=sha256(data), fetch="node")
    (finding,) = found(place, wanted)
    assert "a node unpacks no disk images" in finding.problem


def test_a_keyring_that_cannot_be_read_is_told(place: Place, web: Web, tmp_path: Path) -> None:
    url = web.put("a.qcow2", qcow2(place.number))
    sums = web.put("SUMS", f"{'a' * 64}  a.qcow2\n".encode())
    wanted = source(place, url, sums=sums, keyring=str(tmp_path / "none.asc"))

    (finding, *_) = found(place, wanted)

    assert "none.asc cannot be read" in finding.problem


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_a_list_that_was_altered_is_told(place: Place, web: Web, tmp_path: Path) -> None:
    url = web.put("a.qcow2", qcow2(place.number))
    text = f"{'a' * 64}  a.qcow2\n".encode()
    with a_key() as key:
        sums = web.put("SUMS", text.replace(b"a", b"b", 1))
        signature = web.put("SUMS.gpg", key.detached(text))
        keyring = key.public(tmp_path)
    wanted = source(place, url, sums=sums, signature=signature, keyring=str(keyring))

    (finding,) = found(place, wanted)

    assert "SUMS was altered after it was signed" in finding.problem


def test_a_guest_without_an_image_has_no_findings(place: Place) -> None:
    golden = Golden(place)
    template = golden.template(source=None)
    with golden.opened(golden.recipe(template=template)) as here:
        assert list(check_image(here.client, template, read_inventory(here.client))) == []
