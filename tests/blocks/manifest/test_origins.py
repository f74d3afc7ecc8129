"""``iso.source`` and ``iso.checksum``: where an install ISO comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.blocks.manifest.sample import ENV, changed, line_of, load, only_fault

ISO = "iso: { storage: local, image: rocky9.iso }"
DIGEST = "0123456789abcdef" * 4


def with_iso(*keys: str) -> str:
    return changed(ISO, f"iso: {{ storage: local, image: rocky9.iso, {', '.join(keys)} }}")


def origin(folder: Path, text: str) -> tuple[str | None, str | None]:
    source = load(folder, text).guest("db1").install
    assert source is not None
    return source.origin, source.sha256


def test_without_the_keys_an_iso_has_no_origin(tmp_path: Path) -> None:
    assert origin(tmp_path, ENV) == (None, None)


def test_a_relative_path_starts_at_the_file_that_names_it(tmp_path: Path) -> None:
    assert origin(tmp_path, with_iso("source: iso/rocky.iso")) == (
        str(tmp_path / "iso/rocky.iso"),
        None,
    )


def test_the_home_folder_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/op")
    assert origin(tmp_path, with_iso("source: ~/rocky.iso"))[0] == "/home/op/rocky.iso"


@pytest.mark.parametrize("prefix", ["sha256:", ""])
def test_a_url_stays_as_it_is_and_its_checksum_is_normalised(tmp_path: Path, prefix: str) -> None:
    url = "https://example.com/rocky.iso"
    text = with_iso(f"source: {url}", f"checksum: '{prefix}{DIGEST.upper()}'")
    assert origin(tmp_path, text) == (url, DIGEST)


def test_a_node_may_have_an_origin_of_its_own(tmp_path: Path) -> None:
    text = changed(
        "proxmox: { node_name: pve1, vm_id: 101 }",
        "proxmox: { node_name: pve1, vm_id: 101 }\n        iso: { source: own.iso }",
    )
    environment = load(tmp_path, text)
    origins = [guest.install and guest.install.origin for guest in environment.guests]
    assert origins == [str(tmp_path / "own.iso"), None]


@pytest.mark.parametrize(
    ("keys", "problem", "remedy"),
    [
        (["source: 'https://example.com/a.iso'"], "no checksum", "add 'checksum: sha256:HEX'"),
        ([f"checksum: 'sha256:{DIGEST}'"], "no source", "add 'source: PATH' or a URL"),
        (["source: a.iso", "checksum: 'sha256:12'"], "no SHA-256 checksum", "sha256sum"),
        (["source: a.iso", f"checksum: 'md5:{DIGEST}'"], "no SHA-256 checksum", "sha256sum"),
        (["source: 'ftp://example.com/a.iso'"], "no URL of an ISO", "https://HOST/PATH"),
        (["source: 'https://u:secret@example.com/a.iso'"], "no URL", "without a password in it"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(
    tmp_path: Path, keys: list[str], problem: str, remedy: str
) -> None:
    text = with_iso(*keys)

    fault = only_fault(tmp_path, text)

    assert fault.line == line_of(text, "iso:")
    assert problem in fault.problem
    assert remedy in fault.remedy
    assert "secret" not in str(fault)
