"""One mistake in an environment gives one fault, with file, line, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.blocks.manifest.sample import (
    ENV,
    KEY,
    changed,
    faults_of,
    write,
    written_at,
)

NODE = "spec.hypervisor.nodes.db1"

# What is changed in the sample, what it becomes, the key that is blamed, and words of the message.
WRONG = {
    "unknown zone": (
        "network: public",
        "network: publik",
        f"{NODE}.nics[0].network",
        "unknown zone 'publik'; did you mean 'public'? (zones: private, public)",
    ),
    "unknown storage class": (
        "storage_class: slow",
        "storage_class: slwo",
        f"{NODE}.disks[0].storage_class",
        "did you mean 'slow'? (storage classes: both, slow)",
    ),
    "unknown key": (
        "cores: 2",
        "coers: 2",
        f"{NODE}.resources.coers",
        "unknown key 'coers'; did you mean 'cores'?",
    ),
    "unknown key of a zone": (
        "gateway: 10.0.0.1,",
        "gatway: 10.0.0.1,",
        "spec.networks.public.gatway",
        "did you mean 'gateway'?",
    ),
    "unknown key of the document": (
        "kind: Env\n",
        "kind: Env\nhoks: {}\n",
        "hoks",
        "unknown key 'hoks'; did you mean 'hooks'?",
    ),
    "missing key": (
        "node_name: pve1, ",
        "",
        f"{NODE}.proxmox.node_name",
        "is missing; add 'node_name: ...'",
    ),
    "wrong type": ("cores: 2", "cores: two", f"{NODE}.resources.cores", "must be a whole number"),
    "list for a mapping": (
        "ips: { public: 10.0.0.11 }",
        "ips: [10.0.0.11]",
        f"{NODE}.ips",
        "must be a mapping",
    ),
    "too little memory": (
        "memory: 2048",
        "memory: 256",
        f"{NODE}.resources.memory",
        "at least 512",
    ),
    "tag of a wrong form": (
        "ips: { public: 10.0.0.11 }",
        "tags: ['a b']",
        f"{NODE}.tags[0]",
        "is no tag",
    ),
    "wrong choice": (
        "cores: 2",
        "bios: omvf",
        f"{NODE}.resources.bios",
        "must be one of seabios, ovmf; did you mean 'ovmf'?",
    ),
    "firmware by its common name": (
        "cores: 2",
        "bios: UEFI",
        f"{NODE}.resources.bios",
        "must be one of seabios, ovmf; did you mean 'ovmf'?",
    ),
    "key that has another name": (
        "cores: 2",
        "firmware: uefi",
        f"{NODE}.resources.firmware",
        "unknown key 'firmware'; did you mean 'bios'?",
    ),
    "key of the mapping below": (
        "ips: { public: 10.0.0.11 }",
        "firmware: uefi",
        f"{NODE}.firmware",
        "unknown key 'firmware'; did you mean 'resources: {bios: ...}'?",
    ),
    "key that several parts have": (
        "ips: { public: 10.0.0.11 }",
        "storage: local-lvm",
        f"{NODE}.storage",
        "unknown key 'storage'; remove it (known: ",
    ),
    "password for a hash": (
        "distro: rocky9",
        "distro: rocky9\n      root_password_hash: hunter2",
        "spec.hypervisor.kickstart.root_password_hash",
        "is no crypt(3) hash, and nor is what ${gen:password:24} gives; make one with",
    ),
    "image that no node has": (
        "image: rocky9.iso",
        "guest_os_type: l26",
        "spec.hypervisor.iso.image",
        "is missing; add 'image: ...'",
    ),
    "unknown distribution": (
        "distro: rocky9",
        "distro: rokcy9",
        "spec.hypervisor.kickstart.distro",
        "did you mean 'rocky9'?",
    ),
    "state of SELinux that there is none of": (
        "distro: rocky9",
        "distro: rocky9\n      selinux: permisive",
        "spec.hypervisor.kickstart.selinux",
        "did you mean 'permissive'?",
    ),
    "SELinux where there is none": (
        "distro: rocky9",
        "distro: ubuntu2404\n      selinux: disabled",
        "spec.hypervisor.kickstart.selinux",
        "the installer of ubuntu2404 sets up no SELinux; remove it",
    ),
    "number out of range": ("vm_id: 101", "vm_id: 42", f"{NODE}.proxmox.vm_id", "at least 100"),
    "duplicate vmid": (
        "vm_id: 102",
        "vm_id: 101",
        "spec.hypervisor.nodes.db2.proxmox.vm_id",
        "the vmid 101 is taken at",
    ),
    "duplicate address": (
        "address: 10.0.0.12/24",
        "address: 10.0.0.11/24",
        "spec.hypervisor.nodes.db2.nics[0].ipv4.address",
        "the address 10.0.0.11 is taken at",
    ),
    "duplicate host name": (
        "ips: { public: 10.0.0.12 }",
        "hostname: DB1",
        "spec.hypervisor.nodes.db2.hostname",
        "the host name 'DB1' is taken at",
    ),
    "address outside its zone": (
        "address: 10.0.0.11/24",
        "address: 10.9.0.11/24",
        f"{NODE}.nics[0].ipv4.address",
        "10.9.0.11 is outside the zone 'public'; choose an address in 10.0.0.0/24",
    ),
    "address without prefix": (
        "address: 10.0.0.11/24",
        "address: 10.0.0.11",
        f"{NODE}.nics[0].ipv4.address",
        "needs its prefix length",
    ),
    "address of the network": (
        "address: 10.0.0.11/24",
        "address: 10.0.0.0/24",
        f"{NODE}.nics[0].ipv4.address",
        "is the address of the network 10.0.0.0/24 itself",
    ),
    "address of the gateway": (
        "address: 10.0.0.11/24",
        "address: 10.0.0.1/24",
        f"{NODE}.nics[0].ipv4.address",
        "is the gateway of the zone 'public'",
    ),
    "gateway out of reach": (
        "ipv4: { address: 10.0.0.11/24 }",
        "ipv4: { address: 10.0.0.11/24, gateway: 10.5.0.1 }",
        f"{NODE}.nics[0].ipv4.gateway",
        "cannot be reached from 10.0.0.11/24",
    ),
    "no IP address": (
        "ips: { public: 10.0.0.11 }",
        "ips: { public: 10.0.0.333 }",
        f"{NODE}.ips.public",
        "is no IP address",
    ),
    "zone that is a host": (
        "cidr: 10.0.1.0/24",
        "cidr: 10.0.1.7/24",
        "spec.networks.private.cidr",
        "is the address of a host; did you mean '10.0.1.0/24'?",
    ),
    "MAC address of a wrong form": (
        "name: net0",
        "name: net0\n            mac: 02:00:00:00:00",
        f"{NODE}.nics[0].mac",
        "is no MAC address",
    ),
    "multicast MAC address": (
        "name: net0",
        "name: net0\n            mac: 01:00:00:00:00:01",
        f"{NODE}.nics[0].mac",
        "is a multicast MAC address",
    ),
    "static without an address": (
        "usage: public\n            bridge: vmbr0\n            network: public\n"
        "            ipv4: { address: 10.0.0.11/24 }",
        "usage: private\n            bootproto: static",
        f"{NODE}.nics[0]",
        "bootproto is static, but there is no address",
    ),
    "no size": ("size: 32G", "size: 32X", f"{NODE}.disks[0].size", "'32X' is no size"),
    "size without unit": ("size: 32G", "size: 32", f"{NODE}.disks[0].size", "did you mean '32G'?"),
    "slot of the install drives": (
        "role: root",
        "role: root, interface: ide2",
        f"{NODE}.disks[0].interface",
        "is kept for the installation drives",
    ),
    "disk on no storage": (
        "storage_class: slow, ",
        "",
        f"{NODE}.disks[0]",
        "the disk is on no storage",
    ),
    "install disk that is shared": (
        "role: root",
        "role: root, shared: true",
        f"{NODE}.disks[0].shared",
        "the disk to install on cannot be shared",
    ),
    "underscore in a name": ("db1:", "db_1:", "spec.hypervisor.nodes.db_1", "has '_'"),
    "dash before a name": (
        "db1:",
        "-db1:",
        "spec.hypervisor.nodes.-db1",
        "begins or ends with a dash",
    ),
    "name too long": (
        "db1:",
        f"{'d' * 64}:",
        f"spec.hypervisor.nodes.{'d' * 64}",
        "63 characters (64)",
    ),
    "underscore in the environment's name": (
        "name: shop",
        "name: my_shop",
        "metadata.name",
        "has '_'",
    ),
    "unset variable": (
        "vm_id: 101",
        'vm_id: "${env:VMID}"',
        f"{NODE}.proxmox.vm_id",
        "the environment variable VMID is not set; export VMID",
    ),
    "unreadable secret file": (
        "node_name: pve1",
        'node_name: "${file:./none}"',
        f"{NODE}.proxmox.node_name",
        "the file ./none cannot be read",
    ),
    "no reader for Vault": (
        "node_name: pve1",
        'node_name: "${vault:secret/data/x#y}"',
        f"{NODE}.proxmox.node_name",
        "no reader for Vault is configured",
    ),
    "unknown source of a secret": (
        "node_name: pve1",
        'node_name: "${evn:X}"',
        f"{NODE}.proxmox.node_name",
        "did you mean 'env'?",
    ),
    "unknown filter": (
        "node_name: pve1",
        'node_name: "${env:X|defalt:y}"',
        f"{NODE}.proxmox.node_name",
        "unknown filter 'defalt:y'",
    ),
    "reference to nothing": (
        "node_name: pve1",
        'node_name: "${ref:metadata.nmae}"',
        f"{NODE}.proxmox.node_name",
        "there is no 'metadata.nmae' to refer to",
    ),
    "unreadable key file": (
        f'"{KEY}"',
        "./id.pub",
        "spec.hypervisor.kickstart.ssh_keys.root[0]",
        "the key file ./id.pub cannot be read: No such file or directory",
    ),
    "key that is none": (
        f'"{KEY}"',
        "hello world",
        "spec.hypervisor.kickstart.ssh_keys.root[0]",
        "is neither a public key nor the path",
    ),
    "damaged key": (
        f'"{KEY}"',
        "ssh-ed25519 AAAA!!!",
        "spec.hypervisor.kickstart.ssh_keys.root[0]",
        "its second part is no base64",
    ),
    "key of another type": (
        f'"{KEY}"',
        KEY.replace("ssh-ed25519", "ssh-rsa"),
        "spec.hypervisor.kickstart.ssh_keys.root[0]",
        "its data is not of type ssh-rsa",
    ),
    "unknown profile": (
        "kind: Env\n",
        "kind: Env\nextends: pg-sngle\n",
        "extends",
        "unknown profile 'pg-sngle'; did you mean 'pg-single'? "
        "(profiles: host-only, oracle-rac-2node, pg-single)",
    ),
    "wrong version": ('version: "1"', 'version: "2"', "version", "must be 1"),
    "empty node": (
        "db1:\n",
        "db0:\n      db1:\n",
        "spec.hypervisor.nodes.db0",
        "the node is empty",
    ),
    "iso without kickstart": (
        f'    kickstart:\n      distro: rocky9\n      ssh_keys: {{ root: ["{KEY}"] }}\n',
        "",
        "spec.hypervisor.iso",
        "there is no kickstart for this iso",
    ),
    "kickstart without iso": (
        "    iso: {",
        "    #: {",
        "spec.hypervisor.kickstart",
        "there is no iso for this kickstart",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_one_mistake_gives_one_fault_with_its_line_key_and_remedy(
    case: str, tmp_path: Path
) -> None:
    old, new, key, words = WRONG[case]
    text = changed(old, new)
    path = write(tmp_path, text)

    faults = [fault for fault in faults_of(path) if fault.key == key]

    assert len(faults) == 1
    assert words in str(faults[0])
    assert faults[0].file == str(path)
    assert faults[0].line == written_at(text, key)


def test_all_faults_of_all_layers_are_said_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = ENV
    for old, new, *_ in (
        WRONG["unknown zone"],
        WRONG["unknown key"],
        WRONG["no size"],
        WRONG["zone that is a host"],
        WRONG["duplicate vmid"],
        WRONG["unreadable key file"],
    ):
        text = changed(old, new, text)

    faults = faults_of(write(tmp_path, text))

    keys = [fault.key.removeprefix("spec.") for fault in faults]
    assert keys == [
        "hypervisor.nodes.db1.resources.coers",
        "hypervisor.nodes.db1.nics[0].network",
        "hypervisor.nodes.db1.disks[0].size",
        "hypervisor.nodes.db2.proxmox.vm_id",
        "hypervisor.kickstart.ssh_keys.root[0]",
        "networks.private.cidr",
    ]
