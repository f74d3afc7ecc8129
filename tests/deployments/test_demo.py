"""The demo says what can be pasted into a shell that knows nothing of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

STUB = """#!/bin/sh
echo "$(basename "$0") $* in ${PROXFLOW_LAB_STATE:-} of ${PREFECT_HOME:-}" >> 'LOG'
case "$*" in *"flows.BROKEN"*) exit 1 ;; esac
"""


@pytest.mark.parametrize(
    ("target", "command", "manifest"),
    [("up", "flows.up", "env.yaml"), ("template", "flows.template build", "template.yaml")],
)
@pytest.mark.parametrize("works", [True, False])
def test_the_lines_that_a_demo_ends_with_can_be_pasted_as_they_are(
    tmp_path: Path, target: str, command: str, manifest: str, works: bool
) -> None:
    place = tmp_path / "a folder"
    place.mkdir()
    log = place / "log"
    broken = "none" if works else command.removeprefix("flows.")
    for name in ("python", "prefect"):
        stub = place / name
        stub.write_text(STUB.replace("LOG", str(log)).replace("BROKEN", broken))
        stub.chmod(0o700)
    (place / "activate").write_text(f"PATH='{place}':$PATH\n")
    outside = {"PATH": "/usr/bin:/bin", "HOME": str(place)}
    demo = {**outside, "PYTHON": str(place / "python"), "DEMO": str(place / "demo")}

    shown = subprocess.run(
        ["sh", "deployments/demo.sh", target],
        cwd=ROOT,
        env=demo,
        capture_output=True,
        text=True,
        check=False,
    )
    ran = log.read_text()
    log.unlink()
    lines = [line for line in shown.stdout.splitlines() if line.startswith("  ")]
    subprocess.run(["sh", "-e", "-c", "\n".join(lines)], cwd=place, env=outside, check=True)

    where = f"in {place}/demo/lab of {place}/demo/prefect"
    file = f"deployments/environments/lab/{manifest}"
    assert shown.returncode == (0 if works else 1)
    assert ("It failed, see the errors above" in shown.stdout) is not works
    assert f"python -m {command} {file} --cluster lab --yes {where}" in ran
    assert log.read_text().splitlines() == [
        f"python -m flows.status {file} --cluster lab {where}",
        f"python -m flows.verify {file} --cluster lab {where}",
        f"prefect server start {where}",
    ]
