"""Guests move between nodes with their disks, or stay with a reason (after the public sources)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

SEED = """
nodes:
  - {name: alpha, bridges: [{name: vmbr0, cidr: 10.60.0.1/16}, {name: vmbr7}]}
  - {name: beta, bridges: [{name: vmbr0, cidr: 10.60.0.1/16}]}
  - {name: gamma, bridges: [{name: vmbr0, cidr: 10.60.0.1/16}]}
storages:
  - {name: local, content: [iso, vztmpl, images, rootdir, import], path: /var/lib/vz}
  - {name: thin, type: lvmthin}
  - {name: fast, type: lvmthin, nodes: [alpha, beta]}
  - {name: nfs, content: [images, rootdir, iso], shared: true}
  - {name: isos, content: [iso]}
files:
  - {storage: local, name: tool.iso}
  - {storage: nfs, name: shared.iso}
  - {storage: local, content: vztmpl, name: debian-13-standard_13.1-1_amd64.tar.zst, size: 100}
"""
TEMPLATE = "local:vztmpl/debian-13-standard_13.1-1_amd64.tar.zst"


@pytest.fixture(scope="module")
def cluster(lab_factory: LabFactory) -> RunningLab:
    return lab_factory(seed=SEED)


@pytest.fixture
def client(cluster: RunningLab) -> Iterator[Client]:
    yield Client(cluster)
    cluster.clear_faults()


def create(client: Client, vmid: int, node: str = "alpha", **options: object) -> str:
    assert client.task("POST", f"/nodes/{node}/qemu", vmid=vmid, **options) == "OK"
    return f"/nodes/{node}/qemu/{vmid}"


def container(client: Client, vmid: int, rootfs: str = "thin:1", **options: object) -> str:
    made = {"vmid": vmid, "hostname": f"ct{vmid}", "ostemplate": TEMPLATE, "rootfs": rootfs}
    assert client.task("POST", "/nodes/alpha/lxc", **{**made, **options}) == "OK"
    return f"/nodes/alpha/lxc/{vmid}"


def migrate(client: Client, path: str, **options: object) -> tuple[str, list[str]]:
    """How the task ended, and its log without the times."""
    upid = client.call("POST", f"{path}/migrate", **options)
    ended = client.wait(upid)
    rows = client.get(f"/nodes/{upid.split(':')[1]}/tasks/{upid}/log", limit=0)
    return ended, [row["t"][20:] if row["t"][:2] == "20" else row["t"] for row in rows]


def volumes(client: Client, node: str, storage: str, vmid: int) -> list[str]:
    rows = client.get(f"/nodes/{node}/storage/{storage}/content", vmid=vmid)
    return sorted(row["volid"] for row in rows)


def config(client: Client, path: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(f"{path}/config")
    return answer


def refusal(client: Client, path: str, **options: object) -> tuple[int, str]:
    answer = client.raw("POST", f"{path}/migrate", data=options)
    text = answer.json().get("errors") or answer.reason
    return answer.status_code, str(text)


def test_a_stopped_machine_takes_its_disks_along(client: Client) -> None:
    path = create(client, 100, scsi0="thin:4", virtio3="local:2,format=qcow2", name="mover")

    ended, log = migrate(client, path, target="beta")

    assert ended == "OK"
    assert log[0] == "starting migration of VM 100 to node 'beta' (192.0.2.12)"
    assert "copying local disk images" in log
    moved = config(client, "/nodes/beta/qemu/100")
    assert (moved["scsi0"], moved["name"]) == ("thin:vm-100-disk-0,size=4G", "mover")
    assert "lock" not in moved
    assert volumes(client, "beta", "thin", 100) == ["thin:vm-100-disk-0"]
    assert volumes(client, "beta", "local", 100) == ["local:100/vm-100-disk-0.qcow2"]
    assert volumes(client, "alpha", "thin", 100) == volumes(client, "alpha", "local", 100) == []
    assert client.raw("GET", f"{path}/config").status_code == 500


def test_a_name_that_is_taken_on_the_target_gives_the_next_free_one(client: Client) -> None:
    path = create(client, 102, scsi0="thin:1")
    left_over = client.lab.state / "storage" / "beta" / "local" / "images" / "102"
    left_over.mkdir(parents=True)
    (left_over / "vm-102-disk-0.raw").write_bytes(b"left over")

    ended, _ = migrate(client, path, target="beta", targetstorage="local")

    assert ended == "OK"
    assert config(client, "/nodes/beta/qemu/102")["scsi0"].startswith("local:102/vm-102-disk-1.raw")


def test_a_shared_disk_stays_where_it_is(client: Client) -> None:
    path = create(client, 103, scsi0="nfs:3", ide2="nfs:iso/shared.iso,media=cdrom")

    ended, log = migrate(client, path, target="gamma")

    assert ended == "OK"
    assert not any("copying" in line for line in log)
    assert config(client, "/nodes/gamma/qemu/103")["scsi0"] == "nfs:103/vm-103-disk-0.raw,size=3G"


def test_local_media_keep_a_machine_at_home(client: Client) -> None:
    path = create(client, 104, scsi0="nfs:1", ide2="local:iso/tool.iso,media=cdrom")

    ended, log = migrate(client, path, target="beta")

    assert ended == "migration aborted"
    assert "can't migrate local disk 'local:iso/tool.iso': local cdrom image" in log
    problem = "Problem found while scanning volumes - can't migrate VM - check log"
    assert f"ERROR: {problem}" in log
    assert "lock" not in config(client, path)


def test_a_cloud_init_drive_on_a_local_storage_is_copied_under_its_name(client: Client) -> None:
    path = create(client, 105, scsi0="nfs:1", ide0="thin:cloudinit", ciuser="ops")

    ended, log = migrate(client, path, target="beta")

    assert ended == "OK"
    generated = "found generated disk 'thin:vm-105-cloudinit' (in current VM config)"
    assert generated in log
    assert volumes(client, "beta", "thin", 105) == ["thin:vm-105-cloudinit"]


def test_a_running_machine_moves_only_online_and_with_its_local_disks_on_demand(
    client: Client,
) -> None:
    path = create(client, 106, scsi0="thin:1", net0="virtio,bridge=vmbr0")
    assert client.task("POST", f"{path}/status/start") == "OK"

    assert refusal(client, path, target="beta") == (
        500,
        "can't migrate running VM without --online",
    )
    ended, log = migrate(client, path, target="beta", online=1)
    option = "can't live migrate attached local disks without with-local-disks option"
    assert (ended, f"can't migrate local disk 'thin:vm-106-disk-0': {option}" in log) == (
        "migration aborted",
        True,
    )
    ended, log = migrate(client, path, target="beta", online=1, **{"with-local-disks": 1})

    assert ended == "OK"
    assert "starting online/live migration on unix:/run/qemu-server/106.migrate" in log
    assert client.get("/nodes/beta/qemu/106/status/current")["status"] == "running"
    assert volumes(client, "alpha", "thin", 106) == []


def test_a_live_disk_may_change_its_format_on_the_way_a_copied_one_may_not(client: Client) -> None:
    path = create(client, 107, scsi0="local:1,format=qcow2")
    ended, log = migrate(client, path, target="beta", targetstorage="local:thin")
    assert ended == "migration aborted"
    assert any("cannot migrate from storage type 'dir' to 'lvmthin'" in line for line in log)
    assert client.task("POST", f"{path}/status/start") == "OK"

    ended, _ = migrate(
        client, path, target="beta", online=1, targetstorage="thin", **{"with-local-disks": 1}
    )

    assert ended == "OK"
    assert config(client, "/nodes/beta/qemu/107")["scsi0"] == "thin:vm-107-disk-0,size=1G"


def test_a_bridge_that_the_target_lacks_leaves_the_running_machine_in_place(
    client: Client,
) -> None:
    path = create(client, 108, scsi0="nfs:1", net0="virtio,bridge=vmbr7")
    assert client.task("POST", f"{path}/status/start") == "OK"

    ended, log = migrate(client, path, target="beta", online=1)

    assert ended == "migration problems"
    assert "migrate_cancel" in log
    assert client.get(f"{path}/status/current")["status"] == "running"


def test_snapshots_travel_in_qcow2_files_and_hold_back_thin_volumes(client: Client) -> None:
    files = create(client, 109, scsi0="local:1,format=qcow2")
    thin = create(client, 110, scsi0="thin:1")
    for path in (files, thin):
        assert client.task("POST", f"{path}/snapshot", snapname="before") == "OK"

    assert migrate(client, files, target="beta")[0] == "OK"
    ended, log = migrate(client, thin, target="beta")

    assert client.task("POST", "/nodes/beta/qemu/109/snapshot/before/rollback") == "OK"
    assert ended == "migration aborted"
    assert "can't migrate local disk 'thin:vm-110-disk-0': non-migratable snapshot exists" in log


def test_a_local_device_is_named_when_it_stands_in_the_way(client: Client) -> None:
    path = create(client, 111, scsi0="nfs:1", serial0="/dev/ttyS0", serial1="socket")

    assert client.get(f"{path}/migrate")["local_resources"] == ["serial0"]
    ended, log = migrate(client, path, target="beta")

    assert ended == "migration aborted"
    assert log[-2].endswith("can't migrate VM which uses local devices: serial0")


def test_the_preconditions_tell_nodes_disks_and_missing_storages(client: Client) -> None:
    path = create(client, 112, scsi0="fast:2", scsi1="nfs:1", ide2="local:iso/tool.iso,media=cdrom")

    found = client.get(f"{path}/migrate", target="beta")

    assert found["running"] == 0
    assert found["allowed_nodes"] == ["beta"]
    assert found["not_allowed_nodes"]["gamma"] == {"unavailable_storages": ["fast"]}
    local = {row["volid"]: (row["cdrom"], row.get("size")) for row in found["local_disks"]}
    assert local["fast:vm-112-disk-0"] == (0, 2 << 30)
    assert local["local:iso/tool.iso"][0] == 1
    assert "nfs:112/vm-112-disk-0.raw" not in local


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"target": "alpha"}, (400, "{'target': 'target is local node.'}")),
        ({"target": "omega"}, (500, "no such cluster node 'omega'")),
        ({"target": "gamma"}, (500, "storage 'fast' is not available on node 'gamma'")),
        (
            {"target": "beta", "targetstorage": "isos"},
            (500, "storage 'isos' does not support vm images"),
        ),
        ({"target": "beta", "targetstorage": "nope"}, (500, "storage 'nope' does not exist")),
        ({"target": "beta", "force": 1}, (400, "{'force': 'Only root may use this option.'}")),
    ],
)
def test_what_can_be_refused_is_refused_before_a_task_begins(
    client: Client, options: dict[str, object], answer: tuple[int, str]
) -> None:
    path = "/nodes/alpha/qemu/113"
    if client.raw("GET", f"{path}/config").status_code != 200:
        create(client, 113, scsi0="fast:1")

    assert refusal(client, path, **options) == answer


def test_an_offline_target_cannot_be_reached(client: Client) -> None:
    path = create(client, 114, scsi0="nfs:1")
    client.lab.node_offline("beta")

    ended, log = migrate(client, path, target="beta")

    assert ended == "migration aborted"
    assert "ssh: connect to host 192.0.2.12 port 22: No route to host" in log


def test_a_stopped_migration_leaves_no_lock_and_no_copy(client: Client) -> None:
    path = create(client, 115, scsi0="thin:1")
    client.lab.set_time(scale=1, qmigrate=600)
    upid = client.call("POST", f"{path}/migrate", target="beta")

    client.call("DELETE", f"/nodes/alpha/tasks/{upid}")
    client.lab.set_time(scale=0, qmigrate=12)

    assert client.wait(upid) == "received interrupt"
    assert "lock" not in config(client, path)
    assert volumes(client, "beta", "thin", 115) == []


def test_a_stopped_container_takes_its_volumes_along(client: Client) -> None:
    path = container(client, 200, mp0="nfs:1,mp=/data")

    assert client.get(f"{path}/migrate")["allowed-nodes"] == ["beta", "gamma"]
    ended, log = migrate(client, path, target="gamma")

    assert ended == "OK"
    shared = "volume 'nfs:200/vm-200-disk-0.raw' is on shared storage 'nfs'"
    assert shared in log
    assert config(client, "/nodes/gamma/lxc/200")["rootfs"] == "thin:vm-200-disk-0,size=1G"
    assert volumes(client, "alpha", "thin", 200) == []


def test_a_running_container_is_restarted_on_the_target(client: Client) -> None:
    path = container(client, 201, start=1)
    client.lab.settle()
    none = "can't migrate running container without --online or --restart"
    assert refusal(client, path, target="beta") == (500, none)

    online, log = migrate(client, path, target="beta", online=1)
    assert online == "migration aborted"
    assert log[-2].endswith("lxc live migration is currently not implemented")
    ended, log = migrate(client, path, target="beta", restart=1, **{"target-storage": "local"})

    assert ended == "OK"
    assert log[0] == "shutdown CT 201"
    assert "start container on target node" in log
    assert client.get("/nodes/beta/lxc/201/status/current")["status"] == "running"
    assert config(client, "/nodes/beta/lxc/201")["rootfs"].startswith("local:201/vm-201-disk-0.raw")


def test_a_container_that_cannot_go_is_started_again_where_it_was(client: Client) -> None:
    path = container(client, 202)
    assert client.task("POST", f"{path}/snapshot", snapname="before") == "OK"
    assert client.task("POST", f"{path}/status/start") == "OK"

    ended, log = migrate(client, path, target="beta", restart=1)

    assert ended == "migration aborted"
    assert "start container on source node" in log
    assert client.get(f"{path}/status/current")["status"] == "running"


def test_a_clone_for_another_node_needs_shared_storage(client: Client) -> None:
    shared = create(client, 120, scsi0="nfs:1", name="gold")
    local = create(client, 121, scsi0="thin:1")
    ct = container(client, 122, rootfs="nfs:1")

    assert client.task("POST", f"{shared}/clone", newid=123, target="gamma") == "OK"
    assert client.task("POST", f"{ct}/clone", newid=124, target="beta", hostname="twin") == "OK"
    refused = client.raw("POST", f"{local}/clone", data={"newid": 125, "target": "beta"})

    assert config(client, "/nodes/gamma/qemu/123")["scsi0"].startswith("nfs:123/vm-123-disk-0")
    assert config(client, "/nodes/beta/lxc/124")["rootfs"].startswith("nfs:124/vm-124-disk-0")
    assert refused.reason == "can't clone VM to node 'beta' (VM uses local storage)"
