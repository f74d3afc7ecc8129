"""Preflight: everything that would go wrong, said at once and before anything is changed."""

from __future__ import annotations

import pytest

from blocks.proxmox.inventory import Inventory, read_inventory
from deployments.lab.testing import RunningLab
from tasks.capacity import check_inventory, next_free
from tasks.findings import Finding, PreflightFailed, error, refuse, warning
from tasks.planning import plan_findings
from tasks.preflight import find
from tasks.survey import survey
from tests.environments import Document, Place, brought_up, opened
from tests.labfixture import LabFactory

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"""
nodes:
  - {{name: pve1, cores: 4, memory_mib: 4096}}
  - {{name: pve2}}
  - {{name: pve3}}
storages:
  - {{name: local, content: [iso, vztmpl, snippets], path: /var/lib/vz}}
  - {{name: local-lvm, type: lvmthin, size_gib: 100}}
  - {{name: shared, shared: true, size_gib: 2000}}
  - {{name: small, type: lvmthin, size_gib: 2}}
  - {{name: third, nodes: [pve3]}}
users:
  - userid: low@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /, role: PVEAuditor}}]
"""


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    """A cluster with one small node and storages that take little."""
    return lab_factory(seed=SEED)


def findings(place: Place, document: Document | None = None) -> list[Finding]:
    """What plan and preflight of ``up`` find; reading must not have changed anything."""
    manifest = place.write(document)
    before = place.lab.snapshot()
    place.lab.forget_requests()
    with opened(manifest) as here:
        seen = survey(here.client, here.environment)
        found = [
            *plan_findings(seen),
            *find(here.client, here.connection, seen.building(), seen.inventory),
        ]
    assert place.lab.writes() == []
    assert place.lab.snapshot() == before
    return list(dict.fromkeys(found))


def texts(place: Place, document: Document | None = None) -> list[str]:
    """The findings as an operator reads them."""
    return [str(finding) for finding in findings(place, document)]


def node(document: Document, label: str = "n1") -> Document:
    """The part of a document about one node."""
    found: Document = document["spec"]["hypervisor"]["nodes"][label]
    return found


def test_a_cluster_that_fits_has_no_findings(place: Place) -> None:
    assert texts(place, place.document(count=3, second_nic=True, ovmf=True)) == []


def test_a_node_that_is_offline(place: Place) -> None:
    place.lab.node_offline("pve1")

    assert texts(place) == [
        "n1: node pve1 is offline; bring it back, or give the guest another node"
    ]


def test_a_node_that_the_cluster_does_not_have(place: Place) -> None:
    document = place.document()
    node(document)["proxmox"]["node_name"] = "pve11"

    assert texts(place, document) == [
        "n1: the cluster has no node pve11; did you mean pve1? There is: pve1, pve2, pve3"
    ]


def test_a_storage_that_the_node_does_not_have(place: Place) -> None:
    assert texts(place, place.document(storages=("third",))) == [
        "n1: node pve1 has no storage third for disks; there is: local, local-lvm, shared, small"
    ]


def test_a_storage_that_does_not_take_what_is_asked_of_it(place: Place) -> None:
    document = place.document(storages=("local",))
    document["spec"]["hypervisor"]["iso"]["kickstart_storage"] = "shared"

    assert texts(place, document) == [
        "n1: storage local on pve1 does not take content 'images', needed for disks; it takes "
        "iso, snippets, vztmpl; enable it under Datacenter, Storage, or use local-lvm or shared "
        "or small",
        "n1: storage shared on pve1 does not take content 'iso', needed for the seed ISO; it "
        "takes images, rootdir; enable it under Datacenter, Storage, or use local",
    ]


def test_a_storage_that_is_full(place: Place) -> None:
    place.lab.storage_full("local")

    (text,) = texts(place)
    assert text.startswith("n1: storage local on pve1 is full: 0")
    assert "the seed ISO needs 16" in text


def test_a_storage_that_is_not_available(place: Place) -> None:
    with opened(place.write()) as here:
        inventory = read_inventory(here.client)
        rows = tuple(
            row.model_copy(update={"active": row.storage != "local-lvm"})
            for row in inventory.storages
        )
        down = inventory.model_copy(update={"storages": rows})
        found = check_inventory(here.environment.guests, down)

    assert [str(finding) for finding in found] == [
        "n1: storage local-lvm on pve1 is not available; "
        "look at it in the Proxmox VE page, under Datacenter, Storage"
    ]


def test_a_disk_that_is_larger_than_its_storage(place: Place) -> None:
    first, *_ = texts(place, place.document(storages=("small",)))

    assert first == (
        "n1: disk scsi0 of 4 GiB is larger than storage small (2 GiB); "
        "make it smaller, or use another storage"
    )


def test_disks_that_promise_more_than_a_thin_storage_has_are_a_warning(place: Place) -> None:
    document = place.document(count=1, storages=("local-lvm", "local-lvm"))
    for disk in node(document)["disks"]:
        disk["size"] = "60G"

    (found,) = findings(place, document)
    assert found.severity == "warning"
    assert "add up to 120 GiB" in found.problem


def test_an_iso_that_is_not_there(place: Place) -> None:
    document = place.document()
    document["spec"]["hypervisor"]["iso"]["image"] = "Rocky-9.5-x86_64-dvd.iso"

    (text,) = texts(place, document)
    assert text.startswith(
        "n1: node pve1 has no local:iso/Rocky-9.5-x86_64-dvd.iso; upload it, or "
        "did you mean local:iso/Rocky-9.6-x86_64-dvd.iso?"
    )


def test_a_bridge_that_the_node_does_not_have(place: Place) -> None:
    document = place.document()
    node(document)["nics"][0]["bridge"] = "vmbr7"

    (text,) = texts(place, document)
    assert text.startswith("n1: node pve1 has no bridge vmbr7; the VM would not start with it")
    assert text.endswith("There is: vmbr0, vmbr1")


def test_an_id_that_somebody_else_has(place: Place) -> None:
    place.strange(name="payroll")

    (text,) = texts(place)
    assert f"n1: {place.vmid()} is taken by virtual machine 'payroll' on pve1" in text
    assert f"such as {place.vmid() + 1}" in text


def test_a_name_that_somebody_else_has(place: Place) -> None:
    place.strange(2, name=place.name(1))

    assert texts(place) == [
        f"n1: the name {place.name(1)} is taken by VM {place.vmid(2)} on pve2; "
        "rename one of them; where that is the same guest under its former vm_id, set "
        f"vm_id back to {place.vmid(2)}"
    ]


def test_a_mac_address_that_somebody_else_has(place: Place) -> None:
    place.strange(2, net0="virtio=02:00:00:00:AA:01,bridge=vmbr0")
    document = place.document()
    node(document)["nics"][0]["mac"] = "02:00:00:00:aa:01"

    (text,) = texts(place, document)
    assert "MAC address 02:00:00:00:AA:01 of net0 is taken by VM" in text
    assert f"{place.vmid(2)} (stranger-{place.number}) on pve2" in text


def test_an_address_that_is_configured_for_another_guest(place: Place) -> None:
    place.strange(2, ipconfig0=f"ip={place.address()}/24")

    (text,) = texts(place)
    assert f"n1: address {place.address()} is configured for VM {place.vmid(2)}" in text


def test_an_address_at_which_something_answers(place: Place) -> None:
    brought_up(place)
    document = place.document(count=2)
    document["metadata"]["name"] = "impostor"
    nodes = document["spec"]["hypervisor"]["nodes"]
    del nodes["n1"]
    nodes["n2"]["ips"]["public"] = place.address(1)

    (text,) = texts(place, document)
    assert text.startswith(f"n2: something answers at {place.address(1)} already: SSH-2.0-")


def test_an_old_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.lab.api.cluster.RELEASE", "7.4")

    assert texts(place) == ["Proxmox VE 7.4 is too old; 8.0 or newer is needed"]


def test_more_memory_and_processors_than_a_node_has_are_warnings(place: Place) -> None:
    document = place.document()
    node(document)["resources"] = {"memory": 8192, "cores": 8}

    found = findings(place, document)
    assert {finding.severity for finding in found} == {"warning"}
    assert [finding.problem.partition(",")[0] for finding in found] == [
        "8 virtual CPUs are asked for",
        "the new guests on pve1 want 8 GiB of memory",
    ]


def test_a_shared_disk_whose_owner_is_left_out(place: Place) -> None:
    manifest = place.write(count=2, shared=True)
    with opened(manifest, only=["n2"]) as here:
        found = plan_findings(survey(here.client, here.environment))

    assert [str(finding) for finding in found] == [
        f"n2: disk scsi1 belongs to VM {place.vmid(1)}, which does not exist; "
        "bring its owner up too: leave --only out, or add the owner to it"
    ]


def test_what_cannot_be_changed_in_place(place: Place) -> None:
    manifest = brought_up(place)
    document = place.document(ovmf=True)
    place.write(document)
    with opened(manifest) as here:
        (found,) = plan_findings(survey(here.client, here.environment))

    assert found.guest == "n1"
    assert "only making the guest anew would do it" in found.problem
    assert found.remedy.startswith("set it back in the manifest")


def test_a_token_that_may_only_look(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = place.lab.connection
    monkeypatch.setenv("PROXMOX_ENDPOINT", place.lab.endpoint)
    monkeypatch.setenv("PROXMOX_TOKEN_ID", "low@pve!t")
    monkeypatch.setenv("PROXMOX_TOKEN_SECRET", SECRET)
    monkeypatch.setenv("PROXMOX_CA_FILE", connection["ca_file"])
    monkeypatch.setenv("PROXMOX_GUEST_PROXY", connection["guest_proxy"])

    found = texts(place)

    assert found[:-1] == [
        "low@pve!t lacks SDN.Use on /sdn/zones/localnetwork/vmbr0",
        "low@pve!t lacks Datastore.Allocate, Datastore.AllocateTemplate on /storage/local",
        "low@pve!t lacks Datastore.AllocateSpace on /storage/local-lvm",
    ]
    assert found[-1].startswith(
        "low@pve!t lacks VM.Allocate, VM.Config.CDROM, VM.Config.CPU, VM.Config.Disk, "
        "VM.Config.HWType, VM.Config.Memory, VM.Config.Network, VM.Config.Options, VM.PowerMgmt "
        f"on /vms/{place.vmid()}; on a node, as root: pveum role add Proxflow --privs '"
    )
    assert "pveum acl modify / --tokens 'low@pve!t' --roles Proxflow" in found[-1]


def test_everything_that_is_wrong_is_said_at_once(place: Place) -> None:
    place.strange(2, name=place.name(1), net0="virtio=02:00:00:00:BB:01,bridge=vmbr0")
    place.strange(3, name="payroll")
    document = place.document(count=6, storages=("local-lvm",))
    node(document, "n1")["nics"][0] |= {"bridge": "vmbr7", "mac": "02:00:00:00:bb:01"}
    node(document, "n2")["proxmox"]["vm_id"] = place.vmid(12)
    node(document, "n2")["iso"] = {"image": "none.iso"}
    node(document, "n4")["proxmox"]["node_name"] = "pve9"
    node(document, "n5")["disks"][0]["storage"] = "thrid"
    node(document, "n6")["disks"][0]["storage"] = "local"

    found = findings(place, document)

    errors = {(f.guest, f.problem.split(";")[0]) for f in found if f.severity == "error"}
    expected = {
        ("n1", f"the name {place.name(1)} is taken by VM {place.vmid(2)} on pve2"),
        ("n1", "node pve1 has no bridge vmbr7"),
        ("n2", "node pve2 has no local:iso/none.iso"),
        ("n4", "the cluster has no node pve9"),
        ("n5", "node pve2 has no storage thrid for disks"),
    }
    assert expected <= errors
    assert any(f.guest == "n1" and "MAC address 02:00:00:00:BB:01" in f.problem for f in found)
    assert any(f.guest == "n3" and "'payroll'" in f.problem for f in found)
    assert any(f.guest == "n6" and "does not take content 'images'" in f.problem for f in found)


def test_nothing_to_create_needs_no_reading(place: Place) -> None:
    with opened(place.write()) as here:
        nothing = Inventory(nodes=(), storages=(), guests=(), pools=frozenset())
        place.lab.forget_requests()
        assert find(here.client, here.connection, (), nothing) == ()
    assert place.lab.requests() == []


def test_errors_forbid_to_begin_and_warnings_do_not() -> None:
    problem, remark = error("no room", "free some", guest="n1"), warning("little memory")

    assert refuse([remark]) == (remark,)
    with pytest.raises(PreflightFailed) as refused:
        refuse([remark, problem])

    assert str(refused.value) == "n1: no room; free some"
    assert refused.value.findings == (remark, problem)


def test_the_next_free_id_is_the_first_that_nobody_has() -> None:
    assert next_free(100, {100, 101, 103}) == 102
    assert next_free(100, set()) == 100
