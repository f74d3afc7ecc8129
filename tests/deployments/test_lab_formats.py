"""Configuration files and property strings keep what they are given."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.lab.conffile import GuestConfig, parse_config
from deployments.lab.formats import format_size, parse_size
from deployments.lab.qemu.devices import complete_net, parse_drive, parse_net
from deployments.lab.schema import FormatError

KEYS = st.text(string.ascii_lowercase, min_size=2, max_size=8).filter(
    lambda key: key not in ("description", "delete")
)
VALUES = st.text(string.ascii_letters + string.digits + "=,;:/.-+%", min_size=1, max_size=30)
SECTIONS = st.dictionaries(KEYS, VALUES, max_size=5)
DESCRIPTIONS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(SECTIONS, SECTIONS, st.lists(KEYS, max_size=3, unique=True), SECTIONS, DESCRIPTIONS)
def test_a_guest_file_reads_back_as_it_was_written(
    values: dict[str, str],
    pending: dict[str, str],
    deleted: list[str],
    snapshot: dict[str, str],
    description: str,
) -> None:
    config = GuestConfig(
        {**values, "description": description}, pending, deleted, {"before": snapshot}
    )

    assert parse_config(config.render()) == config


@given(st.integers(min_value=1, max_value=1 << 50))
def test_a_size_reads_back_as_it_was_shown(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_a_card_without_a_mac_gets_one_and_keys_are_sorted_behind_the_model() -> None:
    text = complete_net("bridge=vmbr0,firewall=1,model=virtio")

    assert text.startswith("virtio=BC:24:11:")
    assert text.endswith(",bridge=vmbr0,firewall=1")
    assert complete_net(text) == text


def test_the_two_spellings_of_a_card_mean_the_same() -> None:
    short = parse_net("e1000=AA:BB:CC:00:00:01,bridge=vmbr0")

    assert short == parse_net("model=e1000,macaddr=AA:BB:CC:00:00:01,bridge=vmbr0")


def test_every_wrong_key_of_a_drive_is_named() -> None:
    with pytest.raises(FormatError) as refused:
        parse_drive("scsi1", "local:1,foo=1,media=floppy")

    assert "scsi1.foo: property is not defined" in str(refused.value)
    assert "scsi1.media: value 'floppy'" in str(refused.value)
