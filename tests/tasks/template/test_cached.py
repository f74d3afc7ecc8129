"""Who needs a cached file, told to callers with few rights and of storages that share a folder."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import SecretStr

from blocks.manifest.recipe import TEMPLATE
from blocks.paths import cache_dir
from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection, lab_connection
from blocks.proxmox.upload import upload
from blocks.units import GIB, MIB
from deployments.lab.testing import RunningLab
from tasks import clock
from tasks.image import image
from tasks.template import cached
from tasks.template.cached import Cached, list_cached, wanted_by
from tasks.template.create import create
from tests.environments import opened
from tests.labfixture import LabFactory
from tests.tasks.template.runs import surveyed
from tests.templates import Golden

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"""
default_isos: false
pools: [closed]
guests:
  - {{vmid: 150, node: pve1, config: {{name: secret}}}}
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
  - userid: guests@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl:
      - {{path: /storage, role: PVEDatastoreAdmin}}
      - {{path: /vms, role: PVEAuditor}}
  - userid: but@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl:
      - {{path: /, role: PVEAuditor}}
      - {{path: /vms/150, role: NoAccess}}
  - userid: pool@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl:
      - {{path: /, role: PVEAuditor}}
      - {{path: /pool/closed, role: NoAccess}}
  - userid: all@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl:
      - {{path: /, role: PVEAuditor}}
      - {{path: /vms/199, role: NoAccess}}
"""


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    return lab_factory(seed=SEED)


def medium_of(golden: Golden) -> str:
    return f"proxflow_{golden.name}_web_abcdef012345_0000000a.iso"


@pytest.fixture
def medium(golden: Golden) -> str:
    """A seed ISO that no guest names."""
    name = medium_of(golden)
    path = golden.image_file(golden.place.folder / "put")
    with golden.place.client() as client:
        upload(client, "pve1", "local", path, content="iso", filename=name)
    return f"local:iso/{name}"


@pytest.fixture
def drive(golden: Golden) -> str:
    """A seed ISO in the drive of a guest that carries no mark."""
    path = golden.image_file(golden.place.folder / "put")
    with golden.place.client() as client:
        # The lab's storages have folders of their own, whichever path is written for them.
        for storage in ("local", "twin"):
            upload(client, "pve1", storage, path, content="iso", filename=medium_of(golden))
        volid = f"local:iso/{medium_of(golden)}"
        client.run("POST", "/nodes/pve1/qemu", vmid=golden.vmid, ide2=f"{volid},media=cdrom")
    return volid


def listed(golden: Golden, user: str) -> dict[str, Cached]:
    lab: Connection = lab_connection(Path(golden.place.lab.state))
    token = {"token_id": f"{user}@pve!t", "token_secret": SecretStr(SECRET)}
    with Client(lab.model_copy(update=token)) as client:
        return {each.name: each for each in list_cached(client, ())}


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("files", "lacks VM.Audit on /vms, Sys.Audit on /access"),
        ("some", "lacks VM.Audit on /vms"),
        ("guests", "lacks Sys.Audit on /access"),
        ("but", "perhaps VM 150, which this caller may not see"),
        ("pool", "perhaps a guest of /pool/closed"),
    ],
)
def test_nothing_may_go_where_guests_may_be_hidden_from_the_caller(
    golden: Golden, medium: str, user: str, why: str
) -> None:
    row = listed(golden, user)[medium]

    assert not row.may_go(0)
    assert why in "; ".join(row.needed_by)


def test_what_nobody_names_may_go_where_nothing_is_hidden(golden: Golden, medium: str) -> None:
    assert listed(golden, "all")[medium].may_go(0)


def test_a_medium_that_only_a_snapshot_names_stays(golden: Golden, drive: str) -> None:
    path = f"/nodes/pve1/qemu/{golden.vmid}"
    with golden.place.client() as client:
        # The one that the machine stands on goes, so that its configuration tells of none.
        for name in ("base", "late"):
            client.run("POST", f"{path}/snapshot", snapname=name)
        client.run("POST", f"{path}/snapshot/base/rollback")
        client.run("DELETE", f"{path}/snapshot/base")
        client.put(f"{path}/config", delete="ide2")
        config = client.get(f"{path}/config")

    row = listed(golden, "all")[drive]

    assert not {"parent", "ide2"} & config.keys()
    assert [text for text in row.needed_by if "in its snapshot late, names it" in text] != []


def test_a_medium_that_leaves_its_drive_with_the_next_stop_only_stays(
    golden: Golden, drive: str
) -> None:
    path = f"/nodes/pve1/qemu/{golden.vmid}"
    with golden.place.client() as client:
        client.run("POST", f"{path}/status/start")
        client.put(f"{path}/config", delete="ide2")
        waiting = client.get(f"{path}/config")
        before = listed(golden, "all")[drive]
        client.run("POST", f"{path}/status/stop")
    after = listed(golden, "all")[drive]

    assert "ide2" not in waiting
    assert [text for text in before.needed_by if "until it stops, names it" in text] != []
    assert after.may_go(0)


def test_a_machine_that_moves_while_it_is_looked_at_keeps_everything(
    golden: Golden, drive: str
) -> None:
    golden.place.lab.fault(
        method="GET",
        path=f"/nodes/pve1/qemu/{golden.vmid}/config",
        status=500,
        reason=f"Configuration file 'nodes/pve1/qemu-server/{golden.vmid}.conf' does not exist",
    )

    row = listed(golden, "all")[drive]

    assert not row.may_go(0)
    assert f"perhaps VM {golden.vmid}" in row.needed_by[0]


def test_a_file_is_not_older_where_this_machines_clock_goes_before_the_clusters(
    golden: Golden, medium: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = SimpleNamespace(time=lambda: time.time() + 5 * 24 * 3600)
    monkeypatch.setattr(cached, "time", before)
    monkeypatch.setattr(clock, "time", before)

    assert listed(golden, "all")[medium].days < 1


def test_while_a_template_is_unfinished_the_image_stays_that_its_manifest_named_before(
    golden: Golden, tmp_path: Path
) -> None:
    document = golden.document(golden.image_file(tmp_path / "old"))
    with opened(golden.write(document)) as here:
        surveyed(here)
        for stage in (image, create):
            stage.fn(here.run, TEMPLATE)
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "new", GIB + MIB))
    with opened(golden.write(document)) as here:
        wanted = wanted_by(here.environment)
        assert wanted is not None
        rows = list_cached(here.client, [wanted])

    (row,) = [row for row in rows if f"proxflow-{golden.name}-" in row.name]
    assert [text for text in row.needed_by if "does not tell its image" in text] != []


def test_what_vanishes_from_this_machines_cache_or_is_a_folder_is_passed_over(
    golden: Golden,
) -> None:
    folder = cache_dir() / "images"
    folder.mkdir(parents=True)
    (folder / f"{'a' * 64}.image").symlink_to(folder / "gone")
    (folder / f"{'b' * 64}.disk").mkdir()
    (folder / f"{'c' * 64}.image").write_bytes(b"kept")

    with golden.place.client() as client:
        here = [each.name for each in list_cached(client, ()) if each.kind == "local"]

    assert here == [str(folder / f"{'c' * 64}.image")]


def test_a_file_stays_that_a_guest_names_on_another_storage(golden: Golden, drive: str) -> None:
    twin = listed(golden, "all")[f"twin:iso/{medium_of(golden)}"]

    assert f"VM {golden.vmid} (VM {golden.vmid}) on pve1 names it" in twin.needed_by
