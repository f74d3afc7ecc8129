"""PCI resource mappings: made, shown with what does not fit, and taken by machines that start."""

from __future__ import annotations

import pytest

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

SECRET = "11111111-2222-3333-4444-555555555555"
GPU = "id=10de:2204,iommugroup=14,node=pve1,path=0000:01:00.0"
SEED = f"""
nodes:
  - name: pve1
    pci:
      - {{path: "0000:01:00.0", id: "10de:2204", iommugroup: 14}}
      - {{path: "0000:02:00.0", id: "10de:2204", iommugroup: 15}}
  - {{name: pve2, pci: [{{path: "0000:01:00.0", id: "1002:73bf"}}]}}
default_isos: false
mappings:
  - {{id: gpu, map: ["node=pve1,path=0000:01:00.0,id=10de:2204,iommugroup=14"]}}
  - id: pair
    map:
      - node=pve1,path=0000:01:00.0,id=10de:2204,iommugroup=14
      - node=pve1,path=0000:02:00.0,id=10de:2204,iommugroup=15
  - {{id: swapped, map: ["node=pve2,path=0000:01:00.0,id=10de:2204"]}}
users:
  - userid: user@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /vms, role: PVEVMAdmin}}, {{path: /mapping/pci/pair, role: PVEAuditor}}]
  - userid: admin@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /, role: PVEAdmin}}]
"""


@pytest.fixture(scope="module")
def mapped(lab_factory: LabFactory) -> RunningLab:
    return lab_factory(seed=SEED)


@pytest.fixture
def admin(mapped: RunningLab) -> Client:
    return Client(mapped, f"PVEAPIToken=admin@pve!t={SECRET}")


@pytest.fixture
def user(mapped: RunningLab) -> Client:
    return Client(mapped, f"PVEAPIToken=user@pve!t={SECRET}")


def machine(client: Client, vmid: int, node: str = "pve1", **config: str) -> str:
    path = f"/nodes/{node}/qemu"
    assert client.task("POST", path, vmid=str(vmid), machine="q35", memory="64", **config) == "OK"
    return f"{path}/{vmid}"


def checks(client: Client, node: str) -> dict[str, list[tuple[str, str]]]:
    rows = client.get("/cluster/mapping/pci", **{"check-node": node})
    return {
        row["id"]: [(one["severity"], one["message"].strip()) for one in row["checks"]]
        for row in rows
    }


def test_a_mapping_is_made_read_changed_and_removed(admin: Client) -> None:
    admin.call("POST", "/cluster/mapping/pci", id="fresh", map=[GPU], description="first")

    row = next(r for r in admin.get("/cluster/mapping/pci") if r["id"] == "fresh")
    assert (row["map"], row["description"], row["type"]) == ([GPU], "first", "pci")
    assert "checks" not in row

    admin.call("PUT", "/cluster/mapping/pci/fresh", mdev="1", delete="description")
    changed = admin.get("/cluster/mapping/pci/fresh")
    assert (changed["mdev"], changed["map"], changed.get("description")) == (1, [GPU], None)
    assert changed["digest"] != row["digest"]

    admin.call("DELETE", "/cluster/mapping/pci/fresh")
    gone = admin.raw("GET", "/cluster/mapping/pci/fresh")
    assert (gone.status_code, gone.reason) == (500, "mapping 'fresh' not found")


def test_what_is_wrong_with_a_mapping_is_refused(admin: Client) -> None:
    bad = admin.raw("POST", "/cluster/mapping/pci", data={"id": "x1", "map": ["node=pve1,id=zz"]})
    twice = admin.raw("POST", "/cluster/mapping/pci", data={"id": "gpu", "map": [GPU]})
    lost = admin.raw("PUT", "/cluster/mapping/pci/none", data={"map": [GPU]})

    assert bad.status_code == 400
    assert "map[0].path: property is missing" in bad.json()["errors"]["map[0]"]
    assert twice.reason == "create hardware mapping failed: pci ID 'gpu' already defined"
    assert lost.reason == "update hardware mapping failed: pci ID 'none' does not exist"


def test_a_change_on_top_of_another_ones_is_refused(admin: Client) -> None:
    answer = admin.raw("PUT", "/cluster/mapping/pci/gpu", data={"mdev": "1", "digest": "0" * 40})

    assert answer.status_code == 500
    assert "detected modified configuration" in answer.reason


def test_a_node_is_asked_whether_its_devices_are_those(admin: Client) -> None:
    assert checks(admin, "pve1")["pair"] == []
    assert checks(admin, "pve1")["swapped"] == [("warning", "No mapping for node pve1.")]
    assert checks(admin, "pve2")["swapped"] == [
        (
            "error",
            "Invalid configuration: 'id' does not match for 'swapped' (1002:73bf != 10de:2204)",
        )
    ]


def test_only_mappings_that_one_may_see_are_listed(user: Client) -> None:
    assert [row["id"] for row in user.get("/cluster/mapping/pci")] == ["pair"]
    assert user.raw("GET", "/cluster/mapping/pci/gpu").status_code == 403
    assert user.raw("POST", "/cluster/mapping/pci", data={"id": "x2", "map": [GPU]}).reason == (
        "Permission check failed (/mapping/pci, Mapping.Modify)"
    )


def test_a_machine_needs_the_right_to_use_a_mapping(user: Client) -> None:
    machine(user, 200)

    answer = user.raw("PUT", "/nodes/pve1/qemu/200/config", data={"hostpci0": "mapping=pair"})

    assert answer.reason == "Permission check failed (/mapping/pci/pair, Mapping.Use)"


def test_a_clone_needs_the_right_to_use_what_it_inherits(admin: Client, user: Client) -> None:
    path = machine(admin, 210, hostpci0="mapping=gpu")

    answer = user.raw("POST", f"{path}/clone", data={"newid": "211", "full": "1"})

    assert answer.reason == "Permission check failed (/mapping/pci/gpu, Mapping.Use)"


def test_a_mapping_that_does_not_exist_is_taken_and_hits_at_the_start(admin: Client) -> None:
    path = machine(admin, 220, hostpci0="mapping=nothing,pcie=1")

    ended = admin.task("POST", f"{path}/status/start")

    assert ended == "PCI device mapping not found for 'nothing'"


def test_a_mapping_of_another_node_hits_at_the_start(admin: Client) -> None:
    path = machine(admin, 230, node="pve2", hostpci0="mapping=gpu")

    ended = admin.task("POST", f"{path}/status/start")

    assert ended == "PCI device mapping not found for 'gpu'"


def test_hardware_that_was_changed_hits_at_the_start(admin: Client) -> None:
    path = machine(admin, 240, node="pve2", hostpci0="mapping=swapped")

    ended = admin.task("POST", f"{path}/status/start")

    assert ended.startswith("PCI device mapping invalid (hardware probably changed): 'id' does not")


def test_pci_express_needs_q35(admin: Client) -> None:
    path = machine(admin, 250, hostpci0="mapping=gpu,pcie=1")
    admin.call("PUT", f"{path}/config", delete="machine")

    assert admin.task("POST", f"{path}/status/start") == "q35 machine model is not enabled"


def test_each_device_serves_one_running_machine(admin: Client) -> None:
    first, second, third = (
        machine(admin, 260 + number, hostpci0="mapping=pair") for number in range(3)
    )
    single = machine(admin, 263, hostpci0="mapping=gpu")

    assert [admin.task("POST", f"{path}/status/start") for path in (first, second, third)] == [
        "OK",
        "OK",
        "could not find a free device for 'hostpci0'",
    ]
    taken = admin.task("POST", f"{single}/status/start")
    assert taken == "PCI device '0000:01:00.0' already in use by VMID '260'"

    assert admin.task("POST", f"{first}/status/stop") == "OK"
    assert admin.task("POST", f"{single}/status/start") == "OK"


def test_versioned_machine_types_are_told(admin: Client) -> None:
    rows = admin.get("/nodes/pve1/capabilities/qemu/machines")

    assert {"id": "pc-q35-9.2+pve1", "type": "q35", "version": "9.2+pve1"} in rows
    assert {"id": "pc-i440fx-8.1", "type": "i440fx", "version": "8.1"} in rows


def test_a_wrong_mapping_in_a_seed_file_is_named(lab_factory: LabFactory) -> None:
    with pytest.raises(RuntimeError) as refused:
        lab_factory(seed='mappings: [{id: gpu, map: ["node=pve1,path=first"]}]')

    assert "mapping gpu: " in str(refused.value.__cause__)
    assert "map.id: property is missing" in str(refused.value.__cause__)
