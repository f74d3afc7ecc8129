"""Privileges combine as on a real server: users, tokens, paths, propagation, pools."""

from __future__ import annotations

import pytest

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"""
pools: [web]
default_isos: false
guests:
  - {{vmid: 100, node: pve1, pool: web, config: {{name: mine, scsi0: "local:1"}}}}
  - {{vmid: 101, node: pve2, config: {{name: other, scsi0: "local:1"}}}}
users:
  - userid: ops@pve
    password: ops-password
    tokens:
      - {{name: full, secret: {SECRET}, privsep: false}}
      - {{name: split, secret: {SECRET}}}
    acl:
      - {{path: /vms, role: PVEVMAdmin}}
      - {{path: /vms/101, role: PVEAuditor}}
      - {{path: /, role: PVEVMAdmin, token: split}}
      - {{path: /storage, role: PVEDatastoreAdmin, token: split}}
      - {{path: /nodes, role: PVEAuditor, propagate: false}}
  - userid: pooled@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /pool/web, role: PVEVMUser}}]
"""


@pytest.fixture(scope="module")
def rights_lab(lab_factory: LabFactory) -> RunningLab:
    return lab_factory(seed=SEED)


def as_token(lab: RunningLab, token: str) -> Client:
    return Client(lab, f"PVEAPIToken={token}={SECRET}")


def permissions(lab: RunningLab, token: str, path: str) -> set[str]:
    return set(as_token(lab, token).get("/access/permissions", path=path)[path])


def test_a_deeper_entry_replaces_the_one_above_it(rights_lab: RunningLab) -> None:
    assert "VM.Allocate" in permissions(rights_lab, "ops@pve!full", "/vms/100")
    assert "VM.Allocate" not in permissions(rights_lab, "ops@pve!full", "/vms/101")


def test_an_entry_without_propagation_counts_on_its_own_path_only(rights_lab: RunningLab) -> None:
    assert "Sys.Audit" in permissions(rights_lab, "ops@pve!full", "/nodes")
    assert permissions(rights_lab, "ops@pve!full", "/nodes/pve1") == set()


def test_a_separated_token_has_what_both_it_and_its_user_have(rights_lab: RunningLab) -> None:
    assert "VM.Allocate" in permissions(rights_lab, "ops@pve!split", "/vms/100")
    assert "VM.Allocate" not in permissions(rights_lab, "ops@pve!split", "/vms/101")
    assert permissions(rights_lab, "ops@pve!split", "/storage/local") == set()


def test_a_pool_lends_its_rights_to_its_members_and_lists_are_cut_silently(
    rights_lab: RunningLab,
) -> None:
    client = as_token(rights_lab, "pooled@pve!t")

    rows = client.get("/cluster/resources", type="vm")

    assert [row["vmid"] for row in rows] == [100]
    refused = client.raw("GET", "/nodes/pve2/qemu/101/config")
    assert (refused.status_code, refused.reason) == (
        403,
        "Permission check failed (/vms/101, VM.Audit)",
    )


def test_the_access_control_list_takes_audit_and_tells_of_every_entry(
    rights_lab: RunningLab,
) -> None:
    entry = {"path": "/pool/web", "ugid": "pooled@pve", "type": "user", "roleid": "PVEVMUser"}

    assert entry | {"propagate": 1} in Client(rights_lab).get("/access/acl")
    assert as_token(rights_lab, "ops@pve!full").get("/access/acl") == []


def test_a_token_sees_its_own_tasks_on_the_node_alone(rights_lab: RunningLab) -> None:
    path = "/nodes/pve1/qemu/100/config"
    client = as_token(rights_lab, "ops@pve!full")
    mine = client.call("POST", path, name="renamed")
    Client(rights_lab).task("POST", path, name="of-another")

    rows = client.get("/nodes/pve1/tasks", vmid=100, source="all")

    assert [row["upid"] for row in rows] == [mine]
    assert as_token(rights_lab, "ops@pve!split").get("/nodes/pve1/tasks", source="all") == []
    assert client.get("/cluster/tasks") == []


def test_changing_an_option_names_the_missing_privilege(rights_lab: RunningLab) -> None:
    client = as_token(rights_lab, "pooled@pve!t")

    refused = client.raw("PUT", "/nodes/pve1/qemu/100/config", data={"cores": 2})

    assert refused.status_code == 403
    assert refused.reason == "Permission check failed (/vms/100, VM.Config.CPU)"


def test_a_new_disk_needs_space_on_its_storage(rights_lab: RunningLab) -> None:
    client = as_token(rights_lab, "ops@pve!full")

    refused = client.raw("PUT", "/nodes/pve1/qemu/100/config", data={"scsi1": "local:1"})

    assert "Datastore.AllocateSpace" in refused.reason


def test_a_ticket_needs_its_csrf_token_for_writes_and_expires(rights_lab: RunningLab) -> None:
    client = as_token(rights_lab, "ops@pve!full")
    login = client.call("POST", "/access/ticket", username="ops@pve", password="ops-password")
    cookie = {"Cookie": f"PVEAuthCookie={login['ticket']}", "Authorization": ""}
    with_csrf = {**cookie, "CSRFPreventionToken": login["CSRFPreventionToken"]}

    assert client.raw("GET", "/version", headers=cookie).status_code == 200
    path = "/nodes/pve1/qemu/100/config"
    assert client.raw("PUT", path, data={"cores": 2}, headers=cookie).status_code == 401
    assert client.raw("PUT", path, data={"cores": 2}, headers=with_csrf).status_code == 200
    rights_lab.control("POST", "ticket-seconds", {"seconds": 0})
    assert client.raw("GET", "/version", headers=cookie).status_code == 401
