"""The catalogue of cloud images, and those that users add."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from blocks.manifest.template.catalogue import load_catalogue, shipped
from tests.blocks.manifest.sample import changed, faults_of, only_fault, write
from tests.blocks.manifest.template.sample import MINIMAL, environment, template

OWN = """\
kind: Images
images:
  house:
    title: House image
    aliases: [debian13]
    url: https://images.example.com/house.qcow2
    checksums: https://images.example.com/SHA256SUMS
    user: ops
    ostype: other
    firmware: [ovmf]
"""

FAMILIES = {
    "debian12", "debian13", "ubuntu2204", "ubuntu2404", "ubuntu2604", "rocky8", "rocky9", "rocky10",
    "alma8", "alma9", "alma10", "oracle8", "oracle9", "oracle10", "fedora44", "leap156", "leap160",
    "alpine322", "alpine323",
}  # fmt: skip


def test_every_family_has_its_images() -> None:
    assert set(shipped().images) >= FAMILIES


@pytest.mark.parametrize("name", sorted(shipped().images))
def test_every_image_comes_over_tls_and_can_be_checked(name: str) -> None:
    image = shipped().images[name]

    urls = [url for url in (image.url, image.checksums, image.signature) if url]

    assert all(url.startswith("https://") for url in urls)
    assert (image.checksum is None) != (image.checksums is None)
    assert image.user is not None
    # A list is of the host that keeps the image, so that one publisher answers for both.
    assert len({urlsplit(url).hostname for url in urls}) == 1


def test_a_pinned_image_names_its_version_in_its_url() -> None:
    for name, image in shipped().images.items():
        if image.checksum is not None:
            assert re.search(r"b\d{3}|-\d+\.\d+[.-]", image.url), name


def test_no_alias_means_two_images() -> None:
    names = [name for key, image in shipped().images.items() for name in (key, *image.aliases)]

    assert len(names) == len(set(names))


def test_names_and_aliases_are_found_in_any_case() -> None:
    found = shipped().find(" Trixie ")

    assert found is not None
    assert found[0] == "debian13"
    assert shipped().find("trixy") is None


def test_a_users_image_beside_the_manifest_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "images.yaml").write_text(OWN)

    guest = template(tmp_path, changed("image: debian13", "image: house", MINIMAL))

    assert guest.image is not None
    assert guest.image.origin == "https://images.example.com/house.qcow2"
    assert guest.image.sums == "https://images.example.com/SHA256SUMS"
    assert (guest.ostype, guest.firmware.bios) == ("other", "ovmf")


def test_a_users_image_wins_over_the_shipped_one_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "images.yaml").write_text(OWN.replace("house:", "debian13:"))

    guest = template(tmp_path, MINIMAL)

    assert guest.image is not None
    assert guest.image.origin == "https://images.example.com/house.qcow2"
    assert tmp_path / "images.yaml" in environment(tmp_path, MINIMAL).source_files


def test_the_users_folder_is_read_and_the_one_beside_wins(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "images.yaml").write_text(OWN.replace("house.qcow2", "config.qcow2"))
    text = changed("image: debian13", "image: house", MINIMAL)

    alone = template(tmp_path, text).image
    (tmp_path / "images.yaml").write_text(OWN)
    both = template(tmp_path, text).image

    assert alone is not None
    assert alone.origin.endswith("config.qcow2")
    assert both is not None
    assert both.origin.endswith("house.qcow2")


def test_an_alias_never_hides_a_name(tmp_path: Path) -> None:
    (tmp_path / "images.yaml").write_text(OWN)
    catalogue = load_catalogue(tmp_path, {"PROXFLOW_CONFIG_DIR": str(tmp_path)}, [], [])

    found = catalogue.find("debian13")

    assert found is not None
    assert found[0] == "debian13"


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "words"),
    [
        (
            "    checksums: https://images.example.com/SHA256SUMS\n",
            "",
            3,
            "images.house",
            "has neither a checksum nor a list of them",
        ),
        ("https://images.example.com/house.qcow2", "house.qcow2", 6, "images.house.url", "no URL"),
        ("title:", "titel:", 4, "images.house.titel", "did you mean 'title'?"),
        ("[ovmf]", "[efi]", 10, "images.house.firmware[0]", "must be one of seabios, ovmf"),
    ],
)
def test_a_fault_in_a_users_catalogue_is_said_with_its_line(
    old: str, new: str, line: int, key: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "images.yaml").write_text(changed(old, new, OWN))

    faults = faults_of(write(tmp_path, MINIMAL))

    found = [fault for fault in faults if fault.key == key]
    assert [(Path(fault.file).name, fault.line) for fault in found] == [("images.yaml", line)]
    assert words in str(found[0])


def test_another_document_of_that_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "images.yaml").write_text("kind: Env\nimages: {}\n")

    fault = only_fault(tmp_path, MINIMAL)

    assert "must be Images" in str(fault)
