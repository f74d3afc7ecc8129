"""A small whole template that the tests change in one place at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Guest
from blocks.manifest.recipe import Recipe
from tests.blocks.manifest.sample import KEY, load

TEMPLATE = f"""\
version: "1"
kind: Template
metadata: {{ name: golden, domain: example.com, proxmox_context: lab, tags: [gold] }}
spec:
  node: pve1
  vm_id: 9000
  image: debian13
  resources: {{ cores: 2, memory: 2048 }}
  disk: {{ size: 20G, storage: local-lvm }}
  nics:
    - {{ bridge: vmbr0, vlan: 20 }}
  cloud_init:
    user: ops
    ssh_keys: ["{KEY}"]
    gateway: 10.0.0.1
    dns: [10.0.0.2]
  rebuild: {{ when: weekly, keep: 2, vm_ids: 9000-9009 }}
  alias: {{ tag: golden-current, pool: golden }}
  clones:
    - name: db1
      vm_id: 9101
      ip: 10.0.0.11/24
      disk: 40G
    - name: db2
      vm_id: 9102
      node: pve2
      ip: 10.0.0.12/24
      mode: linked
"""

MINIMAL = f"""\
version: "1"
kind: Template
metadata: {{ name: golden }}
spec:
  node: pve1
  vm_id: 9000
  image: debian13
  cloud_init:
    ssh_keys: ["{KEY}"]
"""


def environment(
    folder: Path, text: str = TEMPLATE, env: Mapping[str, str] | None = None
) -> Environment:
    """The environment of a template, with no user's folder but an empty one."""
    return load(folder, text, {"PROXFLOW_CONFIG_DIR": str(folder / "config"), **(env or {})})


def recipe(folder: Path, text: str = TEMPLATE, env: Mapping[str, str] | None = None) -> Recipe:
    """The recipe of a template."""
    found = environment(folder, text, env).recipe
    assert found is not None
    return found


def template(folder: Path, text: str = TEMPLATE, env: Mapping[str, str] | None = None) -> Guest:
    """The template of a template document."""
    return recipe(folder, text, env).template


def with_spec(lines: str, text: str = MINIMAL) -> str:
    """The document with more lines under ``spec``."""
    return text + "".join(f"  {line}\n" for line in lines.strip("\n").splitlines())
