"""Where benchmarks run: a lab and a Prefect server in processes of their own, and a manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deployments.lab import process
from deployments.lab.testing import RunningLab

ISO = "Rocky-9.6-x86_64-dvd.iso"
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMXlE1z1c/IbgTn0F42pVLL8Si2Q/qG/7KEoovDr9LFf bench"


@contextmanager
def lab(folder: Path, *, nodes: int = 4) -> Iterator[RunningLab]:
    """A cluster of ``nodes`` nodes, each with a ``local`` storage, with immediate tasks.

    It is the one that ``--cluster lab`` means meanwhile.
    """
    state, seed = folder / "lab", folder / "seed.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    seed.write_text(
        json.dumps({"nodes": [{"name": f"pve{n + 1}", "memory_mib": 262144} for n in range(nodes)]})
    )
    before = os.environ.get("PROXFLOW_LAB_STATE")
    os.environ["PROXFLOW_LAB_STATE"] = str(state)
    data, _ = process.start(state, ["--time-scale", "0", "--seed", str(seed)])
    try:
        yield RunningLab(state, data)
    finally:
        process.reset(state)
        if before is None:
            del os.environ["PROXFLOW_LAB_STATE"]
        else:
            os.environ["PROXFLOW_LAB_STATE"] = before


def environment(folder: Path, guests: int, *, nodes: int = 4) -> Path:
    """Write the manifest of ``guests`` small guests, dealt out over ``nodes`` nodes."""
    hypervisor = {
        "kind": "Hypervisor",
        "defaults": {
            "resources": {"memory": 1024, "cores": 1},
            "nics": [{"name": "net0", "usage": "public", "network": "public"}],
            "disks": [{"id": 0, "size": "8G", "storage_class": "system", "role": "root"}],
        },
        "nodes": {
            f"g{n + 1:02}": {
                "proxmox": {"node_name": f"pve{n % nodes + 1}", "vm_id": 2001 + n},
                "ips": {"public": f"10.77.1.{n + 1}"},
            }
            for n in range(guests)
        },
        "iso": {"storage": "local", "image": ISO},
        "kickstart": {"distro": "rocky9", "ssh_keys": {"root": [_KEY]}},
    }
    networks = {"kind": "Networks", "public": {"cidr": "10.77.0.0/16", "bridge": "vmbr0"}}
    document = {
        "version": "1",
        "kind": "Env",
        "metadata": {"name": "bench", "domain": "example.com"},
        "spec": {
            "hypervisor": hypervisor,
            "networks": networks,
            "storage_classes": {"kind": "StorageClasses", "system": {"backend": "local-lvm"}},
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "env.yaml"
    file.write_text(json.dumps(document, indent=2))
    return file
