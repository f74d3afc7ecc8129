"""Rewriting a large install ISO, and seed ISOs by the hundred."""

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

from blocks.manifest.loader import load_environment
from tasks.iso.build import build_seed
from tasks.iso.render import render
from tests.benchmarks.figures import Figure, at_most, plain
from tests.benchmarks.places import environment
from tests.tasks.iso.images import ISOLINUX, ubuntu

MIB = 1 << 20
SIZE = 1024 * MIB
REPEATS = 5
SEEDS = 100
# By the same library as ours; sha256sum may know less of the processor.
CHECKSUM = "import hashlib, sys; hashlib.file_digest(open(sys.argv[1], 'rb'), 'sha256')"


def iso(folder: Path) -> Iterator[Figure]:
    """1 GiB in turns by cp, by xorriso and by us, medians of five; then 100 seeds of one run."""
    if shutil.which("xorriso") and (ISOLINUX / "isolinux.bin").exists():
        yield from _rewriting(folder)
    else:
        yield plain("rewriting an ISO", 0, "", "not measured: xorriso or isolinux is missing")
    yield _seeds(folder)


def _rewriting(folder: Path) -> Iterator[Figure]:
    source, target = _large(folder), folder / "out.iso"
    menu = folder / "grub.cfg"
    menu.write_text("menuentry 'x' {\n\tlinux /casper/vmlinuz autoinstall ---\n}\n")
    ours: list[dict[str, float]] = []
    summed: list[dict[str, float]] = []
    copies, sums, synced, others = [], [], [], []
    for _ in range(REPEATS):
        copies.append(_timed(target, "cp", "--reflink=never", str(source), str(target)))
        ours.append(_ours(source, target))
        sums.append(_timed(target, sys.executable, "-c", CHECKSUM, str(source)))
        summed.append(_ours(source, target, "checksum"))
        synced.append(_timed(target, "dd", f"if={source}", f"of={target}", "bs=4M", "conv=fsync"))
        others.append(
            _timed(
                target,
                *("xorriso", "-indev", str(source), "-outdev", str(target)),
                *("-boot_image", "any", "replay", "-map", str(menu), "/boot/grub/grub.cfg"),
            )
        )
    target.unlink()
    source.unlink()
    mine, copy = _seconds(ours), median(copies)
    note = f"{mine:.2f} s; cp {copy:.2f} s, from memory to memory"
    yield at_most("rewriting 1 GiB, ratio to cp", mine / copy, 1.5, note=note)
    both, apart = _seconds(summed), copy + median(sums)
    note = f"{both:.1f} s, as `up` does; cp, then SHA-256 {apart:.1f} s"
    yield plain(
        "rewriting 1 GiB with its checksum, ratio to cp, then checksum", both / apart, note=note
    )
    yield plain(
        "rewriting 1 GiB, ratio to dd with fsync",
        mine / median(synced),
        note="ours is not forced to the disk",
    )
    yield plain(
        "rewriting 1 GiB, ratio to xorriso",
        mine / median(others),
        note=f"xorriso {median(others):.1f} s, builds the image anew",
    )
    peak = max(run["rss"] for run in (*ours, *summed)) / 1024
    yield at_most("peak memory of the rewriting process", round(peak), 150, "MiB")


def _ours(source: Path, target: Path, *words: str) -> dict[str, float]:
    _settle(target)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.rewriting", str(source), str(target), *words],
        check=True,
        capture_output=True,
        text=True,
    )
    measured: dict[str, float] = json.loads(ended.stdout)
    return measured


def _seconds(runs: list[dict[str, float]]) -> float:
    return median(run["seconds"] for run in runs)


def _large(folder: Path) -> Path:
    """An image as Ubuntu's, with 1 GiB that does not compress."""
    small, large, filler = ubuntu(folder), folder / "large.iso", folder / "filler"
    block = os.urandom(MIB)
    with filler.open("wb") as stream:
        for _ in range(SIZE // MIB):
            stream.write(block)
    _timed(
        large,
        *("xorriso", "-indev", str(small), "-outdev", str(large)),
        *("-boot_image", "any", "replay", "-map", str(filler), "/casper/filesystem.squashfs"),
    )
    filler.unlink()
    return large


def _settle(target: Path) -> None:
    """No writes of the one before are left for the next one to wait for."""
    target.unlink(missing_ok=True)
    os.sync()


def _timed(target: Path, *command: str) -> float:
    _settle(target)
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def _seeds(folder: Path) -> Figure:
    loaded = load_environment(environment(folder / "seeds", SEEDS))
    began = time.perf_counter()
    for guest in loaded.guests:
        build_seed(render(guest, env=loaded.name), folder / f"{guest.label}.iso")
    seconds = time.perf_counter() - began
    return at_most(f"{SEEDS} seed ISOs, render and build", seconds, 3, "s", "one after the other")
