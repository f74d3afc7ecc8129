"""A large upload beside the same upload by curl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from deployments.lab.testing import RunningLab
from tests.benchmarks.figures import Figure, at_most, plain
from tests.benchmarks.places import lab

MIB = 1 << 20
SIZE = 1024 * MIB
REPEATS = 3


def uploads(folder: Path) -> Iterator[Figure]:
    """1 GiB to the lab, in turns by curl and by ``blocks.proxmox.upload``; medians of three."""
    file = folder / "large.iso"
    block = os.urandom(MIB)
    with file.open("wb") as target:
        for _ in range(SIZE // MIB):
            target.write(block)
    ours: list[dict[str, float]] = []
    curl: list[float] = []
    with lab(folder / "uploads", nodes=1) as cluster:
        for _ in range(REPEATS):
            if shutil.which("curl"):
                curl.append(_by_curl(cluster, file))
            ours.append(_by_us(cluster, file))
        peak_of_lab = _peak(int(cluster.connection["pid"]))
    file.unlink()
    mine = median(sent["seconds"] for sent in ours)
    if curl:
        yield at_most(
            "upload of 1 GiB, ratio to curl",
            mine / median(curl),
            1.2,
            note=f"{mine:.1f} s, curl {median(curl):.1f} s; the lab limits both",
        )
    else:
        yield plain("upload of 1 GiB", mine, "s", "curl is not installed")
    own = max(sent["rss"] for sent in ours) / 1024
    yield at_most("peak memory of the sending process", round(own), 200, "MiB")
    yield at_most("peak memory of the lab", round(peak_of_lab), 200, "MiB")


def _by_us(cluster: RunningLab, file: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.sending", str(cluster.state), str(file)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    sent: dict[str, float] = json.loads(ended.stdout)
    return sent


def _by_curl(cluster: RunningLab, file: Path) -> float:
    # The token goes through standard input: arguments can be read by anybody.
    began = time.perf_counter()
    subprocess.run(
        [
            *("curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--http1.1"),
            *("--cacert", str(cluster.connection["ca_file"]), "--header", "@-"),
            *("--form", "content=iso", "--form", f"filename=@{file};filename=curl.iso"),
            f"{cluster.endpoint}/api2/json/nodes/pve1/storage/local/upload",
        ],
        input=f"Authorization: {cluster.token_header}\n",
        check=True,
        capture_output=True,
        text=True,
    )
    cluster.settle()
    return time.perf_counter() - began


def _peak(pid: int) -> float:
    """Peak resident memory of a process in MiB, as the kernel keeps it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"the kernel says nothing about process {pid}")
