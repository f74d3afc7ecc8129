"""Everything that can be wrong with a template is said with file, line, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.blocks.manifest.sample import changed, faults_of, only_fault, write, written_at
from tests.blocks.manifest.template.sample import MINIMAL, TEMPLATE, environment, with_spec

URL = "https://images.example.com/golden.qcow2"
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"

# What is changed in the sample, what it becomes, the key that is blamed, and words of the message.
WRONG = {
    "kind misspelled": (
        "kind: Template",
        "kind: Tempalte",
        "kind",
        "must be Template; did you mean 'Template'?",
    ),
    "unknown key": (
        "resources: { cores: 2,",
        "resources: { coers: 2,",
        "spec.resources.coers",
        "unknown key 'coers'; did you mean 'cores'?",
    ),
    "unknown key of a clone": (
        "      disk: 40G\n",
        "      dsik: 40G\n",
        "spec.clones[0].dsik",
        "did you mean 'disk'?",
    ),
    "missing node": ("  node: pve1\n", "", "spec.node", "is missing; add 'node: ...'"),
    "unknown image": (
        "image: debian13",
        "image: debain13",
        "spec.image",
        "unknown image 'debain13'; did you mean 'debian13'?",
    ),
    "image by URL without checksum": (
        "image: debian13",
        f"image: {URL}",
        "spec.image",
        "has no checksum; add 'checksum: sha256:HEX'",
    ),
    "no image": ("image: debian13", "image: {}", "spec.image", "says no image"),
    "URL and path": (
        "image: debian13",
        f"image: {{ url: {URL}, path: ./x.img, checksum: '{'0' * 64}' }}",
        "spec.image.path",
        "stands beside 'url'",
    ),
    "checksum of a wrong length": (
        "image: debian13",
        f"image: {{ url: {URL}, checksum: 'sha256:0123' }}",
        "spec.image.checksum",
        "has 4 hexadecimal digits; a checksum has 64 (sha256) or 128 (sha512)",
    ),
    "checksum of another algorithm": (
        "image: debian13",
        f"image: {{ url: {URL}, checksum: 'md5:{'0' * 32}' }}",
        "spec.image.checksum",
        "is no checksum; write sha256: or sha512:",
    ),
    "keyring without a list": (
        "image: debian13",
        f"image: {{ url: {URL}, checksum: '{'0' * 64}', keyring: ./keys.gpg }}",
        "spec.image.keyring",
        "is for a list of checksums",
    ),
    "list for a path": (
        "image: debian13",
        f"image: {{ path: ./x.img, checksums: {URL} }}",
        "spec.image.checksums",
        "is for images by URL",
    ),
    "clone with the number of the template": (
        "vm_id: 9101",
        "vm_id: 9000",
        "spec.clones[0].vm_id",
        "the number 9000 is taken at",
    ),
    "clone among the generations": (
        "vm_id: 9101",
        "vm_id: 9005",
        "spec.clones[0].vm_id",
        "is kept for generations of the template (9000-9009)",
    ),
    "number out of range": ("vm_id: 9101", "vm_id: 99", "spec.clones[0].vm_id", "at least 100"),
    "template outside its generations": (
        "vm_ids: 9000-9009",
        "vm_ids: 9001-9009",
        "spec.vm_id",
        "the number 9000 is not one of rebuild.vm_ids (9001-9009)",
    ),
    "too few numbers": (
        "vm_ids: 9000-9009",
        "vm_ids: 9000-9001",
        "spec.rebuild.vm_ids",
        "has 2 numbers; give at least 3",
    ),
    "range upside down": (
        "vm_ids: 9000-9009",
        "vm_ids: 9009-9000",
        "spec.rebuild.vm_ids",
        "is no range of VM numbers",
    ),
    "unknown time of rebuilding": (
        "when: weekly",
        "when: weakly",
        "spec.rebuild.when",
        "did you mean 'weekly'?",
    ),
    "name taken": (
        "name: db2",
        "name: DB1",
        "spec.clones[1].name",
        "the name 'DB1' is taken at",
    ),
    "name of the template": (
        "name: db2",
        "name: golden",
        "spec.clones[1].name",
        "is taken at",
    ),
    "reserved name": (
        "name: db2",
        "name: template",
        "spec.clones[1].name",
        "is kept for the template",
    ),
    "name that is none": (
        "name: db2",
        "name: db_2",
        "spec.clones[1].name",
        "the name has '_'",
    ),
    "name too long for generations": (
        "name: golden,",
        f"name: {'g' * 46},",
        "metadata.name",
        "is too long for the names of generations",
    ),
    "address taken": (
        "ip: 10.0.0.12/24",
        "ip: 10.0.0.11/24",
        "spec.clones[1].ip",
        "the address 10.0.0.11 is taken at",
    ),
    "address outside the network of its gateway": (
        "ip: 10.0.0.12/24",
        "ip: 10.9.0.12/24",
        "spec.clones[1].ip",
        "10.9.0.12 is outside the network of its gateway 10.0.0.1",
    ),
    "own gateway outside": (
        "ip: 10.0.0.12/24",
        "ip: { address: 10.0.0.12/24, gateway: 10.1.0.1 }",
        "spec.clones[1].ip.gateway",
        "the gateway 10.1.0.1 is outside the network of 10.0.0.12/24",
    ),
    "gateway is the guest": (
        "ip: 10.0.0.12/24",
        "ip: { address: 10.0.0.12/24, gateway: 10.0.0.12 }",
        "spec.clones[1].ip.gateway",
        "is the address of the guest itself",
    ),
    "gateway's address": (
        "ip: 10.0.0.12/24",
        "ip: 10.0.0.1/24",
        "spec.clones[1].ip",
        "the address 10.0.0.1 is a gateway's",
    ),
    "gateway without an address": (
        "ip: 10.0.0.12/24",
        "ip: { address: dhcp, gateway: 10.0.0.1 }",
        "spec.clones[1].ip.gateway",
        "'address' is no static address",
    ),
    "address without length": (
        "ip: 10.0.0.12/24",
        "ip: 10.0.0.12",
        "spec.clones[1].ip",
        "needs its prefix length",
    ),
    "broadcast address": (
        "ip: 10.0.0.12/24",
        "ip: 10.0.0.255/24",
        "spec.clones[1].ip",
        "is the broadcast address",
    ),
    "IPv6 address as IPv4": (
        "ip: 10.0.0.12/24",
        "ip: { address: 'fd00::2/64' }",
        "spec.clones[1].ip.address",
        "is an IPv6 address; write it under 'address6'",
    ),
    "more addresses than cards": (
        "ip: 10.0.0.12/24",
        "ip: [10.0.0.12/24, dhcp]",
        "spec.clones[1].ip[1]",
        "the guest has 1 network card",
    ),
    "smaller disk": (
        "disk: 40G",
        "disk: 10G",
        "spec.clones[0].disk",
        "10G is smaller than the disk of the template (20G)",
    ),
    "size without unit": ("disk: 40G", "disk: 40", "spec.clones[0].disk", "did you mean '40G'?"),
    "linked clone with a storage": (
        "mode: linked",
        "mode: linked\n      storage: fast",
        "spec.clones[1].storage",
        "a linked clone stays on the storage of the template",
    ),
    "alias on a clone": (
        "      disk: 40G\n",
        "      tags: [golden-current]\n",
        "spec.clones[0].tags[0]",
        "marks the newest generation",
    ),
    "MAC given twice": (
        "ip: 10.0.0.12/24",
        "ip: 10.0.0.12/24\n"
        "      nics: [{ mac: '02:00:00:00:00:01' }, { mac: '02:00:00:00:00:01' }]",
        "spec.clones[1].nics[1].mac",
        "the MAC address 02:00:00:00:00:01 is taken",
    ),
    "Secure Boot without UEFI": (
        "  node: pve1",
        "  firmware: { bios: seabios, secure_boot: true }\n  node: pve1",
        "spec.firmware.secure_boot",
        "needs UEFI, but bios is seabios; write 'bios: ovmf'",
    ),
    "TPM storage without TPM": (
        "  node: pve1",
        "  firmware: { tpm: false, tpm_storage: fast }\n  node: pve1",
        "spec.firmware.tpm_storage",
        "but tpm is false",
    ),
    "PCI id of a wrong form": (
        "  node: pve1",
        "  pci: [{ device: '01:0' }]\n  node: pve1",
        "spec.pci[0].device",
        "is no PCI id",
    ),
    "PCI id read as a number": (
        "  node: pve1",
        "  pci: [{ device: 60 }]\n  node: pve1",
        "spec.pci[0].device",
        "must be text; put it in quotes",
    ),
    "device without a name": (
        "  node: pve1",
        "  pci: [{ primary: true }]\n  node: pve1",
        "spec.pci[0]",
        "needs a mapping or a device, one of them",
    ),
    "two primary devices": (
        "  node: pve1",
        "  pci: [{ mapping: a, primary: true }, { mapping: b, primary: true }]\n  node: pve1",
        "spec.pci[1]",
        "is primary, as the one at",
    ),
    "PCI Express on an old machine": (
        "  node: pve1",
        "  firmware: { machine: i440fx }\n  pci: [{ mapping: a, pcie: true }]\n  node: pve1",
        "spec.pci[0].pcie",
        "needs machine q35, not i440fx",
    ),
    "slot taken": (
        "  node: pve1",
        "  disks: [{ size: 5G, slot: scsi0 }]\n  node: pve1",
        "spec.disks[0].slot",
        "the slot scsi0 is taken at",
    ),
    "slot of the cloud-init drive": (
        "    user: ops",
        "    slot: scsi0\n    user: ops",
        "spec.cloud_init.slot",
        "is the cloud-init drive's and a disk's",
    ),
    "packages by fields": (
        "    user: ops",
        "    method: fields\n    packages: [chrony]\n    user: ops",
        "spec.cloud_init.packages",
        "cannot be said by the options of Proxmox VE",
    ),
    "password written out": (
        "    user: ops",
        "    password: geheim\n    user: ops",
        "spec.cloud_init.password",
        "is written out; name where it is instead: ${env:NAME}",
    ),
    "hash that is none": (
        "    user: ops",
        "    password_hash: geheim\n    user: ops",
        "spec.cloud_init.password_hash",
        "is no crypt(3) hash; make one with 'openssl passwd -6'",
    ),
    "user that is none": (
        "    user: ops",
        "    user: Ops Team",
        "spec.cloud_init.user",
        "is no login name",
    ),
    "document without its first line": (
        "    user: ops",
        "    vendor_data: |\n      packages:\n        - htop\n    user: ops",
        "spec.cloud_init.vendor_data",
        "does not begin with a line that cloud-init knows; begin it with #cloud-config",
    ),
    "document that is no YAML": (
        "    user: ops",
        "    vendor_data: |\n      #cloud-config\n      a: [1\n    user: ops",
        "spec.cloud_init.vendor_data",
        "is no valid YAML",
    ),
    "document that is not there": (
        "    user: ops",
        "    vendor_data: ./none.yaml\n    user: ops",
        "spec.cloud_init.vendor_data",
        "the file ./none.yaml cannot be read: No such file or directory",
    ),
    "network without version": (
        "    user: ops",
        "    network_config: { ethernets: {} }\n    user: ops",
        "spec.cloud_init.network_config",
        "is no network configuration: 'version' is missing",
    ),
    "settings beside the whole document": (
        "    user: ops\n",
        "    user_data: { hostname: x }\n    timezone: UTC\n    #",
        "spec.cloud_init.timezone",
        "has no effect beside user_data",
    ),
    "count that is none": (
        "      disk: 40G\n",
        "      count: some\n",
        "spec.clones[0].count",
        "is no number of clones; write a number from 1 to 500",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_fault_is_said_with_place_and_remedy(case: str, tmp_path: Path) -> None:
    old, new, key, words = WRONG[case]
    text = changed(old, new, TEMPLATE)
    if case == "settings beside the whole document":
        text = text.replace("    ssh_keys", "    # ssh_keys")

    fault = only_fault(tmp_path, text)

    assert fault.key == key
    assert words in str(fault)
    assert fault.line == written_at(text, key)


def test_the_sample_itself_has_no_fault(tmp_path: Path) -> None:
    assert environment(tmp_path).recipe is not None


def test_all_faults_are_said_at_once_in_order(tmp_path: Path) -> None:
    text = TEMPLATE
    for old, new in (
        ("image: debian13", "image: debain13"),
        ("size: 20G", "size: 20"),
        ("vlan: 20", "vlan: 5000"),
        ("vm_id: 9102", "vm_id: 9101"),
        ("ip: 10.0.0.12/24", "ip: 10.0.0.11/24"),
    ):
        text = changed(old, new, text)

    faults = faults_of(write(tmp_path, text))

    assert [fault.key for fault in faults] == [
        "spec.image",
        "spec.disk.size",
        "spec.nics[0].vlan",
        "spec.clones[1].vm_id",
        "spec.clones[1].ip",
    ]


def test_a_private_key_is_refused_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "id").write_text(PRIVATE)
    text = MINIMAL.replace(MINIMAL[MINIMAL.index('["ssh-') :], "[./id]\n")

    fault = only_fault(tmp_path, text)

    assert "the key file ./id is a private key; name its public half" in str(fault)
    assert "abc" not in str(fault)


def test_keys_are_read_from_a_file_that_belongs_to_the_manifest(tmp_path: Path) -> None:
    key = MINIMAL.partition('["')[2].partition('"')[0]
    (tmp_path / "id.pub").write_text(f"# mine\n{key}\n")
    text = MINIMAL.replace(f'["{key}"]', "id.pub")

    found = environment(tmp_path, text)

    assert found.guests[0].cloud_init is not None
    assert found.guests[0].cloud_init.ssh_keys == (key,)
    assert (tmp_path / "id.pub") in found.source_files


def test_a_clone_that_would_have_the_templates_address_is_told(tmp_path: Path) -> None:
    text = with_spec("clones: [{ name: a, vm_id: 200 }]", MINIMAL + "    ip: 10.0.0.5/24\n")

    fault = only_fault(tmp_path, text)

    assert fault.key == "spec.clones[0]"
    assert "has the template's address 10.0.0.5; give each clone its own 'ip'" in str(fault)


def test_nobody_to_log_in_is_noticed_not_refused(tmp_path: Path) -> None:
    text = MINIMAL[: MINIMAL.index("  cloud_init")]

    assert environment(tmp_path, text).notices == (
        "template: nobody can log in; add cloud_init.ssh_keys",
    )


def test_a_raw_device_of_two_running_clones_is_noticed(tmp_path: Path) -> None:
    text = with_spec(
        "pci: ['0000:01:00']\nclones: [{ name: a, vm_id: 200 }, { name: b, vm_id: 201 }]",
        changed("debian13", "debian13-generic", MINIMAL),
    )

    assert environment(tmp_path, text).notices == (
        "b: 0000:01:00 of pve1 is also a's; only one of them can run",
    )


def test_a_secret_is_not_repeated_in_a_fault(tmp_path: Path) -> None:
    text = MINIMAL + "    password_hash: ${env:PW}\n"

    fault = only_fault(tmp_path, text, {"PW": "plainly-no-hash"})

    assert "is no crypt(3) hash" in str(fault)
    assert "plainly" not in str(fault)
