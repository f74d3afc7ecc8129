"""The lab itself: how soon it is there, and what it takes with many guests."""

from __future__ import annotations

import http.client
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from deployments.lab import process
from deployments.lab.testing import RunningLab
from tests.benchmarks.figures import Figure, at_most, plain

GUESTS = 2000
REQUESTS = 600
STARTS = 3
MIB = 1 << 20
_SEED = f"""
guests:
  - vmid: 1000
    count: {GUESTS // 2}
    running: true
    config: {{name: "web{{vmid}}", cores: 2, scsi0: "local-lvm:8", net0: "virtio,bridge=vmbr0"}}
  - vmid: {1000 + GUESTS // 2}
    count: {GUESTS // 2}
    config: {{name: "db{{vmid}}", cores: 2, scsi0: "local-lvm:8", net0: "virtio,bridge=vmbr0"}}
"""


def lab(folder: Path) -> Iterator[Figure]:
    """Start of a new and of a used lab, lists of thousands of guests, a large upload beside."""
    fresh, again = [], []
    for number in range(STARTS):
        state = folder / f"start{number}"
        fresh.append(_seconds(state))
        process.stop(state)
        again.append(_seconds(state))
        process.reset(state)
    yield at_most("first start, new state folder", statistics.median(fresh), 1, "s")
    yield at_most("start of a used state folder", statistics.median(again), 1, "s")
    seed = folder / "many.yaml"
    seed.write_text(_SEED)
    state = folder / "many"
    seeding = _seconds(state, "--seed", str(seed))
    yield plain(f"first start that seeds {GUESTS} guests", seeding, "s")
    process.stop(state)
    yield at_most(f"start with {GUESTS} guests", _seconds(state), 1, "s")
    running = RunningLab(state, process.start(state, [])[0])
    try:
        yield from _listing(running)
        yield from _uploading(running, folder)
        yield at_most("peak memory of the lab", round(_peak(running)), 150, "MiB")
    finally:
        process.reset(state)


def _seconds(state: Path, *arguments: str) -> float:
    """Wall time of ``python -m deployments.lab start`` until it has said that the lab answers."""
    command = [sys.executable, "-m", "deployments.lab", "start", "--state", str(state)]
    began = time.perf_counter()
    subprocess.run([*command, "--time-scale", "0", *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


class _Caller:
    """One kept connection; as little work as can be on the client's side."""

    def __init__(self, running: RunningLab) -> None:
        context = ssl.create_default_context(cafile=running.connection["ca_file"])
        self._line = http.client.HTTPSConnection("127.0.0.1", running.port, context=context)
        self._headers = {"Authorization": running.token_header}

    def get(self, path: str) -> bytes:
        self._line.request("GET", f"/api2/json{path}", headers=self._headers)
        return self._line.getresponse().read()


def _listing(running: RunningLab) -> Iterator[Figure]:
    """Requests a second with two in flight, as one caller's own work would leave the lab idle."""
    callers = [_Caller(running) for _ in range(2)]
    size = max(len(caller.get("/cluster/resources")) for caller in callers)

    def ask(caller: _Caller) -> None:
        for _ in range(REQUESTS // len(callers)):
            caller.get("/cluster/resources")

    spent, began = _processor_seconds(running), time.perf_counter()
    with ThreadPoolExecutor(len(callers)) as pool:
        list(pool.map(ask, callers))
    wall = time.perf_counter() - began
    spent = _processor_seconds(running) - spent
    rate, possible = REQUESTS / wall, REQUESTS / max(spent, 0.01)
    yield Figure(
        f"cluster/resources of {GUESTS} guests",
        f"{rate:.0f} /s",
        ">= 200 /s",
        rate >= 200,
        f"{size // 1000} kB each; the lab's processor time alone allows {possible:.0f} /s",
    )


def _uploading(running: RunningLab, folder: Path) -> Iterator[Figure]:
    """Answers to others while 1 GiB arrives."""
    file = folder / "large.iso"
    with file.open("wb") as handle:
        handle.truncate(1024 * MIB)
    caller, waits = _Caller(running), []
    with _sending(running, file) as sending:
        while sending.is_set():
            began = time.perf_counter()
            caller.get("/version")
            waits.append(time.perf_counter() - began)
    file.unlink()
    worst = sorted(waits)[int(len(waits) * 0.99)] * 1000
    yield plain(
        "answer to others during an upload of 1 GiB",
        statistics.median(waits) * 1000,
        "ms",
        f"99 of 100 within {worst:.0f} ms, {len(waits)} calls",
    )


@contextmanager
def _sending(running: RunningLab, file: Path) -> Iterator[threading.Event]:
    """An upload by a process of its own; the event is set while it lasts."""
    busy = threading.Event()
    busy.set()
    command = [sys.executable, "-m", "tests.benchmarks.sending", str(running.state), str(file)]

    def send() -> None:
        try:
            subprocess.run(command, check=True, capture_output=True)
        finally:
            busy.clear()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield busy
    finally:
        thread.join()


def _processor_seconds(running: RunningLab) -> float:
    fields = Path(f"/proc/{running.connection['pid']}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _peak(running: RunningLab) -> float:
    """Peak resident memory in MiB, as the kernel keeps it."""
    status = Path(f"/proc/{running.connection['pid']}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
