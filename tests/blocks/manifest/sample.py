"""A small whole environment that the tests change in one place at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from blocks.manifest.environment import Environment
from blocks.manifest.faults import Fault, ManifestError
from blocks.manifest.loader import load_environment

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMXlE1z1c/IbgTn0F42pVLL8Si2Q/qG/7KEoovDr9LFf a@b"
SEED = bytes(range(32))

ENV = f"""\
version: "1"
kind: Env
metadata: {{ name: shop, domain: example.com, proxmox_context: prod }}
spec:
  hypervisor:
    kind: Hypervisor
    nodes:
      db1:
        proxmox: {{ node_name: pve1, vm_id: 101 }}
        ips: {{ public: 10.0.0.11 }}
        resources: {{ memory: 2048, cores: 2 }}
        nics:
          - name: net0
            usage: public
            bridge: vmbr0
            network: public
            ipv4: {{ address: 10.0.0.11/24 }}
        disks:
          - {{ id: 0, size: 32G, storage_class: slow, role: root }}
      db2:
        proxmox: {{ node_name: pve2, vm_id: 102 }}
        ips: {{ public: 10.0.0.12 }}
        nics:
          - name: net0
            usage: public
            bridge: vmbr0
            network: public
            ipv4: {{ address: 10.0.0.12/24 }}
        disks:
          - {{ id: 0, size: 32G, storage_class: slow, role: root }}
    iso: {{ storage: local, image: rocky9.iso }}
    kickstart:
      distro: rocky9
      ssh_keys: {{ root: ["{KEY}"] }}
  networks:
    kind: Networks
    public: {{ cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: [10.0.0.2] }}
    private: {{ cidr: 10.0.1.0/24 }}
  storage_classes:
    kind: StorageClasses
    slow: {{ backend: local-lvm }}
    both: {{ backend: nfs1, shared: true }}
"""


def write(folder: Path, text: str = ENV, **files: str) -> Path:
    """Write a master file and others beside it (``hyp_yaml`` becomes ``hyp.yaml``)."""
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")
    master = folder / "env.yaml"
    master.write_text(text, encoding="utf-8")
    return master


def changed(old: str, new: str, text: str = ENV, *, count: int = 1) -> str:
    """The sample with one part replaced."""
    assert old in text
    return text.replace(old, new, count)


def load(folder: Path, text: str = ENV, env: Mapping[str, str] | None = None) -> Environment:
    """Load a sample with no other environment variables than these."""
    return load_environment(write(folder, text), env=env or {}, seed=SEED)


def faults_of(path: Path, env: Mapping[str, str] | None = None) -> tuple[Fault, ...]:
    """The faults of a manifest that must have some."""
    with pytest.raises(ManifestError) as caught:
        load_environment(path, env=env or {}, seed=SEED)
    return caught.value.faults


def only_fault(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Fault:
    """The one fault of a manifest that must have exactly one."""
    faults = faults_of(write(folder, text), env)
    assert len(faults) == 1, "\n".join(map(str, faults))
    return faults[0]


def line_of(text: str, part: str) -> int:
    """The line, counted from 1, where a part is first found."""
    return text[: text.index(part)].count("\n") + 1


def written_at(text: str, key: str) -> int:
    """The line of a dotted key as another YAML reader has it; its parent's if it is missing."""
    found = YAML(typ="rt").load(text)
    line = 1
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", key):
        step = int(index) if index else name
        if not index and name not in found:
            break
        line = (found.lc.item(step) if index else found.lc.key(step))[0] + 1
        found = found[step]
    return line
