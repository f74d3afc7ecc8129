"""``extends``: shipped profiles, the user's own, and those beside the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from blocks.manifest.loader import load_environment
from blocks.manifest.profiles import known_profiles
from blocks.units import GIB
from tests.blocks.manifest.sample import KEY, faults_of, write

SMALL = f"""\
version: "1"
kind: Env
metadata: {{ name: shop }}
extends: PROFILE
spec:
  hypervisor:
    kind: Hypervisor
    nodes:
      one:
        proxmox: {{ node_name: pve1, vm_id: 101 }}
        ips: {{ public: 10.0.0.11, private: 10.0.1.11 }}
    iso: {{ storage: local, image: a.iso }}
    kickstart: {{ distro: rocky9, ssh_keys: {{ root: ["{KEY}"] }} }}
  networks:
    kind: Networks
    public: {{ cidr: 10.0.0.0/24, gateway: 10.0.0.1 }}
    private: {{ cidr: 10.0.1.0/24 }}
  storage_classes:
    kind: StorageClasses
    system: {{ backend: local-lvm }}
    data: {{ backend: big }}
    asm: {{ backend: nas, shared: true }}
"""
TWO_MORE = """
      two:
        proxmox: { node_name: pve2, vm_id: 102 }
        ips: { public: 10.0.0.12, private: 10.0.1.12 }
    iso:"""
RAC = """\
  cluster:
    kind: Cluster
    scan_ips: [10.0.0.31, 10.0.0.32, 10.0.0.33]
    interconnect_subnet: 10.0.1.0/24
"""


def small(profile: str) -> str:
    return SMALL.replace("PROFILE", profile)


def profile(folder: Path, name: str, words: str, extends: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    more = f"extends: {extends}\n" if extends else ""
    (folder / f"{name}.yaml").write_text(
        f'version: "1"\nkind: Env\n{more}metadata: {{ name: of-profile, {words} }}\n'
    )


def test_a_plain_host_needs_no_more_than_a_place_and_an_address(tmp_path: Path) -> None:
    (guest,) = load_environment(write(tmp_path, small("host-only")), env={}).guests

    assert (guest.memory, guest.cores) == (4096, 2)
    assert [(disk.storage, disk.size) for disk in guest.disks] == [("local-lvm", 32 * GIB)]
    assert [str(address) for address in guest.nics[0].inet.addresses] == ["10.0.0.11/24"]


def test_a_database_host_has_a_tagged_data_disk(tmp_path: Path) -> None:
    environment = load_environment(write(tmp_path, small("pg-single")), env={})

    assert environment.cluster_type == "pg-single"
    assert [(disk.storage, disk.tag) for disk in environment.guests[0].disks] == [
        ("local-lvm", None),
        ("big", "pg-data"),
    ]


def test_a_rac_pair_shares_its_disk(tmp_path: Path) -> None:
    text = small("oracle-rac-2node").replace("\n    iso:", TWO_MORE) + RAC

    environment = load_environment(write(tmp_path, text), env={})

    one, two = environment.guests
    assert environment.cluster_type == "oracle-rac"
    assert one.disks[1].shared
    assert two.disks[1].shared_with is not None
    assert one.firmware.bios == "ovmf"
    assert [nic.bridge for nic in one.nics] == ["vmbr0", "vmbr1"]


def test_the_environment_wins_over_its_profile(tmp_path: Path) -> None:
    text = small("pg-single").replace(
        "    nodes:\n", "    defaults:\n      resources: { memory: 1024 }\n    nodes:\n"
    )

    (guest,) = load_environment(write(tmp_path, text), env={}).guests

    assert (guest.memory, guest.cores) == (1024, 4)


def test_a_profile_does_not_name_the_environment(tmp_path: Path) -> None:
    profile(tmp_path / "profiles", "mine", "description: from a profile")

    text = small("mine").replace("metadata: { name: shop }", "metadata: {}")
    faults = faults_of(write(tmp_path, text))

    assert any(fault.key == "metadata.name" and "missing" in fault.problem for fault in faults)


@pytest.fixture
def user(tmp_path: Path) -> dict[str, str]:
    return {"PROXFLOW_CONFIG_DIR": str(tmp_path / "config")}


def test_profiles_are_looked_for_beside_the_manifest_then_at_the_user_then_shipped(
    tmp_path: Path, user: dict[str, str]
) -> None:
    beside, config = tmp_path / "profiles", tmp_path / "config" / "profiles"
    profile(beside, "one", "description: beside")
    profile(config, "one", "description: of the user")
    profile(config, "two", "description: of the user")
    text = small("one") + "  # needs the rest of a node\n"
    nics = "        disks: [{ id: 0, size: 1G, storage: x }]\n    iso:"
    text = text.replace("    iso:", nics)

    said = [
        load_environment(write(tmp_path, text.replace("extends: one", each)), env=user).description
        for each in ("extends: one", "extends: two")
    ]

    assert said == ["beside", "of the user"]
    assert set(known_profiles(tmp_path, user)) == {
        "one",
        "two",
        "host-only",
        "pg-single",
        "oracle-rac-2node",
    }


def test_a_profile_may_extend_the_shipped_one_that_it_takes_the_place_of(
    tmp_path: Path, user: dict[str, str]
) -> None:
    profile(tmp_path / "config" / "profiles", "pg-single", "description: ours", "pg-single")

    environment = load_environment(write(tmp_path, small("pg-single")), env=user)

    assert environment.description == "ours"
    assert environment.guests[0].disks[1].tag == "pg-data"
    assert [file.name for file in environment.source_files] == [
        "env.yaml",
        "pg-single.yaml",
        "pg-single.yaml",
    ]


def test_profiles_in_a_circle_are_shown_as_a_chain(tmp_path: Path) -> None:
    profile(tmp_path / "profiles", "a", "description: a", "b")
    profile(tmp_path / "profiles", "b", "description: b", "a")
    # A profile looks beside itself, too.
    (tmp_path / "profiles" / "profiles").symlink_to(tmp_path / "profiles")

    faults = faults_of(write(tmp_path, small("a")))

    assert any("goes round in a circle: a -> b -> a" in fault.problem for fault in faults)


def test_a_fault_in_a_profile_names_the_profile(tmp_path: Path) -> None:
    profile(tmp_path / "profiles", "mine", "descripton: typo")

    faults = faults_of(write(tmp_path, small("mine")))

    (fault,) = [fault for fault in faults if "descripton" in fault.key]
    assert fault.file == str(tmp_path / "profiles" / "mine.yaml")
    assert fault.line == 3


def test_a_profile_that_wants_a_class_that_the_environment_lacks_is_said(tmp_path: Path) -> None:
    text = small("host-only").replace("    system: { backend: local-lvm }\n", "")

    (fault,) = faults_of(write(tmp_path, text))

    assert fault.file.endswith("host-only.yaml")
    assert "unknown storage class 'system'" in fault.problem
