"""The example environments load, quickly, and show what the format can do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import pytest

from blocks.manifest import reader
from blocks.manifest.kickstart import Distro
from blocks.manifest.loader import load_environment
from tasks.iso.distros import DISTROS
from tasks.iso.remaster import is_remastered

EXAMPLES = Path(__file__).parents[3] / "deployments" / "environments"
LAB = EXAMPLES / "lab" / "env.yaml"


MASTERS = [
    *EXAMPLES.glob("*/env.yaml"),
    *EXAMPLES.glob("*/template.yaml"),
    EXAMPLES / "golden" / "minimal.yaml",
]


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_every_example_loads_without_a_notice(path: Path) -> None:
    environment = load_environment(path, env={})

    assert environment.guests
    assert environment.notices == ()


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_no_example_is_installed_from_an_iso_that_would_ask_questions(path: Path) -> None:
    asking = [
        guest.install.iso
        for guest in load_environment(path, env={}).guests
        if guest.install is not None
        and DISTROS[guest.install.installation.distro].remaster
        and guest.install.origin is None
        and not is_remastered(guest.install.iso)
    ]

    assert asking == []


def test_the_lab_has_three_distributions_on_three_nodes_and_one_uefi_guest() -> None:
    guests = load_environment(LAB, env={}).guests

    assert [guest.node for guest in guests] == ["pve1", "pve2", "pve3"]
    assert len({guest.install.installation.distro for guest in guests if guest.install}) == 3
    assert [guest.firmware.machine for guest in guests] == ["q35", "i440fx", "i440fx"]
    assert [(len(guest.disks), len(guest.nics)) for guest in guests] == [(2, 2), (1, 1), (1, 1)]


def test_the_rac_pair_shares_one_volume_on_shared_storage() -> None:
    one, two = load_environment(EXAMPLES / "oracle-rac-2node" / "env.yaml", env={}).guests

    assert one.disks[1].shared
    assert two.disks[1].shared_with is not None
    assert two.disks[1].shared_with.vmid == one.vmid
    assert one.disks[1].storage == "shared"


def test_manifests_know_the_distributions_that_can_be_installed() -> None:
    assert set(get_args(Distro)) == set(DISTROS)


def test_an_example_loads_in_less_than_a_tenth_of_a_second() -> None:
    def processor_time() -> float:
        reader.compose.cache_clear()
        start = time.thread_time()
        load_environment(LAB, env={})
        return time.thread_time() - start

    assert min(processor_time() for _ in range(5)) < 0.1


def test_a_second_load_of_unchanged_files_does_not_parse_them_again() -> None:
    load_environment(LAB, env={})
    before = reader.compose.cache_info()

    load_environment(LAB, env={})

    after = reader.compose.cache_info()
    assert after.misses == before.misses
    assert after.hits == before.hits + 5
