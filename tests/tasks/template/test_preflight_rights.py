"""The privileges that the preflight of templates asks for are enough: a token with no others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from blocks.manifest.guest import CloneSource, CloudInit, Firmware, Guest, PciDevice
from blocks.manifest.recipe import TEMPLATE, Alias, Recipe
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.proxmox.inventory import read_inventory
from deployments.lab.testing import RunningLab, running_lab
from tasks.session import Session
from tasks.template.preflight import check_template
from tasks.template.preflight_rights import template_rights
from tasks.template.preflight_scope import scope
from tasks.template.stages import publish
from tests.environments import Place
from tests.tasks.template.clones import STAGES as CLONE_STAGES
from tests.tasks.template.machines import ALL, from_image
from tests.tasks.template.machines import STAGES as TEMPLATE_STAGES
from tests.templates import Golden

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"""
default_isos: false
nodes: [{{name: pve1, pci: [{{path: "0000:01:00.0", id: "10de:2204"}}]}}]
pools: [web, kept]
mappings: [{{id: gpu, map: ["node=pve1,path=0000:01:00.0,id=10de:2204"]}}]
users: [{{userid: ops@pve, tokens: [{{name: t, secret: {SECRET}, privsep: false}}]}}]
"""


def grant(state: Path, wants: Mapping[str, frozenset[str]]) -> None:
    """Give the token's user these privileges on these paths, and none besides."""
    file = state / "etc" / "access.json"
    access = json.loads(file.read_text())
    for number, (path, privileges) in enumerate(wants.items()):
        role = f"Role{number}"
        access["roles"][role] = sorted(privileges)
        access["acl"].append({"path": path, "who": "ops@pve", "role": role, "propagate": True})
    file.write_text(json.dumps(access))


@contextmanager
def as_ops(golden: Golden, recipe: Recipe) -> Iterator[Session]:
    """A run's session whose client has the token of ``ops``."""
    with golden.opened(recipe) as here:
        here.client.close()
        changed = {"token_id": "ops@pve!t", "token_secret": SecretStr(SECRET)}
        here.connection = lab_connection(golden.place.lab.state).model_copy(update=changed)
        here.client = Client(here.connection)
        yield here


def rich(golden: Golden, told: CloudInit) -> tuple[Guest, tuple[Guest, Guest]]:
    """A template with everything that needs privileges, a full clone of it and a linked one."""
    firmware = Firmware(
        bios="ovmf", machine="q35", efi_storage="local-lvm", tpm_storage="local-lvm"
    )
    device = (PciDevice(mapping="gpu"),)
    template = from_image(golden, firmware=firmware, pci=device, pool="web", cloud_init=told)
    rest = {"firmware": firmware, "pci": device, "cloud_init": told}
    full = golden.clone(1, pool="web", **rest)
    linked = golden.clone(2, source=CloneSource(template=TEMPLATE, full=False), **rest)
    return template, (full, linked.model_copy(update={"autostart": False}))


@pytest.mark.parametrize(("method", "storage"), [("fields", "local-lvm"), ("seed", "local")])
def test_a_token_with_exactly_what_is_asked_for_builds_and_clones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, storage: str
) -> None:
    monkeypatch.setenv("PROXFLOW_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PROXFLOW_CACHE_DIR", str(tmp_path / "cache"))
    seed, state = tmp_path / "seed.yaml", tmp_path / "lab"
    seed.write_text(SEED)
    with running_lab(state, seed_file=seed) as lab:
        golden = place_in(lab, tmp_path)
        told = golden.cloud_init("told", method=method, storage=storage)
        template, clones = rich(golden, told)
        recipe = golden.recipe(*clones, template=template, alias=Alias(tag="newest", pool="kept"))
        wants = template_rights(scope(golden.environment(recipe), (), ALL))
    grant(state, wants)
    with running_lab(state) as lab, as_ops(place_in(lab, tmp_path), recipe) as here:
        inventory = read_inventory(here.client)
        found = check_template(
            here.client, here.connection, here.environment, inventory, stages=ALL
        )
        for stage in (*TEMPLATE_STAGES, publish):
            stage.fn(here.run, TEMPLATE)
        for clone in clones:
            for stage in CLONE_STAGES:
                stage.fn(here.run, clone.label)

        assert [str(each) for each in found if each.severity == "error"] == []
        assert {row.status for row in read_inventory(here.client).guests} == {"running", "stopped"}
        assert lab.snapshot()["pools"] == {"kept": [template.vmid], "web": [clones[0].vmid]}


def place_in(lab: RunningLab, folder: Path) -> Golden:
    """The same golden template in whichever process of the lab."""
    return Golden(Place(folder / "manifest", lab, 1))
