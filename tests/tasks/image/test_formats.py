"""What a file is, by its content."""

from __future__ import annotations

import io
import struct
import tarfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocks.units import MIB
from tasks.fetching import OriginError
from tasks.image.formats import HEAD, kind_by_name, kind_of
from tests.tasks.image.files import qcow2, qcow2_header, qcow2_with_backing, raw


def of(data: bytes) -> str:
    return kind_of(data[:HEAD], len(data), "image.img")


def a_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("disk.raw"), io.BytesIO())
    return out.getvalue()


def an_iso() -> bytes:
    """A hybrid ISO: it has a partition table, too."""
    iso = bytearray(MIB)
    iso[510:512] = b"\x55\xaa"
    iso[32768:32774] = b"\x01CD001"
    return bytes(iso)


def gpt(sectors: int, size: int) -> bytes:
    disk = bytearray(size)
    disk[510:512] = b"\x55\xaa"
    disk[512:520] = b"EFI PART"
    disk[544:552] = struct.pack("<Q", sectors - 1)
    return bytes(disk)


def test_a_qcow2_image_is_known_whatever_its_name() -> None:
    assert of(qcow2()) == "qcow2"


@pytest.mark.parametrize("data", [raw(), gpt(4096, 2 * MIB)], ids=["mbr", "gpt"])
def test_a_disk_with_a_partition_table_is_raw(data: bytes) -> None:
    assert of(data) == "raw"


@pytest.mark.parametrize(
    ("offset", "sign"),
    [(1080, b"\x53\xef"), (0, b"XFSB"), (65600, b"_BHRfS_M"), (0, b"LUKS\xba\xbe")],
    ids=["ext4", "xfs", "btrfs", "luks"],
)
def test_a_file_system_without_a_partition_table_is_raw(offset: int, sign: bytes) -> None:
    disk = bytearray(MIB)
    disk[offset : offset + len(sign)] = sign
    assert of(bytes(disk)) == "raw"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\n <!DOCTYPE html><html>404</html>", "a web page"),
        (b'<?xml version="1.0"?><Error/>', "a web page"),
        (b"0" * 64 + b"  image.img\n", "without a partition table"),
        (b'{"message": "not found"}', "without a partition table"),
        (bytes(MIB), "without a partition table"),
        (a_tar(), "a tar archive"),
        (an_iso(), "an ISO image"),
        (b"PK\x03\x04" + bytes(100), "a ZIP archive"),
        (b"BZh91AY" + bytes(100), "packed with bzip2"),
        (b"KDMV" + bytes(600), "qemu-img convert"),
        (b"vhdxfile" + bytes(600), "qemu-img convert"),
        (b"QFI\xfb\0\0", "the first bytes of a qcow2 image"),
        (b"QFI\xfb" + b"\xff" * 100, "a damaged qcow2 image"),
        (qcow2_header(), "without the tables that its disk of 1 GiB needs"),
        (qcow2(size=0), "a qcow2 image with a disk of 0 B"),
        (qcow2(size=4096), "a qcow2 image with a disk of 4 KiB"),
        (raw()[:512], "512 bytes long, too short"),
        (raw()[:-100], "no multiple of 512"),
    ],
)
def test_what_is_no_disk_image_is_refused_with_what_it_is(data: bytes, words: str) -> None:
    with pytest.raises(OriginError, match=r"image\.img is no disk image") as refused:
        of(data)
    assert words in refused.value.message


def test_a_qcow2_image_that_depends_on_another_file_is_refused() -> None:
    with pytest.raises(OriginError, match="depends on another file"):
        of(qcow2_with_backing())


def test_a_qcow2_image_with_its_data_in_another_file_is_refused() -> None:
    whole = qcow2()
    with pytest.raises(OriginError, match="depends on another file"):
        of(whole[:72] + struct.pack(">Q", 4) + whole[80:])


@pytest.mark.parametrize(
    "data",
    [
        raw(size=4 * MIB)[: 3 * MIB],
        gpt(8192, 2 * MIB),
        qcow2()[:36] + struct.pack(">IQ", 16, 2**30) + qcow2()[48:],
    ],
    ids=["mbr", "gpt", "qcow2"],
)
def test_an_image_that_was_cut_off_is_known_by_its_own_tables(data: bytes) -> None:
    with pytest.raises(OriginError, match="was cut off"):
        of(data)


@given(data=st.binary(max_size=4096), size=st.none() | st.integers(0, 2**40))
def test_any_bytes_are_either_an_image_or_refused(data: bytes, size: int | None) -> None:
    with suppress(OriginError):
        assert kind_of(data, size, "x") in {"qcow2", "raw", "xz", "gz", "zst"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.qcow2", "qcow2"), ("a.RAW", "raw"), ("a.raw.xz", "xz"), ("a.img", None), ("a", None)],
)
def test_where_nothing_can_be_asked_the_name_tells_what_it_can(name: str, kind: str | None) -> None:
    assert kind_by_name(name) == kind
