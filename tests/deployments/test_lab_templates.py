"""Images, templates and many clones at once: locks, progress, time, what an interruption leaves."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deployments.lab.isos import make_iso
from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client, eventually
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

NETWORK = """
version: 2
ethernets:
  first:
    match: {macaddress: "bc:24:11:00:00:07"}
    addresses: [10.77.1.2/16]
"""
SEED = """
nodes: [{name: pve1}]
default_isos: false
pools: [old, new]
files:
  - {storage: local, name: base.qcow2, content: import, virtual_size: 2147483648}
  - {storage: local, name: user.yaml, content: snippets, text: "#cloud-config\\nhostname: told\\n"}
  - {storage: local, name: net.yaml, content: snippets, text: NETWORK}
guests:
  - {vmid: 900, node: pve1, config: {name: golden, scsi0: "local:2"}}
  - vmid: 901
    node: pve1
    config:
      name: plain
      scsi0: "local:2"
      ide2: "local:cloudinit"
      net0: "virtio=BC:24:11:00:00:07,bridge=vmbr0"
      ipconfig0: ip=10.77.0.7/16
""".replace("NETWORK", json.dumps(NETWORK))
NODE = "/nodes/pve1"


@pytest.fixture
def golden(lab_factory: LabFactory) -> RunningLab:
    """A node with the template 900, the machine 901, an image and a snippet."""
    lab = lab_factory(seed=SEED)
    assert Client(lab).task("POST", f"{NODE}/qemu/900/template") == "OK"
    return lab


def progress(client: Client, upid: str) -> list[str]:
    path = f"{NODE}/tasks/{upid}/log"
    rows = client.get(path, limit=500)
    return [row["t"] for row in rows if row["t"].startswith("transferred ")]


def volumes(client: Client, storage: str = "local") -> set[str]:
    return {row["volid"] for row in client.get(f"{NODE}/storage/{storage}/content")}


def addresses(lab: RunningLab, vmid: int) -> list[str]:
    def known() -> list[str]:
        (run,) = (run for run in lab.snapshot()["running"] if run["vmid"] == vmid)
        return [address for card in run["interfaces"] for address in card["addresses"]]

    return list(eventually(known))


def hostname(client: Client, vmid: int) -> str:
    return str(client.get(f"{NODE}/qemu/{vmid}/agent/get-host-name")["result"]["host-name"])


def begin_clone(client: Client, source: int, newid: int, **more: Any) -> str:
    return str(client.call("POST", f"{NODE}/qemu/{source}/clone", newid=str(newid), **more))


def test_clones_of_one_stopped_machine_go_side_by_side(golden: RunningLab) -> None:
    client = Client(golden)
    golden.set_time(1.0, qmclone=600)

    upids = [begin_clone(client, 900, 910 + n, full="1") for n in range(4)]
    eventually(lambda: all(progress(client, upid) for upid in upids))
    golden.set_time(qmclone=0)

    assert [client.wait(upid) for upid in upids] == ["OK"] * 4


def test_clones_of_a_running_machine_wait_for_each_other(golden: RunningLab) -> None:
    client = Client(golden)
    assert client.task("POST", f"{NODE}/qemu/901/status/start") == "OK"
    golden.set_time(1.0, qmclone=600, filelock=0.4)

    first, second = (begin_clone(client, 901, 920 + n) for n in range(2))

    assert client.wait(second) == (
        "can't lock file '/var/lock/qemu-server/lock-901.conf' - got timeout"
    )
    golden.set_time(qmclone=0)
    assert client.wait(first) == "OK"


def test_nobody_changes_a_machine_that_is_being_cloned(golden: RunningLab) -> None:
    client = Client(golden)
    golden.set_time(1.0, qmclone=600, filelock=0.4)
    upid = begin_clone(client, 900, 930)

    answer = client.raw("PUT", f"{NODE}/qemu/900/config", data={"onboot": "1"})

    assert answer.reason == "can't lock file '/var/lock/qemu-server/lock-900.conf' - got timeout"
    assert client.get(f"{NODE}/qemu/930/config")["lock"] == "clone"
    golden.set_time(qmclone=0)
    assert client.wait(upid) == "OK"
    assert "lock" not in client.get(f"{NODE}/qemu/930/config")


def test_a_full_clone_tells_how_far_it_is(golden: RunningLab) -> None:
    client = Client(golden)
    golden.set_time(1.0, qmclone=600)
    upid = begin_clone(client, 900, 940, full="1")
    early = eventually(lambda: progress(client, upid))

    golden.set_time(qmclone=0)
    assert client.wait(upid) == "OK"

    lines = progress(client, upid)
    assert len(early) < len(lines)
    assert lines[0] == "transferred 0.0 B of 2.0 GiB (0.00%)"
    assert lines[1] == "transferred 20.5 MiB of 2.0 GiB (1.00%)"
    assert lines[-1] == "transferred 2.0 GiB of 2.0 GiB (100.00%)"
    percents = [float(line.rpartition("(")[2].rstrip("%)")) for line in lines]
    assert all(one < other for one, other in pairwise(percents))


def test_a_copy_takes_its_time_by_the_gibibyte(golden: RunningLab) -> None:
    client = Client(golden)
    golden.set_time(1.0, qmclone=0.0, copygib=0.3)
    began = time.monotonic()
    assert client.task("POST", f"{NODE}/qemu/900/clone", newid="950", full="1") == "OK"
    full = time.monotonic() - began

    golden.set_time(copygib=600)
    linked = client.task("POST", f"{NODE}/qemu/900/clone", newid="951")

    assert full >= 0.6
    assert linked == "OK"


def test_an_import_tells_how_far_it_is(golden: RunningLab) -> None:
    client = Client(golden)
    golden.set_time(1.0, qmconfig=0.0, copygib=0.2)
    disk = "local-lvm:0,import-from=local:import/base.qcow2"

    upid = client.call("POST", f"{NODE}/qemu/901/config", scsi1=disk)

    assert client.wait(upid) == "OK"
    assert progress(client, upid)[-1] == "transferred 2.0 GiB of 2.0 GiB (100.00%)"
    assert len(progress(client, upid)) == 9
    assert "vm-901-disk-0,size=2G" in client.get(f"{NODE}/qemu/901/config")["scsi1"]


def test_an_import_that_is_stopped_leaves_nothing(golden: RunningLab) -> None:
    client = Client(golden)
    golden.set_time(1.0, qmconfig=0.0, copygib=30)
    before = volumes(client, "local-lvm"), client.get(f"{NODE}/qemu/901/config")
    disk = "local-lvm:0,import-from=local:import/base.qcow2"
    upid = client.call("POST", f"{NODE}/qemu/901/config", scsi1=disk)
    eventually(lambda: progress(client, upid))

    client.call("DELETE", f"{NODE}/tasks/{upid}")

    assert client.wait(upid) == "received interrupt"
    assert (volumes(client, "local-lvm"), client.get(f"{NODE}/qemu/901/config")) == before


def test_a_clone_that_is_stopped_leaves_nothing(golden: RunningLab) -> None:
    client = Client(golden)
    golden.set_time(1.0, qmclone=60)
    before = golden.snapshot()["guests"], volumes(client)
    upid = begin_clone(client, 900, 960, full="1")
    eventually(lambda: len(progress(client, upid)) > 1)

    client.call("DELETE", f"{NODE}/tasks/{upid}")

    assert client.wait(upid) == "received interrupt"
    assert (golden.snapshot()["guests"], volumes(client)) == before


def test_snippets_are_listed_and_named_by_a_machine(golden: RunningLab) -> None:
    client = Client(golden)

    rows = client.get(f"{NODE}/storage/local/content", content="snippets")

    assert [(row["volid"], row["content"], row["format"]) for row in rows] == [
        ("local:snippets/net.yaml", "snippets", "snippet"),
        ("local:snippets/user.yaml", "snippets", "snippet"),
    ]
    client.call("PUT", f"{NODE}/qemu/901/config", cicustom="user=local:snippets/user.yaml")
    assert client.task("POST", f"{NODE}/qemu/901/status/start") == "OK"


def test_an_image_takes_what_a_cidata_iso_says(golden: RunningLab, tmp_path: Path) -> None:
    client = Client(golden)
    documents = {"user-data": "#cloud-config\n", "meta-data": "local-hostname: seeded\n"}
    make_iso(tmp_path / "seed.iso", "cidata", {**documents, "network-config": NETWORK})
    assert client.upload("pve1", "local", tmp_path / "seed.iso") == "OK"
    client.call("PUT", f"{NODE}/qemu/901/config", ide2="local:iso/seed.iso,media=cdrom", agent="1")

    assert client.task("POST", f"{NODE}/qemu/901/status/start") == "OK"

    assert addresses(golden, 901) == ["10.77.1.2/16"]
    assert hostname(client, 901) == "seeded"


def test_an_image_takes_what_snippets_say(golden: RunningLab) -> None:
    client = Client(golden)
    named = "user=local:snippets/user.yaml,network=local:snippets/net.yaml"
    client.call("PUT", f"{NODE}/qemu/901/config", cicustom=named, agent="1")

    assert client.task("POST", f"{NODE}/qemu/901/status/start") == "OK"

    assert addresses(golden, 901) == ["10.77.1.2/16"]
    assert hostname(client, 901) == "told"


def test_an_image_takes_its_options_where_nothing_else_is_said(golden: RunningLab) -> None:
    client = Client(golden)
    client.call("PUT", f"{NODE}/qemu/901/config", agent="1")

    assert client.task("POST", f"{NODE}/qemu/901/status/start") == "OK"

    assert addresses(golden, 901) == ["10.77.0.7/16"]
    assert hostname(client, 901) == "plain"


def test_a_machine_is_moved_from_pool_to_pool_only_when_asked(golden: RunningLab) -> None:
    client = Client(golden)
    client.call("PUT", "/pools", poolid="old", vms="900")

    refused = client.raw("PUT", "/pools", data={"poolid": "new", "vms": "900"})
    client.call("PUT", "/pools", poolid="new", vms="900", **{"allow-move": "1"})

    assert refused.reason == "update pools failed: VM 900 belongs already to pool 'old'"
    assert golden.snapshot()["pools"] == {"new": [900], "old": []}
    client.call("PUT", "/pools", poolid="new", vms="900", delete="1")
    assert golden.snapshot()["pools"] == {"new": [], "old": []}
