"""What a lab keeps when its process is killed at any moment, and who may use its folder."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
import requests

from deployments.lab import process
from deployments.lab.conffile import parse_config
from deployments.lab.images import inspect_image
from deployments.lab.testing import RunningLab, running_lab
from tests.deployments.labclient import Client, eventually

pytestmark = pytest.mark.processes
KILLS = 5
QEMU = "/nodes/pve1/qemu"


def started(state: Path, *arguments: str) -> RunningLab:
    connection, _ = process.start(state, ["--time-scale", "0", *arguments])
    return RunningLab(state, connection)


def kill(lab: RunningLab) -> None:
    pid = int(lab.connection["pid"])
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    yield folder
    process.stop(folder)


@dataclass
class Writer:
    """Makes one thing after the other, and remembers only what the server has acknowledged."""

    numbers: Iterator[int]
    pools: set[str] = field(default_factory=set)
    cores: dict[int, int] = field(default_factory=dict)
    uploads: set[str] = field(default_factory=set)
    acknowledged: int = 0
    surprise: BaseException | None = None

    def write(self, lab: RunningLab, folder: Path, enough: int, reached: threading.Event) -> None:
        """Go on until the connection breaks; ``reached`` is set after ``enough`` writes."""
        client = Client(lab)
        goal = self.acknowledged + enough
        try:
            while True:
                for step in self._round(client, next(self.numbers), folder):
                    self.acknowledged += step
                    if self.acknowledged >= goal:
                        reached.set()
        except requests.RequestException:
            reached.set()
        except BaseException as error:
            self.surprise = error

    def _round(self, client: Client, number: int, folder: Path) -> Iterator[int]:
        name = f"pool{number}"
        client.call("POST", "/pools", poolid=name)
        self.pools.add(name)
        yield 1
        vmid = 1000 + number
        disks = {"scsi0": "local-lvm:1", "scsi1": "local:1,format=qcow2"}
        assert client.task("POST", QEMU, vmid=vmid, pool=name, cores=1, **disks) == "OK"
        self.cores[vmid] = 1
        yield 1
        for cores in (2, 3):
            client.call("PUT", f"{QEMU}/{vmid}/config", cores=cores)
            self.cores[vmid] = cores
            yield 1
        iso = folder / f"file{number}.iso"
        iso.write_bytes(number.to_bytes(4, "big") * 65536)
        assert client.upload("pve1", "local", iso) == "OK"
        self.uploads.add(iso.name)
        yield 1


def check_files(state: Path) -> None:
    """Every file is whole: JSON parses, configurations do, images have heads, nothing is left."""
    for file in [*state.glob("etc/*.json"), *state.glob("run/*.json"), *state.glob("tasks/*.json")]:
        assert isinstance(json.loads(file.read_text()), dict), file
    for file in state.glob("etc/nodes/*/*/*.conf"):
        text = file.read_text()
        assert parse_config(text).render() == text, file
    for file in state.glob("storage/*/*/images/*/*.qcow2"):
        assert inspect_image(file, "qcow2").size == 1 << 30, file
    left = [
        file for part in ("etc", "storage", "tasks", "tmp") for file in state.glob(f"{part}/**/.*")
    ]
    assert [file.name for file in left if file.name != ".snapshots"] == []


def check_kept(client: Client, writer: Writer) -> None:
    """Everything that was acknowledged is there."""
    assert writer.pools <= {row["poolid"] for row in client.get("/pools")}
    files = {row["volid"] for row in client.get("/nodes/pve1/storage/local/content")}
    assert {f"local:iso/{name}" for name in writer.uploads} <= files
    for vmid, cores in writer.cores.items():
        config = client.get(f"{QEMU}/{vmid}/config")
        assert config["cores"] in (cores, cores + 1), vmid
        assert "lock" not in config
        for disk in ("scsi0", "scsi1"):
            volid = config[disk].partition(",")[0]
            storage = volid.partition(":")[0]
            shown = client.get(f"/nodes/pve1/storage/{storage}/content/{volid}")
            assert shown["size"] == 1 << 30, volid


def test_what_was_acknowledged_survives_a_kill_at_any_moment(state: Path, tmp_path: Path) -> None:
    chance = random.Random(20)
    writer = Writer(count(1))
    lab = started(state)
    for _ in range(KILLS):
        reached = threading.Event()
        enough = chance.randrange(1, 12)
        writing = threading.Thread(target=writer.write, args=(lab, tmp_path, enough, reached))
        writing.start()
        assert reached.wait(60), writer.surprise
        # Somewhere within the next writes; which one is up to the machine.
        threading.Timer(chance.uniform(0, 0.06), kill, (lab,)).start()
        writing.join(60)
        assert not writing.is_alive()
        assert writer.surprise is None

        lab = started(state)
        client = Client(lab)

        check_files(state)
        check_kept(client, writer)
        assert lab.snapshot()["tasks"]["running"] == []
    assert writer.acknowledged > KILLS


def test_a_task_that_died_with_the_lab_ends_unexpectedly_and_holds_no_lock(state: Path) -> None:
    lab = started(state)
    client = Client(lab)
    assert client.task("POST", QEMU, vmid=100, scsi0="local-lvm:1") == "OK"
    lab.set_time(scale=1, resize=600)
    upid = client.call("PUT", f"{QEMU}/100/resize", disk="scsi0", size="+1G")
    assert client.get(f"/nodes/pve1/tasks/{upid}/status")["status"] == "running"
    kill(lab)

    client = Client(started(state))

    ended = client.get(f"/nodes/pve1/tasks/{upid}/status")
    assert (ended["status"], ended["exitstatus"]) == ("stopped", "unexpected status")
    listed = client.get("/nodes/pve1/tasks", vmid="100", typefilter="resize")
    assert [row["status"] for row in listed] == ["unexpected status"]
    assert client.get("/nodes/pve1/tasks", source="active") == []
    client.call("PUT", f"{QEMU}/100/config", cores=2)


def test_a_seeding_that_was_killed_is_begun_anew(state: Path, tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text(
        "default_isos: false\n"
        "guests: [{vmid: 100, count: 400, config: {name: 'g{vmid}', scsi0: 'local-lvm:1'}}]\n"
    )
    command = [sys.executable, "-m", "deployments.lab", "serve", "--state", str(state)]
    half = subprocess.Popen([*command, "--seed", str(seed)])
    eventually(lambda: list(state.glob("etc/nodes/*/qemu-server/*.conf")))
    half.kill()
    half.wait()
    assert not (state / "etc" / "credentials.json").exists()

    lab = started(state, "--seed", str(seed))

    assert set(lab.snapshot()["guests"]) == {str(vmid) for vmid in range(100, 500)}
    check_files(state)


def test_a_folder_that_a_lab_uses_is_refused_to_another(tmp_path: Path) -> None:
    with running_lab(tmp_path / "state") as lab:
        command = [sys.executable, "-m", "deployments.lab", "serve", "--state", str(lab.state)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

        assert second.returncode == 2
        assert "is in use by a running lab" in second.stderr
        assert Client(lab).get("/version")


def test_a_folder_that_was_killed_in_use_is_free_again(state: Path) -> None:
    kill(started(state))

    assert Client(started(state)).get("/version")


def test_a_folder_with_other_people_s_files_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    command = [sys.executable, "-m", "deployments.lab", "serve", "--state", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "thesis.txt" in done.stderr
    assert not (tmp_path / "etc").exists()
