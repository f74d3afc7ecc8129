"""``python -m flows.iso upload``: what a node is installed from, on its storages."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.iso import main
from tests.environments import Place
from tests.tasks.test_media import document, ubuntu_source


def test_seed_and_rewritten_iso_are_uploaded_once(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = str(place.write(document(place, ubuntu_source(place, tmp_path))))

    assert main(["upload", manifest, "n1", "--cluster", "lab"]) == 0
    first = capsys.readouterr().out.splitlines()
    assert main(["upload", manifest, "n1"]) == 0
    again = capsys.readouterr().out.splitlines()

    assert first[0].startswith(f"media: done: local:iso/{place.env}-ubuntu")
    assert first[1].startswith(f"upload: done: local:iso/proxflow_{place.env}_n1_")
    assert [line.split(": ")[1] for line in again] == ["unchanged", "unchanged"]
    assert place.guests() == []


def test_without_an_origin_only_the_seed_is_uploaded(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(place.write()), "n1"]) == 0

    out = capsys.readouterr().out
    assert "media: skipped: local:iso/Rocky" in out
    assert "upload: done" in out


def test_a_cluster_that_nobody_knows_is_answered_with_what_to_do(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(place.write()), "n1", "--cluster", "elsewhere"]) == 2

    error = capsys.readouterr().err
    assert "elsewhere" in error
    assert "\n  next: " in error


def test_trouble_is_said_with_what_to_do_and_without_a_traceback(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = str(place.write(document(place, tmp_path / "ubuntu.iso")))
    assert main(["upload", manifest, "n1"]) == 1
    first = capsys.readouterr().err
    place.write(iso=False)
    assert main(["upload", manifest, "n1"]) == 2
    second = capsys.readouterr().err

    assert "cannot be read: No such file or directory\n  next: `iso.source` is a path" in first
    assert second == "n1 is not installed from an ISO\n"
