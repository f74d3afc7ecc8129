"""Small environments for tests, each in a place of its own, as an operator would write them.

A test that asks for ``place`` (see the conftest files of tests/tasks and tests/flows) may use the
module's lab without meeting other tests there: names, numbers and addresses are its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from blocks.manifest.mark import Mark, marked
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from deployments.lab.testing import RunningLab
from flows.environment import open_session
from tasks.attach import attach
from tasks.build import build
from tasks.create import create
from tasks.finalize import finalize
from tasks.render import render
from tasks.session import Session, adopt, close_session
from tasks.stage import Outcome
from tasks.start import start
from tasks.upload import upload
from tasks.wait import wait

Document = dict[str, Any]

NODES = ("pve1", "pve2", "pve3")
ROCKY = "Rocky-9.6-x86_64-dvd.iso"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMXlE1z1c/IbgTn0F42pVLL8Si2Q/qG/7KEoovDr9LFf a@b"
RUN = "0000000a"
OTHER_RUN = "0000000b"
INSTALL = (render, build, upload, create, attach, start, wait, finalize)

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """A folder, a lab, and names and numbers that no other test of the process uses."""

    folder: Path
    lab: RunningLab
    number: int

    def neighbour(self) -> Place:
        """Another place in the same lab."""
        number = next(_numbers)
        return Place(self.folder / f"neighbour{number}", self.lab, number)

    @property
    def env(self) -> str:
        """Name of the environment."""
        return f"env{self.number}"

    @property
    def subnet(self) -> str:
        """The first three parts of its public addresses."""
        return f"10.{50 + self.number // 250}.{self.number % 250}"

    def vmid(self, index: int = 1) -> int:
        """Number of the guest ``n1``, ``n2``, ..."""
        return 10_000 + 20 * self.number + index

    def address(self, index: int = 1) -> str:
        """Public address of the guest ``n1``, ``n2``, ..."""
        return f"{self.subnet}.{10 + index}"

    def name(self, index: int = 1) -> str:
        """Host name of the guest ``n1``, ``n2``, ..."""
        return f"n{index}-{self.number}"

    def document(
        self,
        count: int = 1,
        *,
        shared: bool = False,
        second_nic: bool = False,
        ovmf: bool = False,
        storages: tuple[str, ...] = ("local-lvm",),
        dhcp: bool = False,
        iso: bool = True,
        hooks: Document | None = None,
    ) -> Document:
        """Guests ``n1`` to ``nN``, one a Proxmox VE node in turn.

        ``storages``: one disk each. ``shared``: one more disk that all of them share. ``dhcp``: no
        address is declared. ``iso``: they are installed from one; else they are empty machines.
        """
        nodes = {
            f"n{index}": self._node(index, shared, second_nic, ovmf, storages, dhcp)
            for index in range(1, count + 1)
        }
        installing = {
            "iso": {"storage": "local", "image": ROCKY},
            "kickstart": {"distro": "rocky9", "ssh_keys": {"root": [KEY]}},
        }
        return {
            "version": "1",
            "kind": "Env",
            "metadata": {"name": self.env, "domain": "example.com", "proxmox_context": "lab"},
            "spec": {
                "hypervisor": {
                    "kind": "Hypervisor",
                    "nodes": nodes,
                    **(installing if iso else {}),
                },
                "networks": {
                    "kind": "Networks",
                    "public": {"cidr": f"{self.subnet}.0/24", "gateway": f"{self.subnet}.1"},
                    "private": {"cidr": "192.168.7.0/24", "bridge": "vmbr1"},
                },
                "storage_classes": {
                    "kind": "StorageClasses",
                    **{name: {"backend": name} for name in storages if name != "shared"},
                    "shared": {"backend": "shared", "shared": True},
                },
            },
            **({"hooks": hooks} if hooks else {}),
        }

    def _node(
        self,
        index: int,
        shared: bool,
        second_nic: bool,
        ovmf: bool,
        storages: tuple[str, ...],
        dhcp: bool,
    ) -> Document:
        nics: list[Document] = [{"name": "net0", "usage": "public", "network": "public"}]
        disks: list[Document] = [
            {"id": number, "size": "4G", "storage_class": name}
            for number, name in enumerate(storages)
        ]
        disks[0]["role"] = "root"
        if second_nic:
            nics.append(
                {
                    "name": "net1",
                    "usage": "private",
                    "network": "private",
                    "ipv4": {"address": f"192.168.7.{10 + index}/24"},
                }
            )
        if shared:
            disks.append({"id": 9, "size": "2G", "storage_class": "shared", "shared": True})
        return {
            "proxmox": {"node_name": NODES[(index - 1) % 3], "vm_id": self.vmid(index)},
            "hostname": self.name(index),
            **({} if dhcp else {"ips": {"public": self.address(index)}}),
            "resources": {"memory": 1024, **({"bios": "ovmf"} if ovmf else {})},
            "nics": nics,
            "disks": disks,
        }

    def write(self, document: Document | None = None, **options: Any) -> Path:
        """Write a document, by default a new one with these options; the path of the manifest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "env.yaml"
        with path.open("w") as file:
            YAML(typ="safe").dump(document or self.document(**options), file)
        return path

    def client(self) -> Client:
        """A client of its own; the caller closes it."""
        return Client(lab_connection(self.lab.state))

    def config(self, index: int = 1) -> dict[str, Any]:
        """Live configuration of a guest."""
        with self.client() as client:
            path = f"/nodes/{NODES[(index - 1) % 3]}/qemu/{self.vmid(index)}/config"
            return dict(client.get(path))

    def exists(self, index: int = 1) -> bool:
        """Whether the guest is on the cluster."""
        return str(self.vmid(index)) in self.lab.snapshot()["guests"]

    def running(self, index: int = 1) -> bool:
        """Whether the guest is switched on."""
        return self.vmid(index) in {run["vmid"] for run in self.lab.snapshot()["running"]}

    def guests(self) -> list[int]:
        """Numbers of the place's guests that exist, in order."""
        mine = range(self.vmid(0), self.vmid(20))
        return [vmid for vmid in sorted(map(int, self.lab.snapshot()["guests"])) if vmid in mine]

    def volumes(self, part: str = "") -> list[str]:
        """Volumes of the place's guests, seed ISOs included, whose name has ``part``."""
        ids = [f"-{self.vmid(index)}-" for index in range(20)] + [f"proxflow_{self.env}_"]
        return [
            name
            for name in self.lab.snapshot()["volumes"]
            if part in name and any(one in name for one in ids)
        ]

    def strange(self, index: int = 1, *, description: str = "", **config: Any) -> None:
        """Somebody else's guest under the number of ours."""
        with self.client() as client:
            client.run(
                "POST",
                f"/nodes/{NODES[(index - 1) % 3]}/qemu",
                vmid=self.vmid(index),
                description=description,
                **{"name": f"stranger-{self.number}", **config},
            )

    def of_another_environment(self, index: int = 1) -> None:
        """Another environment's guest under the number of ours."""
        mark = Mark(
            env="elsewhere",
            guest=f"n{index}",
            vmid=self.vmid(index),
            run=OTHER_RUN,
            ready=True,
        )
        self.strange(index, description=marked(mark, ""))

    def edit(self, index: int = 1, **config: Any) -> None:
        """Change a guest by hand, as on the web page."""
        with self.client() as client:
            path = f"/nodes/{NODES[(index - 1) % 3]}/qemu/{self.vmid(index)}/config"
            client.put(path, **config)

    def changes(self) -> list[str]:
        """The calls since ``lab.forget_requests`` that may have changed something."""
        return [
            f"{row['method']} {row['path']}"
            for row in self.lab.writes()
            if not row["path"].endswith("/agent/ping")
        ]


@contextmanager
def opened(
    manifest: Path, run_id: str = RUN, only: list[str] | None = None, **options: Any
) -> Iterator[Session]:
    """A run's open session, as the flows open it."""
    here = open_session(run_id, manifest, None, only, options)
    adopt(here)
    try:
        yield here
    finally:
        close_session(here.run)


def install(here: Session, label: str = "n1") -> list[Outcome]:
    """Every stage of a guest, in order, without Prefect."""
    here.look(here.guest(label))
    return [stage.fn(here.run, label) for stage in INSTALL]


def brought_up(place: Place, run_id: str = RUN, **options: Any) -> Path:
    """A finished environment: its manifest. Owners of shared disks come first."""
    manifest = place.write(**options)
    with opened(manifest, run_id) as here:
        for guest in here.environment.guests:
            install(here, guest.label)
    return manifest


def make_place(lab: RunningLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Body of the ``place`` fixture: the lab is the cluster, the test's folder holds the state."""
    for name in ("PROXMOX_ENDPOINT", "PROXFLOW_CONFIRM", "SLACK_WEBHOOK_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PROXFLOW_LAB_STATE", str(lab.state))
    monkeypatch.setenv("PROXFLOW_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PROXFLOW_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("PROXFLOW_CACHE_DIR", str(tmp_path / "cache"))
    yield Place(tmp_path / "manifest", lab, next(_numbers))
    lab.clear_faults()
