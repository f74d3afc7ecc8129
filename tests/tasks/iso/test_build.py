"""Seed ISOs, read back with a program that shares no code with the one that wrote them."""

from __future__ import annotations

import hashlib
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tasks.iso.build import SeedName, build_seed, parse_seed_name, seed_name
from tasks.iso.distros import DISTROS
from tasks.iso.render import RenderError, render

from .guests import full

ONE_OF_EACH = ["rocky9", "ubuntu2404", "debian12", "sles15"]
needs_isoinfo = pytest.mark.skipif(not shutil.which("isoinfo"), reason="isoinfo is not installed")


def isoinfo(*arguments: str) -> bytes:
    return subprocess.run(["isoinfo", *arguments], check=True, capture_output=True).stdout


@needs_isoinfo
@pytest.mark.parametrize("distro", ONE_OF_EACH)
def test_the_volume_has_the_label_that_the_installer_looks_for(distro: str, tmp_path: Path) -> None:
    built = build_seed(render(full(distro), env="prod"), tmp_path / "seed.iso")

    facts = isoinfo("-d", "-i", str(built.path)).decode().splitlines()

    assert f"Volume id: {DISTROS[distro].label}" in facts
    assert "Joliet with UCS level 3 found" in facts
    assert "Rock Ridge signatures version 1 found" in facts


@needs_isoinfo
@pytest.mark.parametrize("tree", ["-J", "-R"])
@pytest.mark.parametrize("distro", ONE_OF_EACH)
def test_joliet_and_rock_ridge_both_hold_every_file_unchanged(
    distro: str, tree: str, tmp_path: Path
) -> None:
    rendered = render(full(distro), env="prod")
    path = str(build_seed(rendered, tmp_path / "seed.iso").path)

    names = isoinfo("-f", tree, "-i", path).decode().split()

    assert names == [f"/{name}" for name in rendered.files]
    for name, text in rendered.files.items():
        assert isoinfo(tree, "-i", path, "-x", f"/{name}") == text.encode()


@pytest.mark.parametrize("distro", ONE_OF_EACH)
def test_the_same_content_gives_the_same_bytes_at_another_time_and_place(
    distro: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = render(full(distro), env="prod")

    first = build_seed(rendered, tmp_path / "a.iso")
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    second = build_seed(rendered, tmp_path / "b.iso")
    monkeypatch.undo()
    time.tzset()

    assert first.path.read_bytes() == second.path.read_bytes()


def test_what_is_reported_is_what_is_on_disk_and_for_the_owner_alone(tmp_path: Path) -> None:
    built = build_seed(render(full("rocky9"), env="prod"), tmp_path / "deep" / "seed.iso")

    data = built.path.read_bytes()
    assert (built.size, built.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert stat.S_IMODE(built.path.stat().st_mode) == 0o600


def test_a_seed_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "seed.iso").mkdir()

    with pytest.raises(OSError, match="directory"):
        build_seed(render(full("rocky9"), env="prod"), tmp_path / "seed.iso")

    assert [path.name for path in tmp_path.iterdir()] == ["seed.iso"]


def test_a_seed_is_built_in_under_fifty_milliseconds(tmp_path: Path) -> None:
    rendered = render(full("sles15"), env="prod")
    build_seed(rendered, tmp_path / "warm.iso")

    took = []
    for index in range(5):
        start = time.perf_counter()
        build_seed(rendered, tmp_path / f"{index}.iso")
        took.append(time.perf_counter() - start)

    assert min(took) < 0.05


def test_a_seed_name_can_be_taken_apart_again() -> None:
    name = seed_name("prod.eu", "db-1", "ab" * 32, "0191f2c4-aaaa-bbbb")

    assert name == "proxflow_prod.eu_db-1_abababababab_0191f2c4.iso"
    assert parse_seed_name(name) == SeedName("prod.eu", "db-1", "ab" * 6, "0191f2c4")


@pytest.mark.parametrize(
    "name",
    [
        "rocky9.iso",
        "proxflow_a_b_c.iso",
        "proxflow_a_b_zzzzzzzzzzzz_1.iso",
        "proxflow_a_b_c_abababababab_1.iso",
        "proxflow_a_b_abababababab_1.iso.tmp",
        "proxflow_a_b_abababababab_123456789.iso",
    ],
)
def test_a_name_of_another_kind_is_none_of_ours(name: str) -> None:
    assert parse_seed_name(name) is None


@pytest.mark.parametrize(("env", "guest"), [("a_b", "c"), ("a", "b_c"), ("a/b", "c"), ("", "c")])
def test_a_name_that_could_not_be_taken_apart_is_refused(env: str, guest: str) -> None:
    with pytest.raises(RenderError):
        seed_name(env, guest, "ab" * 32, "1")
