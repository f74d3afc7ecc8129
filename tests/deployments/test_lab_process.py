"""The lab as a process: background, restart, kill, uploads without memory."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deployments.lab import process, statefolder
from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client, eventually

pytestmark = pytest.mark.processes
UPLOAD_BYTES = 300 << 20


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deployments.lab", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def started(state: Path) -> RunningLab:
    done = run("start", "--state", str(state), "--time-scale", "0")
    assert done.returncode == 0, done.stderr
    return RunningLab(state, json.loads((state / "connection.json").read_text()))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    yield folder
    run("stop", "--state", str(folder))


def test_starting_twice_gives_one_lab_and_a_private_connection_file(state: Path) -> None:
    first = started(state)

    second = run("start", "--state", str(state))

    assert "already running" in second.stdout
    assert stat.S_IMODE((state / "connection.json").stat().st_mode) == 0o600
    assert started(state).connection == first.connection


def test_a_folder_that_a_dying_lab_still_has_is_waited_for(state: Path) -> None:
    dying = ExitStack()
    dying.enter_context(statefolder.holding(state))
    threading.Timer(0.3, dying.close).start()

    _, new = process.start(state, ["--time-scale", "0"])

    assert new


def test_the_fingerprint_on_file_is_that_of_the_served_certificate(state: Path) -> None:
    lab = started(state)

    pem = ssl.get_server_certificate(("127.0.0.1", lab.port))

    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest().upper()
    assert lab.connection["fingerprint"].replace(":", "") == digest


def test_stop_ends_the_process_and_status_tells(state: Path) -> None:
    lab = started(state)

    assert "stopped" in run("stop", "--state", str(state)).stdout

    assert run("status", "--state", str(state)).returncode == 3
    with pytest.raises(ProcessLookupError):
        os.kill(int(lab.connection["pid"]), 0)


def test_a_terminated_lab_ends_well_and_takes_its_connection_file_along(state: Path) -> None:
    command = [sys.executable, "-m", "deployments.lab", "serve", "--state", str(state)]
    serving = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    eventually((state / "connection.json").exists)

    serving.terminate()

    assert serving.wait(timeout=60) == 0
    assert not (state / "connection.json").exists()


def test_two_labs_serve_side_by_side(state: Path, tmp_path: Path) -> None:
    other_state = tmp_path / "other"
    one, other = started(state), started(other_state)
    try:
        Client(one).call("POST", "/pools", poolid="only-here")
        assert Client(other).get("/pools") == []
    finally:
        run("stop", "--state", str(other_state))


def test_what_was_done_before_a_kill_is_there_afterwards(state: Path) -> None:
    lab = started(state)
    client = Client(lab)
    assert client.task("POST", "/nodes/pve2/qemu", vmid=100, scsi0="local-lvm:4") == "OK"
    assert client.task("POST", "/nodes/pve2/qemu/100/status/start") == "OK"
    before = lab.snapshot()["guests"]
    os.kill(int(lab.connection["pid"]), signal.SIGKILL)

    again = started(state)

    assert again.snapshot()["guests"] == before
    assert Client(again).get("/nodes/pve2/qemu/100/status/current")["status"] == "running"


def test_reset_refuses_a_folder_that_is_no_lab(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")

    done = run("reset", "--state", str(tmp_path))

    assert done.returncode == 2
    assert "does not look like" in done.stderr
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("nodes: [{nme: x}]", "nodes.0.name"), ("a: [", "no YAML"), (None, "cannot be read")],
)
def test_a_bad_seed_is_explained_without_a_traceback(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    seed = tmp_path / "seed.yaml"
    if text is not None:
        seed.write_text(text)

    done = run("serve", "--state", str(tmp_path / "s"), "--seed", str(seed))

    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_large_upload_takes_no_memory_and_stalls_nobody(state: Path, tmp_path: Path) -> None:
    lab = started(state)
    client = Client(lab)
    big = tmp_path / "big.iso"
    with big.open("wb") as handle:
        handle.truncate(UPLOAD_BYTES)
    pid = int(lab.connection["pid"])
    before, seen = resident(pid), [0]
    slowest = [0.0]
    done = threading.Event()

    def watch() -> None:
        watcher = Client(lab)
        while not done.is_set():
            answer = watcher.raw("GET", "/version")
            slowest[0] = max(slowest[0], answer.elapsed.total_seconds())
            seen[0] = max(seen[0], resident(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    began = time.monotonic()
    try:
        sent = stream_upload(client, big)
    finally:
        done.set()
        thread.join()
    took = time.monotonic() - began

    assert sent == "OK"
    assert seen[0] - before < 40 << 20
    assert slowest[0] < max(2, took / 2)
    path = "/nodes/pve1/storage/local/content/local:iso/big.iso"
    assert client.get(path)["size"] == UPLOAD_BYTES
    assert eventually(lambda: not list((state / "tmp").iterdir()))


def stream_upload(client: Client, file: Path) -> str:
    from requests_toolbelt import MultipartEncoder

    with file.open("rb") as handle:
        form: Any = MultipartEncoder(
            [("content", "iso"), ("filename", (file.name, handle, "application/octet-stream"))]
        )
        answer = client.raw(
            "POST",
            "/nodes/pve1/storage/local/upload",
            data=form,
            headers={"Content-Type": form.content_type},
        )
    return client.wait(answer.json()["data"])


@pytest.mark.parametrize("words", [["--help"], ["image", "--help"], ["status"]])
def test_a_full_disk_under_standard_output_is_told_in_one_line(words: list[str]) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(
            [sys.executable, "-m", "deployments.lab", *words],
            env=variables,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert said.returncode == 1
    assert said.stderr == "lab: cannot write to standard output: No space left on device\n"
