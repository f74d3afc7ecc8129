"""Sizes as operators write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocks.manifest.hypervisor import DiskSpec
from blocks.units import GIB, MIB, TIB, format_size, parse_size


@given(st.integers(min_value=1, max_value=1024 * TIB))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [("64G", 64 * GIB), ("3.5G", 3584 * MIB), ("4T", 4 * TIB), ("512m", 512 * MIB), ("1GiB", GIB)],
)
def test_sizes_are_binary(text: str, size: int) -> None:
    assert parse_size(DiskSpec(id=0, size=text).size) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "0G", "1X", "1e400G", "1 2G", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        DiskSpec(id=0, size=text)
