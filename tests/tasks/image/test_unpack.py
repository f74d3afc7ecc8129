"""Packed disk images."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from tasks.fetching import OriginError
from tasks.image.formats import Packing
from tasks.image.unpack import unpack
from tests.tasks.image.files import PACKERS, raw, sha256


def silent(_job: str, _done: int, _total: int) -> None:
    return


@pytest.mark.parametrize("packing", list(PACKERS))
def test_an_image_is_unpacked_as_it_was_and_its_holes_take_no_room(
    tmp_path: Path, packing: Packing
) -> None:
    image = raw(size=32 * 2**20)
    source = tmp_path / "image.raw.packed"
    source.write_bytes(PACKERS[packing](image))

    made = unpack(source, packing, tmp_path / "image.raw", silent)

    target = tmp_path / "image.raw"
    assert target.read_bytes() == image
    assert (made.size, made.sha256) == (len(image), sha256(image).hex)
    assert target.stat().st_blocks * 512 < 2**20


@pytest.mark.parametrize("packing", list(PACKERS))
def test_an_image_of_several_packed_parts_is_unpacked_whole(
    tmp_path: Path, packing: Packing
) -> None:
    pack, image = PACKERS[packing], raw()
    source = tmp_path / "image"
    source.write_bytes(pack(image[:1_000_000]) + pack(image[1_000_000:]))

    unpack(source, packing, tmp_path / "out", silent)

    assert (tmp_path / "out").read_bytes() == image


@pytest.mark.parametrize("packing", list(PACKERS))
@pytest.mark.parametrize("damage", ["cut off", "altered"])
def test_a_damaged_file_leaves_nothing(tmp_path: Path, packing: Packing, damage: str) -> None:
    packed = PACKERS[packing](raw())
    middle = len(packed) // 2
    data = packed[:-20] if damage == "cut off" else packed[:middle] + b"!!!!" + packed[middle + 4 :]
    source = tmp_path / "image.packed"
    source.write_bytes(data)

    with pytest.raises(OriginError, match=r"image\.packed cannot be unpacked"):
        unpack(source, packing, tmp_path / "out", silent)

    assert list(tmp_path.iterdir()) == [source]


def test_what_a_job_that_is_given_up_has_written_does_not_stay(tmp_path: Path) -> None:
    source = tmp_path / "image.xz"
    source.write_bytes(lzma.compress(raw()))

    def give_up(_job: str, _done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(source, "xz", tmp_path / "out", give_up)

    assert list(tmp_path.iterdir()) == [source]
