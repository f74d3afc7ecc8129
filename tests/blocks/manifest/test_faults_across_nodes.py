"""What is wrong only beside another node or layer: things taken twice, shared disks, clusters."""

from __future__ import annotations

from pathlib import Path

from tests.blocks.manifest.sample import (
    ENV,
    changed,
    faults_of,
    line_of,
    load,
    only_fault,
    write,
)

RAC = "  cluster: { kind: Cluster, type: oracle-rac }\n"
SHARED = "role: root }\n          - { id: 1, size: 8G, storage_class: both, shared: true }"


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


def test_selinux_of_the_document_is_refused_once_where_nodes_have_a_distro_without_it(
    tmp_path: Path,
) -> None:
    text = changed("distro: rocky9\n", "distro: rocky9\n      selinux: permissive\n")
    for name in ("db1", "db2"):
        text = changed(
            f"      {name}:\n", f"      {name}:\n        kickstart: {{ distro: sles15 }}\n", text
        )

    fault = only_fault(tmp_path, text)

    assert fault.key == "spec.hypervisor.kickstart.selinux"
    assert fault.line == line_of(text, "selinux: permissive")
    assert "the installer of sles15 sets up no SELinux" in str(fault)


def test_a_node_without_selinux_may_set_aside_what_the_document_says_of_it(tmp_path: Path) -> None:
    text = changed("distro: rocky9\n", "distro: rocky9\n      selinux: permissive\n")
    own = "kickstart: { distro: debian13, selinux: null }"
    text = changed("      db2:\n", f"      db2:\n        {own}\n", text)

    one, two = load(tmp_path, text).guests

    assert one.install is not None
    assert two.install is not None
    assert one.install.installation.selinux == "permissive"
    assert two.install.installation.selinux is None


def test_what_stands_in_the_defaults_is_refused_once_not_once_a_node(tmp_path: Path) -> None:
    text = changed(
        "kind: Hypervisor\n", "kind: Hypervisor\n    defaults: { resources: { cors: 2 } }\n"
    )

    fault = only_fault(tmp_path, text)

    assert fault.key == "spec.hypervisor.defaults.resources.cors"


def test_a_disk_tag_that_another_layer_wants_must_be_on_a_disk(tmp_path: Path) -> None:
    layer = "  linux: { kind: Linux, disk_layout: { additional: [{ tag: dta }] } }\n"
    tagged = changed("role: root", "role: root, tag: data", ENV + layer)

    fault = only_fault(tmp_path, tagged)

    assert fault.key == "spec.linux.disk_layout.additional[0].tag"
    assert "no disk has the tag 'dta'; did you mean 'data'?" in str(fault)


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
