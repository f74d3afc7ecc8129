"""What a second build costs beside the first, and how near clones come to their critical path."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blocks.units import GIB
from deployments.lab import images
from flows.runtime import prefect_runtime, run_flow
from flows.template import template
from flows.template_results import TemplateResult
from tests.benchmarks.figures import Figure, at_most, plain
from tests.benchmarks.places import lab

CLONES, NODES = 20, 4
CLONE, START = 10.0, 2.0
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMXlE1z1c/IbgTn0F42pVLL8Si2Q/qG/7KEoovDr9LFf bench"


def templates(folder: Path) -> Iterator[Figure]:
    """First and second build with three clones; then twenty clones of ten seconds each."""
    with prefect_runtime():
        manifest = recipe(folder / "small", clones=3)
        with lab(folder / "small", nodes=NODES):
            first, second = build(manifest), build(manifest)
        yield at_most(
            "second build beside the first, time",
            second.seconds / first.seconds,
            0.5,
            note=f"{second.seconds:.2f} s and {first.seconds:.2f} s with immediate tasks; three "
            "clones; most of the second is Prefect's",
        )
        yield at_most(
            "second build beside the first, API calls",
            second.result.api_calls / first.result.api_calls,
            0.25,
            note=f"{second.result.api_calls} and {first.result.api_calls} calls",
        )
        yield from clones_in_parallel(folder / "clones")


def clones_in_parallel(folder: Path) -> Iterator[Figure]:
    """Twenty clones on four nodes at once, and four at a time."""
    manifest = recipe(folder, clones=CLONES)
    for parallel in (CLONES, 4):
        with lab(folder, nodes=NODES) as cluster:
            build(manifest, skip=["clones"])
            cluster.set_time(1.0, qmclone=CLONE, qmstart=START, qmconfig=0.0, resize=0.0, boot=0.0)
            made = build(manifest, parallel=parallel)
        one = CLONE + START
        path = -(-CLONES // parallel) * one
        yield at_most(
            f"makespan of {CLONES} clones, {parallel} at once",
            made.seconds / path,
            1.10,
            note=f"{made.seconds:.1f} s for a critical path of {path:.0f} s; one after the other "
            f"{CLONES * one:.0f} s",
        )
        yield plain(f"API calls a clone, {parallel} at once", made.result.api_calls / CLONES)


@dataclass(frozen=True)
class Built:
    """A build that ended well: its result, and the seconds of the whole flow."""

    result: TemplateResult
    seconds: float


def build(manifest: Path, **options: Any) -> Built:
    """Run the flow inside a Prefect runtime. Raises RuntimeError where it fails."""
    began = time.perf_counter()
    ended = run_flow(template, manifest=str(manifest), cluster="lab", **options)
    seconds = time.perf_counter() - began
    if not ended.ok:
        raise RuntimeError(f"template failed: {ended.state.message}") from ended.failure
    return Built(TemplateResult.model_validate(ended.result), seconds)


def recipe(folder: Path, *, clones: int) -> Path:
    """Write an image and the manifest of a template with clones on all nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / "image.qcow2"
    images.create_image(image, "qcow2", GIB)
    document = {
        "version": "1",
        "kind": "Template",
        "metadata": {"name": "bench-golden"},
        "spec": {
            "node": "pve1",
            "vm_id": 9000,
            "image": {"path": str(image), "storage": "local"},
            "resources": {"memory": 1024},
            "disk": {"size": "4G", "storage": "shared"},
            "nics": [{"bridge": "vmbr0"}],
            "cloud_init": {"user": "ops", "ssh_keys": [_KEY]},
            "clones": [
                {
                    "name": f"c{n + 1:02}",
                    "vm_id": 9101 + n,
                    "node": f"pve{n % NODES + 1}",
                    "ip": f"10.78.1.{n + 1}/16",
                }
                for n in range(clones)
            ],
        },
    }
    file = folder / "template.yaml"
    file.write_text(json.dumps(document, indent=2))
    return file
