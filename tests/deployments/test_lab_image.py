"""``python -m deployments.lab image``: images to build templates from, made without a lab."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from deployments.lab import images
from deployments.lab.__main__ import main

GIB = 1 << 30


def call(*words: object) -> int:
    """The exit code of the command."""
    try:
        return main(["image", *map(str, words)])
    except SystemExit as left:
        return int(str(left.code))


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a refused command says; its exit code is 2 and there is no traceback."""
    code = call(*words)
    said = capsys.readouterr().err
    assert code == 2, said
    assert "Traceback" not in said
    return said


def qemu_img(*words: object) -> str:
    """What QEMU's own tool says of an image; it must be content."""
    if shutil.which("qemu-img") is None:
        pytest.skip("qemu-img is not installed")
    done = subprocess.run(
        ["qemu-img", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_image_is_a_qcow2_of_two_gibibytes_that_takes_kilobytes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "golden.qcow2"

    assert call(path) == 0

    assert f"wrote {path}: qcow2, a disk of 2G" in capsys.readouterr().out
    assert images.inspect_image(path, "qcow2").size == 2 * GIB
    assert path.stat().st_blocks * 512 < 100_000
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", ["1M", "600M", "2G", "2049M", "8T"])
def test_qemu_finds_no_fault_in_an_image_nor_in_one_that_has_grown(
    tmp_path: Path, size: str
) -> None:
    path = tmp_path / "golden.qcow2"
    assert call(path, "--size", size) == 0
    own = tmp_path / "own.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", own, size)

    assert "No errors were found" in qemu_img("check", path)
    told = json.loads(qemu_img("info", "--output=json", path))
    assert (
        told["virtual-size"] == json.loads(qemu_img("info", "--output=json", own))["virtual-size"]
    )
    assert path.stat().st_size == own.stat().st_size

    images.resize_image(path, "qcow2", 3 * told["virtual-size"])

    assert "No errors were found" in qemu_img("check", path)


def test_a_raw_image_has_a_partition_and_takes_no_more_room(tmp_path: Path) -> None:
    path = tmp_path / "golden.raw"

    assert call(path, "--size", "1.5G", "--format", "raw") == 0

    assert path.stat().st_size == 3 * GIB // 2
    assert path.stat().st_blocks * 512 < 100_000
    with path.open("rb") as file:
        assert file.read(512).endswith(b"\x55\xaa")


def test_the_same_call_makes_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one.qcow2", tmp_path / "two.qcow2"

    assert [call(one), call(two)] == [0, 0]

    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ("0G", "'0G' is out of range; give 1M to 8T, such as 2G"),
        ("9T", "'9T' is out of range; give 1M to 8T"),
        ("2", "'2' is no size; give one such as 512M or 2G"),
        ("2GiB", "'2GiB' is no size"),
        ("1.5.5G", "'1.5.5G' is no size"),
        ("0.0000001G", "'0.0000001G' is no size"),
        ("big", "'big' is no size"),
        ("", "'' is no size"),
    ],
)
def test_a_bad_size_is_named_with_what_would_be_right(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, size: str, reason: str
) -> None:
    assert reason in refusal(capsys, tmp_path / "a.qcow2", "--size", size)
    assert list(tmp_path.iterdir()) == []


def test_another_format_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = refusal(capsys, tmp_path / "a.vmdk", "--format", "vmdk")

    assert "invalid choice: 'vmdk' (choose from" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.qcow2"
    path.write_text("somebody's")

    said = refusal(capsys, path)

    assert f"{path} is there already; remove it, or give another name" in said
    assert path.read_text() == "somebody's"


def test_a_missing_folder_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "gone" / "a.qcow2"

    assert f"{path.parent} does not exist; make the folder first" in refusal(capsys, path)
    assert not path.parent.exists()


def test_a_file_in_the_place_of_the_folder_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    said = refusal(capsys, tmp_path / "file" / "a.qcow2")

    assert f"{tmp_path / 'file'} is no folder" in said


def test_an_image_without_a_name_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the following arguments are required: PATH" in refusal(capsys)


def test_the_options_of_the_lab_are_not_those_of_an_image(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--state", str(tmp_path / "state"), "image", str(tmp_path / "a.qcow2")])

    assert left.value.code == 2
    assert "image comes first and has options of its own" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_take_it_is_named_and_nothing_is_left(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.qcow2"

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    try:
        code = call(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert code == 1
    assert capsys.readouterr().err == f"lab: {path}: File too large\n"
    assert list(tmp_path.iterdir()) == []
