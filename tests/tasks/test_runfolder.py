"""The private folder of a run: made, held, and removed even where the run was killed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tasks.build import build
from tasks.errors import StageError
from tasks.runfolder import make_run_folder
from tests.environments import Place, opened

MAKE = "import time; from tasks.runfolder import make_run_folder as make; "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, empty."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setenv("TMPDIR", str(found))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return found


def another_run(then: str) -> subprocess.Popen[str]:
    """A process that has made its folder, and told its path."""
    words = [sys.executable, "-c", f"{MAKE}made = make(); print(made.path, flush=True); {then}"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_only_its_owner_can_look_into_the_folder_and_it_goes_with_the_run(folder: Path) -> None:
    made = make_run_folder()
    mode = stat.S_IMODE(made.path.stat().st_mode)
    made.remove()

    assert mode == 0o700
    assert list(folder.iterdir()) == []


def test_the_folder_of_a_killed_run_is_removed_and_that_of_a_living_one_is_not(
    folder: Path,
) -> None:
    with another_run("time.sleep(60)") as killed, another_run("time.sleep(60)") as living:
        assert killed.stdout
        assert living.stdout
        left, held = Path(killed.stdout.readline().strip()), living.stdout.readline().strip()
        (left / "seed.iso").write_text("$6$salt$hash")
        killed.kill()
        killed.wait()
        own = make_run_folder()
        found = set(folder.iterdir())
        living.kill()

    assert found == {own.path, Path(held)}
    own.remove()


def test_a_folder_without_a_lock_stays_for_a_day_since_it_may_be_in_the_making(
    folder: Path,
) -> None:
    fresh, old = folder / "proxflow-fresh", folder / "proxflow-old"
    for path in (fresh, old):
        path.mkdir()
    long_ago = time.time() - 25 * 3600
    os.utime(old, (long_ago, long_ago))

    make_run_folder().remove()

    assert list(folder.iterdir()) == [fresh]


def test_a_link_to_a_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "held").touch()
    (folder / "proxflow-link").symlink_to(elsewhere)

    make_run_folder().remove()

    assert (elsewhere / "held").exists()


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place.write()) as here:
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
        with pytest.raises(StageError) as refused:
            build.fn(here.run, "n1")

    assert refused.value.message == (
        f"cannot write to the folder {folder / 'missing'}: No such file or directory"
    )
    assert "TMPDIR" in str(refused.value.advice)
