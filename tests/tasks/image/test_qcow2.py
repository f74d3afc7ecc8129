"""Whether a qcow2 image is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blocks.units import MIB
from tasks.image.qcow2 import beyond_end
from tests.tasks.image.files import allocated, qcow2, raw

CLUSTER = 65536


@pytest.mark.parametrize("compressed", [True, False])
def test_a_whole_image_names_nothing_behind_its_end(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "image"
    path.write_bytes(allocated(MIB, compressed=compressed))
    assert beyond_end(path) is None


@pytest.mark.parametrize("compressed", [True, False])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(length=st.integers(104, MIB - CLUSTER))
def test_an_image_that_lost_a_cluster_names_it(
    tmp_path: Path, compressed: bool, length: int
) -> None:
    path = tmp_path / "image"
    path.write_bytes(allocated(MIB, compressed=compressed)[:length])
    missing = beyond_end(path)
    # Of an image that ends in or before its first table nothing can be told by the tables.
    assert length < CLUSTER + 8 or (missing is not None and missing >= length)


@pytest.mark.parametrize("data", [qcow2(), raw(), b"", b"QFI\xfb"])
def test_nothing_is_told_of_what_has_no_tables(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "image"
    path.write_bytes(data)
    assert beyond_end(path) is None


@given(data=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_a_damaged_header_is_no_trouble(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "image"
    path.write_bytes(b"QFI\xfb\0\0\0\3" + data)
    missing = beyond_end(path)
    assert missing is None or missing >= path.stat().st_size
