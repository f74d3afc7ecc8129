"""Who needs a cached file, told to callers with few rights and of storages that share a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection, lab_connection
from blocks.proxmox.upload import upload
from deployments.lab.testing import RunningLab
from tasks.template.cached import Cached, list_cached
from tests.labfixture import LabFactory
from tests.templates import Golden

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"""
default_isos: false
storages:
  - {{name: local, type: dir, content: [iso, images, import], path: /srv/iso}}
  - {{name: twin, type: dir, content: [iso, images, import], path: /srv/iso}}
users:
  - userid: files@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /storage, role: PVEDatastoreAdmin}}]
  - userid: some@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl:
      - {{path: /storage, role: PVEDatastoreAdmin}}
      - {{path: /vms/100, role: PVEAuditor}}
  - userid: all@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /, role: PVEAuditor}}]
"""
MEDIUM = "proxflow_shop_web_abcdef012345_0000000a.iso"


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    return lab_factory(seed=SEED)


@pytest.fixture
def drive(golden: Golden) -> str:
    """A seed ISO in the drive of a guest that carries no mark."""
    path = golden.image_file(golden.place.folder / "put")
    with golden.place.client() as client:
        # The lab's storages have folders of their own, whichever path is written for them.
        for storage in ("local", "twin"):
            upload(client, "pve1", storage, path, content="iso", filename=MEDIUM)
        volid = f"local:iso/{MEDIUM}"
        client.run("POST", "/nodes/pve1/qemu", vmid=golden.vmid, ide2=f"{volid},media=cdrom")
    return volid


def listed(golden: Golden, user: str) -> dict[str, Cached]:
    lab: Connection = lab_connection(Path(golden.place.lab.state))
    token = {"token_id": f"{user}@pve!t", "token_secret": SecretStr(SECRET)}
    with Client(lab.model_copy(update=token)) as client:
        return {each.name: each for each in list_cached(client, ())}


@pytest.mark.parametrize("user", ["files", "some"])
def test_nothing_may_go_where_guests_may_be_hidden_from_the_caller(
    golden: Golden, drive: str, user: str
) -> None:
    row = listed(golden, user)[drive]

    assert not row.may_go(0)
    assert "lacks VM.Audit on /vms" in row.needed_by[0]


def test_a_file_stays_that_a_guest_names_on_another_storage(golden: Golden, drive: str) -> None:
    twin = listed(golden, "all")[f"twin:iso/{MEDIUM}"]

    assert f"VM {golden.vmid} (VM {golden.vmid}) on pve1 names it" in twin.needed_by
