"""Everything that can be wrong with an environment is said with file, line, key and remedy."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from blocks.manifest.faults import Fault, ManifestError
from blocks.manifest.loader import load_environment
from tests.blocks.manifest.sample import (
    ENV,
    KEY,
    changed,
    faults_of,
    line_of,
    load,
    only_fault,
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
    "unknown distribution": (
        "distro: rocky9",
        "distro: rokcy9",
        "spec.hypervisor.kickstart.distro",
        "did you mean 'rocky9'?",
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


def test_a_fault_reads_as_file_line_key_problem_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = changed("network: public", "network: publik")

    fault = only_fault(tmp_path, text)

    line = line_of(text, "publik")
    assert str(fault) == (
        f"env.yaml:{line}: spec.hypervisor.nodes.db1.nics[0].network: unknown zone 'publik'; "
        "did you mean 'public'? (zones: private, public)"
    )


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


def test_a_duplicate_names_both_places(tmp_path: Path) -> None:
    text = changed("vm_id: 102", "vm_id: 101")

    fault = only_fault(tmp_path, text)

    first = f"{tmp_path / 'env.yaml'}:{line_of(text, 'vm_id: 101')}"
    assert first in fault.problem
    assert "spec.hypervisor.nodes.db1.proxmox.vm_id" in fault.problem


def test_a_mac_address_that_two_cards_have_is_refused_however_it_is_written(tmp_path: Path) -> None:
    text = changed("bridge: vmbr0", "bridge: vmbr0\n            mac: 02:aa:00:00:00:01")
    at = text.rindex("bridge: vmbr0")
    text = text[:at] + "mac: 02-AA-00-00-00-01\n            " + text[at:]

    fault = only_fault(tmp_path, text)

    assert fault.key == "spec.hypervisor.nodes.db2.nics[0].mac"
    assert "02:AA:00:00:00:01 is taken at" in fault.problem


def test_a_vmid_in_the_defaults_cannot_serve_two_nodes_of_one_address(tmp_path: Path) -> None:
    nic = "{ name: net0, usage: public, network: public, ipv4: { address: 10.0.0.50/24 } }"
    text = changed("kind: Hypervisor\n", f"kind: Hypervisor\n    defaults: {{ nics: [{nic}] }}\n")
    block = text[text.index("        nics:\n") : text.index("        disks:\n")]
    text = text.replace(block, "").replace(block.replace("0.11", "0.12"), "")

    fault = only_fault(tmp_path, text)

    assert fault.key == "spec.hypervisor.defaults.nics[0].ipv4.address"
    assert "the address 10.0.0.50 is taken" in fault.problem


def test_what_stands_in_the_defaults_is_refused_once_not_once_a_node(tmp_path: Path) -> None:
    text = changed(
        "kind: Hypervisor\n", "kind: Hypervisor\n    defaults: { resources: { cors: 2 } }\n"
    )

    fault = only_fault(tmp_path, text)

    assert fault.key == "spec.hypervisor.defaults.resources.cors"


def test_a_private_key_is_refused_with_its_own_words_and_never_repeated(tmp_path: Path) -> None:
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n"
    (tmp_path / "id").write_text(secret)
    from_file = only_fault(tmp_path, changed(f'"{KEY}"', "./id"))
    inline = only_fault(tmp_path, changed(f'"{KEY}"', repr(secret).replace("'", '"')))

    assert "the key file ./id is a private key; name its public half" in str(from_file)
    assert "is a private key" in str(inline)
    assert "c2VjcmV0" not in str(from_file) + str(inline)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("a: [1,\nb: 2", 2, "is no valid YAML: while parsing a flow sequence"),
        ("a: b: c", 1, "is no valid YAML: mapping values are not allowed here (column 5)"),
        ("kind: Networks\n\tpublic: 1", 2, "is no valid YAML"),
        ("a: *nowhere", 1, "found undefined alias"),
        ("a: !vault x", 1, "has the tag '!vault'"),
        ("a: 1\n---\nb: 2", 2, "is no valid YAML"),
        ("- one\n- two", 1, "must be a mapping"),
        ("a: \x01", 1, "has a character that YAML does not allow"),
        ("", None, "is empty"),
        ("? [a, b]\n: c", 1, "has a key that is no plain word"),
    ],
)
def test_a_file_that_is_no_yaml_is_refused_with_its_line(
    content: str, line: int | None, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path, content)

    fault = faults_of(path)[0]

    assert words in fault.problem
    assert fault.line == line


def test_a_layer_that_is_no_yaml_does_not_hide_the_faults_of_the_others(tmp_path: Path) -> None:
    text = changed("cores: 2", "coers: 2")
    at = text.index("  networks:")
    text = text[:at] + "  networks: { $ref: ./net.yaml }\n" + text[text.index("  storage_cl") :]
    path = write(tmp_path, text, net_yaml="kind: Networks\npublic: [")

    faults = faults_of(path)

    assert [(Path(fault.file).name, fault.key) for fault in faults] == [
        ("env.yaml", "spec.hypervisor.nodes.db1.resources.coers"),
        ("net.yaml", "spec.networks"),
    ]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "env.yaml"
    path.write_bytes(b"kind: \xff\xfe")

    assert "is no UTF-8 text" in str(faults_of(path)[0])


def test_a_missing_master_file_is_named(tmp_path: Path) -> None:
    faults = faults_of(tmp_path / "nope.yaml")

    assert str(faults[0]) == f"{tmp_path / 'nope.yaml'}: no such file"


def test_a_folder_in_place_of_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    assert "is a folder" in str(faults_of(tmp_path)[0])


def test_a_layer_in_place_of_the_master_file_is_said_to_be_one(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, "kind: Networks\npublic: { cidr: 10.0.0.0/24 }\n")

    assert str(fault).endswith(
        "env.yaml:1: kind: this is a Networks document; name the master file (kind: Env) instead"
    )


def test_a_missing_layer_file_is_said_where_it_is_named_with_the_nearest_one(
    tmp_path: Path,
) -> None:
    at = ENV.index("  networks:")
    text = ENV[:at] + "  networks: { $ref: ./netwrks.yaml }\n" + ENV[ENV.index("  storage_cl") :]
    path = write(tmp_path, text, networks_yaml="kind: Networks")

    (fault,) = faults_of(path)

    assert fault.key == "spec.networks.$ref"
    assert fault.line == line_of(text, "netwrks")
    assert "there is no such file; did you mean 'networks.yaml'?" in str(fault)


def test_references_in_a_circle_are_shown_as_a_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    at = ENV.index("  networks:")
    text = ENV[:at] + "  networks: { $ref: ./a.yaml }\n" + ENV[ENV.index("  storage_cl") :]
    path = write(
        tmp_path,
        text,
        a_yaml="kind: Networks\npublic: { $ref: ./b.yaml }",
        b_yaml="cidr: 10.0.0.0/24\ndns: { $ref: ./a.yaml }",
    )

    faults = faults_of(path)

    (circle,) = [fault for fault in faults if "circle" in fault.problem]
    assert "a.yaml -> b.yaml -> a.yaml" in circle.problem
    assert circle.file == "b.yaml"


def test_a_key_that_is_written_twice_is_refused_with_the_first_line(tmp_path: Path) -> None:
    text = changed("cores: 2", "cores: 2, cores: 4")

    fault = only_fault(tmp_path, text)

    assert fault.key == "spec.hypervisor.nodes.db1.resources.cores"
    assert f"the first time in line {line_of(text, 'cores: 2')}" in fault.problem


def test_aliases_that_multiply_are_stopped(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for step in range(1, 9):
        lines.append(f"a{step}: &a{step} [{', '.join([f'*a{step - 1}'] * 10)}]")
    path = write(tmp_path, "\n".join(lines))

    assert any("parts" in fault.problem for fault in faults_of(path))


def test_a_secret_value_is_in_no_fault(tmp_path: Path) -> None:
    text = changed("network: public", 'network: "${env:ZONE}"')
    text = changed("size: 32G", 'size: "${env:SIZE}"', text)
    text = changed("cores: 2", 'bios: "${env:BIOS}"', text)
    env = {"ZONE": "s3cr3t-zone", "SIZE": "s3cr3t-size", "BIOS": "s3cr3t-bios"}

    error = "\n".join(map(str, faults_of(write(tmp_path, text), env)))

    assert "s3cr3t" not in error
    assert "unknown zone '***'" in error
    assert "'***' is no size" in error


def test_a_value_under_the_wrong_key_is_not_repeated(tmp_path: Path) -> None:
    text = changed("memory: 2048", "memory: hunter2hunter2")

    assert "hunter2" not in str(only_fault(tmp_path, text))


def test_a_manifest_error_survives_pickling() -> None:
    error = ManifestError((Fault(file="a", line=1, key="b", problem="c", remedy="d"),))

    again = pickle.loads(pickle.dumps(error))

    assert str(again) == str(error) == "a:1: b: c; d"


def test_a_disk_tag_that_another_layer_wants_must_be_on_a_disk(tmp_path: Path) -> None:
    layer = "  linux: { kind: Linux, disk_layout: { additional: [{ tag: dta }] } }\n"
    tagged = changed("role: root", "role: root, tag: data", ENV + layer)

    fault = only_fault(tmp_path, tagged)

    assert fault.key == "spec.linux.disk_layout.additional[0].tag"
    assert "no disk has the tag 'dta'; did you mean 'data'?" in str(fault)


RAC = "  cluster: { kind: Cluster, type: oracle-rac }\n"


def test_oracle_rac_wants_scan_addresses_an_interconnect_private_cards_and_a_shared_disk(
    tmp_path: Path,
) -> None:
    problems = "\n".join(map(str, faults_of(write(tmp_path, ENV + RAC))))

    assert "spec.cluster.scan_ips: oracle-rac needs at least 3 SCAN addresses, not 0" in problems
    assert "spec.cluster.interconnect_subnet: oracle-rac needs the network" in problems
    assert "nodes.db1: oracle-rac needs a private network card" in problems
    assert "nodes.db2: oracle-rac needs a private network card" in problems
    assert "spec.hypervisor.nodes: oracle-rac needs a shared disk" in problems


def test_oracle_rac_wants_two_nodes(tmp_path: Path) -> None:
    one = ENV[: ENV.index("      db2:")] + ENV[ENV.index("    iso:") :] + RAC

    problems = "\n".join(map(str, faults_of(write(tmp_path, one))))

    assert "oracle-rac needs at least 2 nodes, not 1" in problems


SHARED = "role: root }\n          - { id: 1, size: 8G, storage_class: both, shared: true }"


def shared_disks(first: str = SHARED, second: str = SHARED) -> str:
    head, middle, tail = ENV.split("role: root }")
    return head + first + middle + second + tail


def test_a_shared_disk_must_be_on_a_shared_storage(tmp_path: Path) -> None:
    text = shared_disks(SHARED.replace("both", "slow"), SHARED.replace("both", "slow"))

    faults = faults_of(write(tmp_path, text))

    assert {fault.key for fault in faults} == {
        "spec.hypervisor.nodes.db1.disks[1].shared",
        "spec.hypervisor.nodes.db2.disks[1].shared",
    }
    assert "use a storage class with 'shared: true'" in str(faults[0])


def test_nodes_must_agree_on_the_size_and_the_storage_of_a_shared_disk(tmp_path: Path) -> None:
    other_size = only_fault(tmp_path, shared_disks(second=SHARED.replace("8G", "9G")))
    text = shared_disks(second=SHARED.replace("both", "third"))
    text = text.replace("    both:", "    third: { backend: nfs2, shared: true }\n    both:")
    other_storage = only_fault(tmp_path, text)

    assert other_size.key == "spec.hypervisor.nodes.db2.disks[1].size"
    assert "has another size at" in other_size.problem
    assert "is on 'nfs2' here, but on 'nfs1' at" in other_storage.problem


def test_equal_sizes_in_other_words_are_equal(tmp_path: Path) -> None:
    environment = load(tmp_path, shared_disks(second=SHARED.replace("8G", "8192M")))

    assert environment.guests[1].disks[1].shared_with is not None


def test_the_sample_itself_has_no_fault(tmp_path: Path) -> None:
    assert len(load_environment(write(tmp_path), env={}).guests) == 2
