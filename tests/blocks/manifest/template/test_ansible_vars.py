"""Variable files of Ansible become templates that load; nothing is dropped without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from blocks.manifest.faults import Fault, ManifestError
from blocks.manifest.recipe import Recipe
from blocks.manifest.template.ansible_vars import Converted, convert, convert_file, to_yaml
from blocks.units import GIB
from tests.blocks.manifest.sample import KEY
from tests.blocks.manifest.template.sample import recipe

BOOKWORM = "https://cloud.debian.org/images/cloud/bookworm"

PLAYBOOK = f"""\
---
# A playbook's variables, as they are found in the wild.
proxmox_node: pve2
proxmox_api_host: 10.0.0.250
proxmox_api_password: hunter2-hunter2
vm_id: 9000
vm_name: debian12-golden
image_url: {BOOKWORM}/20260712-2537/debian-12-generic-amd64-20260712-2537.qcow2
image_name: debian-12.qcow2
storage: fast
memory: 4096
cores: 4
sockets: 1
cpu_type: host
bridge: vmbr1
vlan: 20
disk_size: 32G
uefi_enabled: yes
secure_boot: true
tpm_enabled: "yes"
gpu_passthrough: true
gpu_pci: "0000:01:00.0"
ssh_key_file: id.pub
ci_user: ops
ci_password: geheim-geheim
dns: 10.0.0.2 10.0.0.3
searchdomain: example.com
gateway: 10.0.0.1
tags: golden,debian
agent: 1
make_template: true
create_clones: true
backup_schedule: daily
clones:
  - id: 9101
    hostname: web1
    ip: 10.0.0.11/24
    gateway: 10.0.0.1
    full: true
    storage: slow
    rack: 7
  - vm_id: 9102
    name: web2
    ip: 10.0.0.12
    netmask: 255.255.255.0
    full: false
    node: pve3
"""


def loaded(folder: Path, found: Converted, env: dict[str, str] | None = None) -> Recipe:
    """The recipe of a conversion, by way of the text that a user would keep."""
    (folder / "id.pub").write_text(KEY + "\n")
    return recipe(folder, to_yaml(found.document), env)


def spec(text: str) -> dict[str, Any]:
    found: dict[str, Any] = convert(text).document["spec"]
    return found


def test_a_whole_variable_file_becomes_a_template_that_loads(tmp_path: Path) -> None:
    found = convert(PLAYBOOK)

    whole = loaded(tmp_path, found, {"CI_PASSWORD": "x"})

    guest = whole.template
    assert (guest.name, guest.vmid, guest.node) == ("debian12-golden", 9000, "pve2")
    assert (guest.cores, guest.memory, guest.cpu) == (4, 4096, "host")
    assert [(disk.size, disk.storage) for disk in guest.disks] == [(32 * GIB, "fast")]
    assert [(nic.bridge, nic.vlan) for nic in guest.nics] == [("vmbr1", 20)]
    assert (guest.firmware.bios, guest.firmware.secure_boot) == ("ovmf", True)
    assert guest.firmware.tpm_storage == "fast"
    assert [device.device for device in guest.pci] == ["0000:01:00.0"]
    assert guest.tags == ("debian", "golden")
    assert guest.image is not None
    assert guest.image.sums == f"{BOOKWORM}/20260712-2537/SHA512SUMS"
    assert guest.cloud_init is not None
    assert guest.cloud_init.user == "ops"
    assert guest.cloud_init.ssh_keys == (KEY,)
    assert [str(each) for each in guest.cloud_init.dns] == ["10.0.0.2", "10.0.0.3"]
    assert guest.cloud_init.search == ("example.com",)
    assert [(clone.name, clone.vmid, clone.node) for clone in whole.clones] == [
        ("web1", 9101, "pve2"),
        ("web2", 9102, "pve3"),
    ]
    assert [clone.clone.full for clone in whole.clones if clone.clone] == [True, False]
    assert [str(clone.nics[0].inet.addresses[0]) for clone in whole.clones] == [
        "10.0.0.11/24",
        "10.0.0.12/24",
    ]


def test_what_has_no_place_is_listed_and_secrets_are_not_copied() -> None:
    found = convert(PLAYBOOK)

    said = "\n".join(found.notes)
    assert found.unknown == ("backup_schedule", "clones[0].rack")
    assert "proxmox_api_password: is about the connection; see docs/connecting.md" in said
    assert "password: not copied; put it into the environment variable CI_PASSWORD" in said
    assert "raw ids need a login as root@pam" in said
    for secret in ("hunter2", "geheim"):
        assert secret not in said + to_yaml(found.document) + repr(found.unknown)


def test_the_least_that_is_there_is_filled_up_with_a_note(tmp_path: Path) -> None:
    found = convert("vm_name: golden\n")

    assert loaded(tmp_path, found).template.vmid == 9000
    assert [note.partition(":")[0] for note in found.notes] == ["node", "vm_id", "image"]


@pytest.mark.parametrize(
    ("written", "part", "value"),
    [
        ("memory: 4G", "resources", {"memory": 4096}),
        ("vm_memory: '2048'\nvm_cores: 2", "resources", {"cores": 2, "memory": 2048}),
        ("cpu: 8", "resources", {"cores": 8}),
        ("disk_size: 40", "disk", {"size": "40G"}),
        ("vm_disk_size: 40g\ndiscard: no", "disk", {"size": "40G", "discard": False}),
        ("net0: 'virtio,bridge=vmbr3,tag=7,firewall=1'", "nics",
         [{"model": "virtio", "bridge": "vmbr3", "vlan": 7, "firewall": True}]),
        ("bios: ovmf\nmachine: q35", "firmware", {"bios": "ovmf", "machine": "q35"}),
        ("uefi: false", "firmware", {"bios": "seabios"}),
        ("gpu_passthrough: true\ngpu_mapping: gpu1\ngpu_primary: yes", "pci",
         [{"mapping": "gpu1", "primary": True}]),
        ("hostpci0: '01:00,pcie=1,x-vga=1'", "pci", [{"device": "0000:01:00", "primary": True}]),
        ("gpu_devices: ['01:00.0', '01:00.1']", "pci",
         [{"device": "0000:01:00.0"}, {"device": "0000:01:00.1"}]),
        ("serial: 'no'", "serial", False),
        ("agent: enabled=0", "agent", False),
        ("vga: serial0", "display", "serial0"),
        ("ostype: l26", "ostype", "l26"),
        ("distro: ubuntu-24.04", "image", "ubuntu2404"),
        ("distro: rocky9\nimage_storage: nfs", "image", {"name": "rocky9", "storage": "nfs"}),
        (f"image_url: {BOOKWORM}/latest/debian-12-genericcloud-amd64.qcow2", "image", "debian12"),
        ("image_url: https://e.com/a.img\nimage_checksum: abc\nchecksum_algorithm: sha256", "image",
         {"url": "https://e.com/a.img", "checksum": "sha256:abc"}),
        ("image_url: https://e.com/a.img\nchecksum: sha256:https://e.com/SUMS", "image",
         {"url": "https://e.com/a.img", "checksums": "https://e.com/SUMS"}),
        ("image_url: https://e.com/a.img", "image",
         {"url": "https://e.com/a.img", "checksum": "${env:IMAGE_CHECKSUM}"}),
        ("clone_count: 3\nclone_prefix: web\nclone_start_id: 200", "clones",
         [{"count": 3, "name": "web{n:02}", "vm_id": 200}]),
    ],
)  # fmt: skip
def test_the_spellings_in_use_are_known(written: str, part: str, value: object) -> None:
    found = convert(written)

    assert found.document["spec"][part] == value
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("ip_mode: dhcp\nip: 10.0.0.5", {"ip": ["dhcp"]}),
        ("ip: dhcp", {"ip": ["dhcp"]}),
        ("ip: 10.0.0.5\nip_cidr: 16\ngateway: 10.0.0.1",
         {"ip": ["10.0.0.5/16"], "gateway": "10.0.0.1"}),
        ("vm_ip_address: 10.0.0.5\nnetmask: 255.255.0.0", {"ip": ["10.0.0.5/16"]}),
        ("ip_cidr: 10.0.0.5/24", {"ip": ["10.0.0.5/24"]} ),
        ("ipconfig0: ip=10.0.0.5/24,gw=10.0.0.1",
         {"ip": ["10.0.0.5/24"], "gateway": "10.0.0.1"}),
        ("nameservers: [1.1.1.1]\nsearch_domain: example.com",
         {"dns": ["1.1.1.1"], "search": ["example.com"]}),
        ("vm_ciuser: ops\ntimezone: Europe/Berlin\nci_packages: [htop]",
         {"user": "ops", "timezone": "Europe/Berlin", "packages": ["htop"]}),
        ("ci_password: geheim", {"password": "${env:CI_PASSWORD}"}),
        ("cipassword: $6$salt$abcdefgh", {"password_hash": "${env:CI_PASSWORD_HASH}"}),
        ("cloud_init: { user: ops, password: x }",
         {"user": "ops", "password": "${env:CI_PASSWORD}"}),
        ("ssh_key_file: ~/.ssh/id.pub", {"ssh_keys": ["~/.ssh/id.pub"]}),
        ("ssh_key: \"{{ lookup('file', '~/.ssh/id.pub') }}\"", {"ssh_keys": ["~/.ssh/id.pub"]}),
        ("me: ops\nci_user: '{{ me }}'", {"user": "ops"}),
    ],
)  # fmt: skip
def test_the_spellings_of_logins_and_addresses_are_known(
    written: str, told: dict[str, object]
) -> None:
    assert spec(written)["cloud_init"] == told


@pytest.mark.parametrize(
    ("written", "note"),
    [
        ("vm_name: golden_image", "name: 'golden_image' is no DNS name; it became 'golden-image'"),
        ("ip: 10.0.0.5", "ip: 10.0.0.5 has no prefix length; /24 was put in"),
        ("ip: 10.0.0.5/24\ngateway: 10.1.0.1", "gateway: 10.1.0.1 is outside the network"),
        ("disk_size: +8G", "disk_size: '+8G' is no size"),
        ("cores: '{{ host_cores // 2 }}'", "cores: is a Jinja expression ({{ }}); write its value"),
        ("thing: '{{ x }}'", "thing: is a Jinja expression ({{ }}), and has no place here"),
        ("memory: 1\nvm_memory: 2", "vm_memory: left out, since memory says it already"),
        ("make_template: false", "make_template: is off; a template is made in any case"),
        ("create_clones: false\nclones: [{ id: 200, name: a }]", "the clones were left out"),
        ("create_clones: true", "create_clones: is on, but no clones are listed"),
        ("ci_user: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3332\n", "encrypted by ansible-vault"),
        ("scsihw: virtio-scsi-pci", "scsihw: the controller is always virtio-scsi-single"),
        ("secure_boot: true\nbios: seabios", "secure_boot: needs UEFI"),
        ("gpu_passthrough: true", "a device is wanted, but none is named"),
        (
            "ip: 10.0.0.5/24\nclones: [{ id: 200, name: a }]",
            "a: has no address; DHCP was put in, not the template's address",
        ),
        ("clones: [{ id: 200, name: a, full: false, storage: x }]", "clones[0].storage: a linked"),
        ("clones: [{ id: 200, name: a, mode: half }]", "clones[0].mode: 'half' is not understood"),
        ("ip_mode: dhcp\nip: 10.0.0.5", "ip: 10.0.0.5 was left out; since DHCP gives it"),
        ("net0: 'virtio=BC:24:11:00:00:01,bridge=vmbr0'", "net0: address BC:24:11:00:00:01 was"),
        ("hostpci0: '01:00,rombar=0'", "pci: rombar=0 was left out; add it to the entry of 01:00"),
        ("gpu_primary: true", "pci: no device is named"),
        ("cpu: 8\ncores: 4", "cpu: 8 was left out; since cores is 4"),
        (
            "distro: debian12\nchecksum: sha256:ab",
            "checksum: sha256:ab was left out; since debian12",
        ),
        ("clone_count: 2\nclones: [{ id: 200, name: a }]", "clone_count: 2 was left out"),
    ],
)
def test_what_was_decided_is_told(written: str, note: str) -> None:
    found = convert(written)

    assert any(note in each for each in found.notes), found.notes


def test_a_play_with_its_variables_is_taken_too() -> None:
    found = convert("- hosts: pve\n  tasks: []\n  vars: { vm_id: 9500, vm_name: a }\n")

    assert found.document["spec"]["vm_id"] == 9500
    assert "tasks: is of the play, not a variable" in found.notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no variables"),
        ("- a\n- b\n", "has no variables"),
        ("a: [1\n", "is no valid YAML"),
        ("version: '1'\nkind: Template\n", "is a template already"),
    ],
)
def test_what_is_no_variable_file_is_refused(text: str, words: str) -> None:
    with pytest.raises(ManifestError, match=words) as caught:
        convert(text, "vars.yml")

    assert caught.value.faults[0].file == "vars.yml"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        convert_file(tmp_path / "none.yml")


def test_a_file_is_read_with_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "vars.yml").write_text("\ufeffvm_id: 9500\n", encoding="utf-8")

    assert convert_file(tmp_path / "vars.yml").document["spec"]["vm_id"] == 9500


_keys = st.sampled_from(
    [
        "vm_id", "vm_name", "storage", "image_url", "memory", "cores", "cpu", "bridge", "vlan",
        "disk_size", "bios", "machine", "uefi", "tpm", "secure_boot", "gpu_pci", "mapping", "ip",
        "ip_cidr", "gateway", "dns", "searchdomain", "ssh_keys", "ci_user", "packages", "tags",
        "clones", "create_clones", "clone_count", "pool", "agent", "serial", "net0", "ipconfig0",
        "checksum", "distro", "node", "domain", "other", "romfile", "vga", "cache", "slot",
    ]
)  # fmt: skip
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 100_000),
    st.text("ab1:/.{}$ ,=-\n", max_size=10),
    st.sampled_from(["10.0.0.5", "10.0.0.5/24", "fd00::5", "{{ memory }}", "yes", "", "32G"]),
)
_entries = st.dictionaries(st.sampled_from(["id", "name", "ip", "full", "x"]), _scalars, max_size=4)


@settings(max_examples=120, deadline=None)
@given(
    st.dictionaries(
        _keys, _scalars | st.lists(_scalars, max_size=3) | st.lists(_entries, max_size=2),
        min_size=1, max_size=8,
    )
)  # fmt: skip
def test_whatever_the_variables_hold_there_is_a_document_or_a_fault_with_its_place(
    values: dict[str, Any],
) -> None:
    text = to_yaml(values)

    faults: tuple[Fault, ...] = ()
    try:
        found = convert(text)
    except ManifestError as refused:
        faults = refused.faults

    if faults:
        assert all(fault.key and fault.line for fault in faults)
        assert any(isinstance(value, list) for value in values.values()) or "clones" in values
        return
    again = YAML(typ="safe", pure=True).load(to_yaml(found.document))
    assert again == found.document
    assert {"node", "vm_id", "image"} <= found.document["spec"].keys()
