"""Preflight of templates: machines, processors, PCI devices, EFI and TPM, and privileges."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from blocks.manifest.guest import CloneSource, Disk, Firmware, Guest, ImageSource, PciDevice
from blocks.manifest.recipe import TEMPLATE, Alias
from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection, lab_connection
from blocks.proxmox.inventory import Inventory, read_inventory
from blocks.units import GIB
from deployments.lab.testing import RunningLab
from tasks.findings import Finding
from tasks.template.preflight import check_template
from tasks.template.preflight_places import place_findings
from tasks.template.preflight_scope import scope
from tests.labfixture import LabFactory
from tests.tasks.template.machines import ALL, from_image
from tests.templates import Golden
from tests.webserver import served

SECRET = "11111111-2222-3333-4444-555555555555"
GPU = "path=0000:01:00.0,id=10de:2204,iommugroup=14"
SEED = f"""
default_isos: false
nodes:
  - {{name: pve1, pci: [{{path: "0000:01:00.0", id: "10de:2204", iommugroup: 14}}]}}
  - {{name: pve2, pci: [{{path: "0000:01:00.0", id: "1002:73bf"}}]}}
  - {{name: pve3}}
pools: [web]
mappings:
  - {{id: gpu, map: ["node=pve1,{GPU}"]}}
  - {{id: stale, map: ["node=pve1,path=0000:09:00.0,id=10de:2204"]}}
  - {{id: away, map: ["node=pve2,path=0000:01:00.0,id=1002:73bf"]}}
users:
  - userid: low@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /, role: PVEAuditor}}]
  - userid: vm@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /, role: PVEAdmin}}]
  - userid: pooled@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /, role: PVEAuditor}}, {{path: /pool/web, role: PVEVMAdmin}}]
"""


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    """A cluster whose nodes have a graphics card, and users with few rights."""
    return lab_factory(seed=SEED)


def findings(
    golden: Golden,
    template: Guest,
    *clones: Guest,
    stages: frozenset[str] = ALL,
    token: str | None = None,
    **more: Any,
) -> list[Finding]:
    """What the preflight finds for the lab's own token, or for another one."""
    connection = lab_connection(golden.place.lab.state)
    if token is not None:
        changed = {"token_id": token, "token_secret": SecretStr(SECRET)}
        connection = connection.model_copy(update=changed)
    with Client(connection) as client:
        inventory = read_inventory(client)
        environment = golden.environment(golden.recipe(*clones, template=template, **more))
        return list(check_template(client, connection, environment, inventory, stages=stages))


def texts(golden: Golden, template: Guest, *clones: Guest, **more: Any) -> list[str]:
    """The findings as an operator reads them."""
    return [str(finding) for finding in findings(golden, template, *clones, **more)]


def q35(golden: Golden, *pci: PciDevice, **changes: Any) -> Guest:
    """The template as a q35 machine with these devices."""
    return from_image(golden, firmware=Firmware(machine="q35"), pci=pci, **changes)


def test_versions_of_machines_that_the_node_knows(golden: Golden) -> None:
    known = from_image(golden, firmware=Firmware(machine="pc-q35-9.2"))
    new = from_image(golden, firmware=Firmware(machine="pc-q35-19.2"))

    assert texts(golden, known) == []
    (text,) = texts(golden, new)
    assert text.startswith(f"{TEMPLATE}: node pve1 does not know machine pc-q35-19.2; did you mean")
    assert text.endswith("or write q35 for the newest")


def test_a_server_that_does_not_tell_its_machines_is_believed(golden: Golden) -> None:
    golden.place.lab.fault(path="/nodes/pve1/capabilities/.*", status=501)

    assert texts(golden, from_image(golden, firmware=Firmware(machine="pc-q35-19.2"))) == []


def test_processors_that_the_node_knows(golden: Golden) -> None:
    assert texts(golden, from_image(golden, cpu="EPYC-Milan,flags=+aes")) == []
    (error,) = findings(golden, from_image(golden, cpu="EPYC-Milano"))
    (custom,) = findings(golden, from_image(golden, cpu="custom-ours"))

    assert "does not know processor EPYC-Milano; did you mean EPYC-Milan?" in str(error)
    assert (error.severity, custom.severity) == ("error", "warning")


def test_a_mapping_that_fits(golden: Golden) -> None:
    assert texts(golden, q35(golden, PciDevice(mapping="gpu"))) == []


def test_a_mapping_that_does_not_exist(golden: Golden) -> None:
    (text,) = texts(golden, q35(golden, PciDevice(mapping="gpv")))

    assert "hostpci0: there is no PCI mapping gpv that this user may use" in text
    assert "did you mean gpu?" in text


def test_a_mapping_that_does_not_cover_the_node(golden: Golden) -> None:
    (text,) = texts(golden, q35(golden, PciDevice(mapping="away")))

    assert "PCI mapping away has no device on pve1; it covers pve2" in text


def test_a_mapping_whose_device_has_gone(golden: Golden) -> None:
    (text,) = texts(golden, q35(golden, PciDevice(mapping="stale")))

    assert "PCI mapping stale does not fit node pve1 any more" in text
    assert "pci device '0000:09:00.0' not found" in text


def test_a_mapping_that_is_not_for_mediated_devices(golden: Golden) -> None:
    (text,) = texts(golden, q35(golden, PciDevice(mapping="gpu", mdev="nvidia-63")))

    assert "PCI mapping gpu is not for mediated devices (nvidia-63)" in text


def test_a_pci_express_device_needs_q35(golden: Golden) -> None:
    old = from_image(golden, pci=(PciDevice(mapping="gpu"),))
    plain = from_image(golden, pci=(PciDevice(mapping="gpu", pcie=False),))

    (text,) = texts(golden, old)

    assert "hostpci0 is a PCI Express device, and machine i440fx has none" in text
    assert texts(golden, plain) == []


def test_a_raw_device_is_roots_alone_and_a_token_of_root_is_not_root(golden: Golden) -> None:
    (text,) = texts(golden, q35(golden, PciDevice(device="0000:01:00.0")))

    assert "root@pam!lab may not give 0000:01:00.0 to a guest by its address" in text
    assert "a token of root is not root; make a mapping for it" in text


def test_root_with_its_password_may_give_raw_devices(golden: Golden) -> None:
    known = golden.place.lab.connection
    token = lab_connection(golden.place.lab.state)
    root = Connection(
        endpoint=token.endpoint,
        ca_file=token.ca_file,
        guest_proxy=token.guest_proxy,
        user=known["user"],
        password=SecretStr(known["password"]),
    )
    template = q35(golden, PciDevice(device="0000:01:00.0"))
    environment = golden.environment(golden.recipe(template=template))
    with Client(root) as client:
        found = check_template(client, root, environment, read_inventory(client), stages=ALL)

    assert found == ()


def test_more_clones_than_devices(golden: Golden) -> None:
    device = PciDevice(mapping="gpu")
    template = q35(golden, device)
    clones = [golden.clone(number, pci=(device,), firmware=template.firmware) for number in (1, 2)]

    (found,) = findings(golden, template, *clones)

    assert found.severity == "warning"
    assert "2 clones on pve1 are to have gpu" in found.problem
    assert "which is 1 device there" in found.problem


@pytest.mark.parametrize("slot", ["efidisk0", "tpmstate0"])
def test_firmware_on_a_storage_that_cannot_snapshot_it(golden: Golden, slot: str) -> None:
    places = {"efidisk0": "efi_storage", "tpmstate0": "tpm_storage"}
    thin = {"bios": "ovmf", "efi_storage": "local-lvm"}
    firmware = Firmware.model_validate({**thin, places[slot]: "local"})

    (found,) = findings(golden, from_image(golden, firmware=firmware))

    assert found.severity == "warning"
    assert f"({slot}) will be a raw file on local (dir)" in found.problem
    assert "put it on local-lvm for snapshots" in found.remedy
    assert texts(golden, from_image(golden, firmware=Firmware.model_validate(thin))) == []


def as_plain_lvm(inventory: Inventory) -> Inventory:
    """The same cluster with local-lvm as a volume group that is not thin."""
    rows = tuple(
        row.model_copy(update={"plugin": "lvm"}) if row.storage == "local-lvm" else row
        for row in inventory.storages
    )
    return inventory.model_copy(update={"storages": rows})


def test_plain_lvm_has_neither_snapshots_nor_linked_clones(golden: Golden) -> None:
    firmware = Firmware(bios="ovmf", efi_storage="local-lvm", tpm_storage="local-lvm")
    template = golden.template(firmware=firmware)
    linked = golden.clone(1, source=CloneSource(template=TEMPLATE, full=False))
    environment = golden.environment(golden.recipe(linked, template=template))
    with golden.place.client() as client:
        inventory = as_plain_lvm(read_inventory(client))

    found = [str(each) for each in place_findings(scope(environment, (), ALL), inventory)]

    assert any("EFI variables (efidisk0) will be a plain volume on local-lvm" in t for t in found)
    assert any("the TPM state (tpmstate0) will be a plain volume" in text for text in found)
    assert any(
        text.startswith(f"{linked.label}: storage local-lvm cannot have linked clones")
        for text in found
    )


def test_secure_boot_with_an_image_that_no_catalogue_knows(golden: Golden) -> None:
    firmware = Firmware(bios="ovmf", efi_storage="local-lvm", secure_boot=True)
    unknown = from_image(golden, firmware=firmware)
    assert unknown.image is not None
    listed = unknown.model_copy(
        update={"source": unknown.image.model_copy(update={"name": "ubuntu2404"})}
    )

    (found,) = findings(golden, unknown)

    assert found.severity == "warning"
    assert "whether the boot loader of image tiny is signed is not known" in found.problem
    assert texts(golden, listed) == []


def test_privileges_are_told_by_path_with_the_command_that_grants_them(golden: Golden) -> None:
    template = q35(golden, PciDevice(mapping="gpu"), pool="web")
    clone = golden.clone(1)

    found = findings(golden, template, clone, token="low@pve!t", alias=Alias(pool="web"))

    problems = [each.problem for each in found]
    lacking = {problem.rpartition(" on ")[2]: problem for problem in problems}
    assert "VM.Allocate" in lacking[f"/vms/{golden.vmid}"]
    assert "VM.Clone" in lacking[f"/vms/{golden.vmid}"]
    assert "VM.PowerMgmt" in lacking[f"/vms/{clone.vmid}"]
    assert "Datastore.AllocateSpace" in lacking["/storage/local-lvm"]
    assert "Datastore.AllocateTemplate" in lacking["/storage/local"]
    assert "Mapping.Use" in lacking["/mapping/pci/gpu"]
    assert "SDN.Use" in lacking["/sdn/zones/localnetwork/vmbr0"]
    assert "Pool.Allocate" in lacking["/pool/web"]
    assert "VM.Snapshot" not in "".join(problems)
    assert sum("pveum role add Proxflow" in each.remedy for each in found) == 1


def test_each_stage_needs_its_own_privileges(golden: Golden) -> None:
    template = from_image(golden)

    (image,) = texts(golden, template, stages=frozenset({"image"}), token="low@pve!t")
    create = texts(golden, template, stages=frozenset({"create"}), token="low@pve!t")

    assert image.startswith("low@pve!t lacks Datastore.AllocateTemplate on /storage/local;")
    assert not any("/storage/" in text for text in create)


def test_a_pool_lends_its_privileges_to_guests_that_will_be_in_it(golden: Golden) -> None:
    template = from_image(golden, pool="web")
    stages = frozenset({"create"})

    found = texts(golden, template, stages=stages, token="pooled@pve!t")

    assert not any(f"/vms/{golden.vmid}" in text for text in found)
    assert any(
        f"/vms/{golden.vmid}" in text
        for text in texts(golden, from_image(golden), stages=stages, token="pooled@pve!t")
    )


@pytest.mark.parametrize(("fetch", "severity"), [("node", "error"), ("auto", "warning")])
def test_a_node_that_may_not_be_told_to_download(golden: Golden, fetch: str, severity: str) -> None:
    file = golden.image_file(golden.place.folder)
    with served(file.parent) as server:
        source = ImageSource.model_validate(
            {
                "name": "tiny",
                "origin": f"{server.url}/{file.name}",
                "storage": "local",
                "fetch": fetch,
                "checksum": {"algorithm": "sha256", "hex": "0" * 64},
            }
        )
        found = findings(
            golden,
            golden.template(source=source, disks=(Disk(slot="scsi0", storage="local", size=GIB),)),
            token="vm@pve!t",
            stages=frozenset({"image"}),
        )

    (missing,) = (each for each in found if "Sys.Modify" in each.problem)
    assert missing.severity == severity
    assert "/nodes/pve1" in missing.problem
