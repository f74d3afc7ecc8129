"""What an environment compiles to: guests with everything filled in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blocks.manifest.cards import derived_mac
from blocks.manifest.environment import Environment, UnknownGuest
from blocks.manifest.guest import Guest, Inet, IsoSource, SharedDisk
from blocks.manifest.loader import load_environment
from blocks.units import GIB
from tests.blocks.manifest.sample import ENV, KEY, changed, load, write
from tests.blocks.manifest.test_faults_across_nodes import SHARED, shared_disks

NIC = "ipv4: { address: 10.0.0.11/24 }"
NODE = "resources: { memory: 2048, cores: 2 }"


def first(environment: Environment) -> Guest:
    return environment.guests[0]


def source(guest: Guest) -> IsoSource:
    assert guest.install is not None
    return guest.install


def texts(inet: Inet) -> list[str]:
    return [str(address) for address in inet.addresses]


def test_the_environment_knows_its_name_place_and_files(tmp_path: Path) -> None:
    environment = load(tmp_path)

    assert (environment.name, environment.domain) == ("shop", "example.com")
    assert environment.context == "prod"
    assert environment.path == tmp_path / "env.yaml"
    assert environment.source_files == (tmp_path / "env.yaml",)
    assert environment.storage_classes["both"].backend == "nfs1"


def test_guests_come_in_the_order_of_the_manifest(tmp_path: Path) -> None:
    text = changed("      db1:", "      zz:")

    assert [guest.label for guest in load(tmp_path, text).guests] == ["zz", "db2"]


def test_a_guest_is_found_by_label_name_or_number(tmp_path: Path) -> None:
    environment = load(tmp_path, changed(NODE, "hostname: primary"))

    assert environment.guest("db1").vmid == 101
    assert environment.guest("primary").vmid == 101
    assert environment.guest("102").label == "db2"
    with pytest.raises(UnknownGuest, match=r"did you mean 'db2'\? \(nodes: db1, db2\)"):
        environment.guest("db22")


def test_a_guest_has_what_its_node_declares(tmp_path: Path) -> None:
    guest = first(load(tmp_path))

    assert (guest.node, guest.vmid, guest.name) == ("pve1", 101, "db1")
    assert (guest.memory, guest.cores, guest.sockets) == (2048, 2, 1)
    assert guest.disks[0].slot == "scsi0"
    assert guest.disks[0].storage == "local-lvm"
    assert guest.disks[0].size == 32 * GIB
    assert guest.ostype == "l26"


def test_an_installed_guest_boots_from_its_root_disk_and_has_empty_drives(tmp_path: Path) -> None:
    guest = first(load(tmp_path))

    assert guest.boot == ("scsi0",)
    assert guest.drives == {"ide2": "none", "ide3": "none"}


def test_a_guest_without_iso_has_no_drives(tmp_path: Path) -> None:
    text = ENV[: ENV.index("    iso:")] + ENV[ENV.index("  networks:") :]

    guest = first(load(tmp_path, text))

    assert guest.source is None
    assert guest.drives == {}


def test_the_root_disk_is_the_one_with_the_role_wherever_it_is(tmp_path: Path) -> None:
    text = changed(
        "- { id: 0, size: 32G, storage_class: slow, role: root }",
        "- { id: 7, size: 1G, storage_class: slow }\n"
        "          - { id: 8, size: 32G, storage_class: both, role: root }",
    )

    guest = first(load(tmp_path, changed(NODE, "resources: { bios: ovmf }", text)))

    assert guest.boot == ("scsi1",)
    assert source(guest).installation.root_disk == "scsi1"
    assert guest.firmware.efi_storage == "nfs1"


def test_disks_without_a_slot_get_free_ones(tmp_path: Path) -> None:
    text = changed(
        "role: root }",
        "role: root }\n"
        "          - { id: 1, size: 1G, storage: fast }\n"
        "          - { id: 2, size: 2G, storage_class: slow, storage: fast, interface: scsi1 }\n"
        "          - { id: 3, size: 3G, storage_class: slow, interface: virtio0 }",
    )

    disks = first(load(tmp_path, text)).disks

    assert [disk.slot for disk in disks] == ["scsi0", "scsi2", "scsi1", "virtio0"]
    assert [disk.storage for disk in disks] == ["local-lvm", "fast", "fast", "local-lvm"]
    assert [disk.ssd for disk in disks] == [True, True, True, False]


def test_uefi_takes_q35_and_keeps_its_variables_beside_the_root_disk(tmp_path: Path) -> None:
    firmware = first(load(tmp_path, changed(NODE, "resources: { bios: ovmf }"))).firmware

    assert (firmware.bios, firmware.machine) == ("ovmf", "q35")
    assert firmware.efi_storage == "local-lvm"


def test_machine_and_efi_storage_can_be_chosen(tmp_path: Path) -> None:
    chosen = "resources: { bios: ovmf, machine: pc-q35-8.1, efi_storage: both, tpm_storage: nas }"

    firmware = first(load(tmp_path, changed(NODE, chosen))).firmware

    assert firmware.machine == "pc-q35-8.1"
    assert firmware.efi_storage == "nfs1"
    assert firmware.tpm_storage == "nas"


def test_bios_takes_i440fx_and_no_efi_disk(tmp_path: Path) -> None:
    firmware = first(load(tmp_path)).firmware

    assert (firmware.bios, firmware.machine, firmware.efi_storage) == ("seabios", "i440fx", None)


def test_a_static_card_falls_back_to_gateway_and_name_servers_of_its_zone(tmp_path: Path) -> None:
    inet = first(load(tmp_path)).nics[0].inet

    assert inet.method == "static"
    assert texts(inet) == ["10.0.0.11/24"]
    assert str(inet.gateway) == "10.0.0.1"
    assert [str(server) for server in inet.dns] == ["10.0.0.2"]


def test_what_a_card_says_itself_wins_over_its_zone(tmp_path: Path) -> None:
    own = "ipv4: { address: 10.0.0.11/24, gateway: 10.0.0.9, dns: [] }"

    inet = first(load(tmp_path, changed(NIC, own))).nics[0].inet

    assert str(inet.gateway) == "10.0.0.9"
    assert inet.dns == ()


def test_a_node_gets_one_default_route_though_both_zones_have_a_gateway(tmp_path: Path) -> None:
    text = changed("10.0.1.0/24 }", "10.0.1.0/24, gateway: 10.0.1.1 }")
    second = (
        f"{NIC}\n          - {{ name: net1, usage: private, network: private, "
        "ipv4: { address: 10.0.1.11/24 } }"
    )

    nics = first(load(tmp_path, changed(NIC, second, text))).nics

    assert [str(nic.inet.gateway) for nic in nics] == ["10.0.0.1", "None"]


def test_a_card_takes_the_address_of_its_role_with_the_prefix_of_its_zone(tmp_path: Path) -> None:
    inet = first(load(tmp_path, changed(NIC, "hostname_aliases: [db]"))).nics[0].inet

    assert inet.method == "static"
    assert texts(inet) == ["10.0.0.11/24"]
    assert str(inet.gateway) == "10.0.0.1"


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ("bootproto: dhcp", "dhcp"),
        (f"bootproto: static\n            {NIC}", "static"),
        ("bootproto: none", "none"),
        (f"bootproto: link\n            {NIC}", "none"),
        (f"controlled_by: crs\n            {NIC}", "none"),
        (f"controlled_by: networkd\n            {NIC}", "static"),
        (f"shared_with_cluster: true\n            {NIC}", "none"),
    ],
)
def test_how_a_card_gets_its_address(words: str, method: str, tmp_path: Path) -> None:
    inet = first(load(tmp_path, changed(NIC, words))).nics[0].inet

    assert inet.method == method
    assert bool(inet.addresses) == (method == "static")


def test_a_card_without_any_address_uses_dhcp(tmp_path: Path) -> None:
    text = changed("ips: { public: 10.0.0.11 }", "ips: {}")

    guest = first(load(tmp_path, changed(f"            {NIC}\n", "", text)))

    assert guest.nics[0].inet.method == "dhcp"
    assert guest.ssh_addresses == ()


@pytest.mark.parametrize("usage", ["vip", "scan"])
def test_moving_addresses_are_left_to_the_cluster_software(usage: str, tmp_path: Path) -> None:
    extra = f"{NIC}\n          - {{ name: net1, usage: {usage}, bridge: vmbr0, network: public }}"
    bare = f"{NIC}\n          - {{ name: eth9, usage: {usage}, ipv4_addresses: [10.0.0.99] }}"

    with_bridge = first(load(tmp_path, changed(NIC, extra))).nics
    without = first(load(tmp_path, changed(NIC, bare))).nics

    assert with_bridge[1].inet == Inet(method="none")
    assert len(without) == 1


def test_further_addresses_take_the_prefix_of_the_first(tmp_path: Path) -> None:
    more = f"{NIC}\n            ipv4_addresses: [10.0.0.21, 10.0.0.22/32]"

    inet = first(load(tmp_path, changed(NIC, more))).nics[0].inet

    assert texts(inet) == ["10.0.0.11/24", "10.0.0.21/24", "10.0.0.22/32"]


def test_a_name_that_is_no_slot_is_the_interface_in_the_guest(tmp_path: Path) -> None:
    text = changed("name: net0", "name: ens18")
    text = changed(NIC, f"{NIC}\n          - {{ name: net0, bridge: vmbr1 }}", text)

    nics = first(load(tmp_path, text)).nics

    assert [(nic.slot, nic.name, nic.bridge) for nic in nics] == [
        ("net1", "ens18", "vmbr0"),
        ("net0", None, "vmbr1"),
    ]


def test_bridge_and_vlan_fall_back_to_the_zone_and_then_to_vmbr0(tmp_path: Path) -> None:
    text = changed("            bridge: vmbr0\n", "").replace("            bridge: vmbr0\n", "")
    zoned = changed("cidr: 10.0.0.0/24,", "cidr: 10.0.0.0/24, bridge: vmbr7, vlan: 12,", text)

    plain = first(load(tmp_path, text)).nics[0]
    of_zone = first(load(tmp_path, zoned)).nics[0]

    assert (plain.bridge, plain.vlan) == ("vmbr0", None)
    assert (of_zone.bridge, of_zone.vlan) == ("vmbr7", 12)


def test_a_given_mac_address_is_kept_in_upper_case(tmp_path: Path) -> None:
    text = changed("name: net0", "name: net0\n            mac: 02-aa-bb-cc-dd-ee")

    assert first(load(tmp_path, text)).nics[0].mac == "02:AA:BB:CC:DD:EE"


def test_derived_mac_addresses_are_local_stable_and_differ(tmp_path: Path) -> None:
    once = [guest.nics[0].mac for guest in load(tmp_path).guests]
    moved = load(tmp_path, changed("name: net0", "mac: auto\n            name: net0"))
    other = load(tmp_path, changed("name: shop", "name: shop2"))

    assert all(re.fullmatch(r"02(:[0-9A-F]{2}){5}", str(mac)) for mac in once)
    assert len(set(once)) == 2
    assert [guest.nics[0].mac for guest in moved.guests] == once
    assert not set(once) & {guest.nics[0].mac for guest in other.guests}


def test_a_derived_mac_address_steps_aside_for_a_given_one(tmp_path: Path) -> None:
    taken = derived_mac("shop", 102, "net0")
    text = changed("name: net0", f'name: net0\n            mac: "{taken}"')

    macs = [guest.nics[0].mac for guest in load(tmp_path, text).guests]

    assert macs[0] == taken
    assert macs[1] not in (None, taken)


def test_one_volume_is_owned_by_the_first_node_and_attached_by_the_others(tmp_path: Path) -> None:
    owner, user = load(tmp_path, shared_disks()).guests

    assert (owner.disks[1].shared, owner.disks[1].shared_with) == (True, None)
    assert user.disks[1].shared is False
    assert user.disks[1].shared_with == SharedDisk(vmid=101, slot="scsi1")
    assert owner.disks[1].storage == user.disks[1].storage == "nfs1"


def test_disks_on_a_shared_class_that_are_not_shared_are_volumes_of_their_own(
    tmp_path: Path,
) -> None:
    own = SHARED.replace(", shared: true", "")

    guests = load(tmp_path, shared_disks(own, own)).guests

    assert not any(disk.shared or disk.shared_with for guest in guests for disk in guest.disks)


def test_tags_of_environment_defaults_and_node_add_up_as_proxmox_keeps_them(tmp_path: Path) -> None:
    text = changed("name: shop,", "name: shop, tags: { Owner: DBA, critical: true },")
    text = changed("kind: Hypervisor\n", "kind: Hypervisor\n    defaults: { tags: [Zoo] }\n", text)
    text = changed(NODE, "tags: [pg, zoo]", text)

    guests = load(tmp_path, text).guests

    assert guests[0].tags == ("critical", "owner-dba", "pg", "zoo")
    assert guests[1].tags == ("critical", "owner-dba", "zoo")


def test_defaults_are_merged_under_each_node_and_its_lists_are_replaced(tmp_path: Path) -> None:
    text = changed(
        "kind: Hypervisor\n",
        "kind: Hypervisor\n    defaults:\n"
        "      resources: { memory: 9999, sockets: 2 }\n"
        "      disks: [{ id: 0, size: 1T, storage_class: slow }]\n"
        "      pool: dbs\n",
    )

    one, two = load(tmp_path, text).guests

    assert (one.memory, one.sockets, one.cores) == (2048, 2, 2)
    assert two.memory == 9999
    assert one.disks[0].size == 32 * GIB
    assert one.pool == two.pool == "dbs"


def test_null_takes_back_what_the_defaults_give(tmp_path: Path) -> None:
    text = changed("kind: Hypervisor\n", "kind: Hypervisor\n    defaults: { pool: dbs }\n")

    one, two = load(tmp_path, changed(NODE, "pool: null", text)).guests

    assert (one.pool, two.pool) == (None, "dbs")


def test_a_node_may_differ_in_iso_and_kickstart(tmp_path: Path) -> None:
    text = changed(NODE, "iso: { image: debian.iso }\n        kickstart: { distro: debian13 }")

    one, two = load(tmp_path, text).guests

    assert source(one).iso == "local:iso/debian.iso"
    assert source(one).installation.distro == "debian13"
    assert source(one).installation.root_ssh_keys == (KEY,)
    assert source(two).installation.distro == "rocky9"


def test_the_image_may_be_a_whole_volume_id(tmp_path: Path) -> None:
    text = changed("image: rocky9.iso", "image: 'nas:iso/el9.iso', kickstart_storage: seeds")

    found = source(first(load(tmp_path, text)))

    assert (found.iso, found.seed_storage) == ("nas:iso/el9.iso", "seeds")


def test_the_installation_is_told_everything(tmp_path: Path) -> None:
    text = changed(
        "distro: rocky9\n",
        "distro: rocky9\n"
        "      timezone: Europe/Berlin\n"
        "      keyboard_layout: de\n"
        "      ipv6: false\n"
        "      install_url: https://mirror.example.com/\n"
        "      chrony_servers: [a, b]\n"
        "      sudo: { wheel_nopasswd: true }\n"
        "      packages: { base: [vim], post: [pg] }\n"
        "      repos: [{ name: epel, baseurl: https://e.example.com, cost: 5 }]\n"
        "      firewall: { enabled: false }\n"
        "      selinux: permissive\n"
        "      update_system: true\n"
        "      root_password_hash: $6$salt$hash\n"
        "      additional_users: [{ name: ops, wheel: true }]\n",
    )

    told = source(first(load(tmp_path, text))).installation

    assert (told.hostname, told.domain, told.distro) == ("db1", "example.com", "rocky9")
    assert (told.timezone, told.keyboard, told.ipv6) == ("Europe/Berlin", "de", False)
    assert told.install_url == "https://mirror.example.com/"
    assert told.ntp_servers == ("a", "b")
    assert told.sudo_nopasswd
    assert (told.packages, told.packages_post) == (("vim",), ("pg",))
    assert (told.repositories[0].name, told.repositories[0].cost) == ("epel", 5)
    assert (told.firewall, told.selinux, told.update_system) == (False, "permissive", True)
    assert told.root_password_hash is not None
    assert told.root_password_hash.get_secret_value() == "$6$salt$hash"
    assert (told.users[0].name, told.users[0].sudo) == ("ops", True)


def test_keys_of_users_come_from_both_places_and_files(tmp_path: Path) -> None:
    (tmp_path / "id.pub").write_text(f"# mine\n\n{KEY}\n")
    text = changed(f'root: ["{KEY}"]', f'root: ["./id.pub"], ops: ["{KEY}"], other: ["{KEY}"]')
    text = changed(
        "distro: rocky9\n",
        "distro: rocky9\n      additional_users: [{ name: ops, ssh_key: ./id.pub }]\n",
        text,
    )

    environment = load(tmp_path, text)
    told = source(first(environment)).installation

    assert told.root_ssh_keys == (KEY,)
    assert {user.name: user.ssh_keys for user in told.users} == {"ops": (KEY,), "other": (KEY,)}
    assert tmp_path / "id.pub" in environment.source_files


def test_a_key_file_below_the_home_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "id.pub").write_text(KEY)

    told = source(first(load(tmp_path, changed(f'"{KEY}"', "~/id.pub")))).installation

    assert told.root_ssh_keys == (KEY,)


def test_hosts_have_the_declared_lines_and_every_node(tmp_path: Path) -> None:
    text = changed(NIC, f"{NIC}\n            hostname_aliases: [db]")
    text += (
        "  cluster:\n    kind: Cluster\n    hosts_entries:\n"
        "      - { ip: 10.0.0.50, names: [vip] }\n      - { ip: 10.0.0.12, names: [second] }\n"
    )

    hosts = source(first(load(tmp_path, text))).installation.hosts

    assert {str(entry.ip): entry.names for entry in hosts} == {
        "10.0.0.50": ("vip",),
        "10.0.0.12": ("second", "db2.example.com", "db2"),
        "10.0.0.11": ("db1.example.com", "db1", "db"),
    }


def test_ssh_is_looked_for_on_management_then_public_then_private(tmp_path: Path) -> None:
    cards = (
        f"{NIC}\n"
        "          - { name: net1, usage: private, network: private, "
        "ipv4: { address: 10.0.1.11/24 } }\n"
        "          - { name: net2, usage: management, ipv4: { address: 10.7.0.11/24 } }"
    )
    text = changed(NIC, cards)

    guest = first(load(tmp_path, text))

    assert [str(ip) for ip in guest.ssh_addresses] == ["10.7.0.11", "10.0.0.11", "10.0.1.11"]


def test_without_those_roles_the_first_address_is_taken(tmp_path: Path) -> None:
    text = changed("ips: { public: 10.0.0.11 }", "ips: { backup: 10.8.0.1, other: 10.8.0.2 }")
    start, end = text.index("            usage: public"), text.index("        disks:")
    text = f"{text[:start]}            bridge: vmbr0\n{text[end:]}"

    guest = first(load(tmp_path, text))

    assert [str(ip) for ip in guest.ssh_addresses] == ["10.8.0.1"]


def test_a_host_name_with_dots_brings_its_own_domain(tmp_path: Path) -> None:
    guest = first(load(tmp_path, changed(NODE, "hostname: pg.corp.example.org")))

    told = source(guest).installation
    assert guest.name == "pg.corp.example.org"
    assert (told.hostname, told.domain) == ("pg", "corp.example.org")
    assert told.hosts[0].names == ("pg.corp.example.org", "pg")


def test_layers_may_be_files_of_files_and_absolute_paths(tmp_path: Path) -> None:
    sub = tmp_path / "sub"
    sub.mkdir()
    (sub / "net.yaml").write_text("kind: Networks\npublic: { $ref: ./public.yaml }\n")
    (sub / "public.yaml").write_text("cidr: 10.0.0.0/24\n")
    start, end = ENV.index("  networks:"), ENV.index("  storage_classes:")
    text = f"{ENV[:start]}  networks: {{ $ref: {sub}/net.yaml }}\n{ENV[end:]}"

    environment = load(tmp_path, text)

    assert [file.name for file in environment.source_files] == [
        "env.yaml",
        "net.yaml",
        "public.yaml",
    ]


def test_what_stands_beside_a_reference_wins_over_the_file(tmp_path: Path) -> None:
    start, end = ENV.index("  networks:"), ENV.index("  storage_classes:")
    beside = "{ $ref: ./net.yaml, public: { gateway: 10.0.0.254 } }"
    text = f"{ENV[:start]}  networks: {beside}\n{ENV[end:]}"
    path = write(
        tmp_path, text, net_yaml="kind: Networks\npublic: { cidr: 10.0.0.0/24, gateway: 10.0.0.1 }"
    )

    inet = load_environment(path, env={}).guests[0].nics[0].inet

    assert str(inet.gateway) == "10.0.0.254"


def test_yaml_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = changed(NODE, "resources: &big { memory: 4096, cores: 8 }")
    text = changed("vm_id: 102 }", "vm_id: 102 }\n        resources: { <<: *big, cores: 1 }", text)

    one, two = load(tmp_path, text).guests

    assert (one.memory, one.cores) == (4096, 8)
    assert (two.memory, two.cores) == (4096, 1)


def test_the_version_may_be_a_number(tmp_path: Path) -> None:
    assert load(tmp_path, changed('version: "1"', "version: 1")).name == "shop"


def test_who_could_not_log_in_is_told_beforehand(tmp_path: Path) -> None:
    text = changed(f'      ssh_keys: {{ root: ["{KEY}"] }}\n', "")

    assert "db1: nobody can log in; add kickstart.ssh_keys" in load(tmp_path, text).notices
    assert load(tmp_path).notices == ()


ADMIN = f'additional_users: [{{ name: ops, wheel: true, ssh_key: "{KEY}" }}]'


@pytest.mark.parametrize(
    ("also", "warned"),
    [
        ("", True),
        ("sudo: { wheel_nopasswd: true }", False),
        ("root_password_hash: $6$saltsalt$abcdefgh.abcdefgh", True),
    ],
)
def test_an_administrator_without_a_password_is_told_beforehand(
    also: str, warned: bool, tmp_path: Path
) -> None:
    text = changed("distro: rocky9", f"distro: rocky9\n      {ADMIN}\n      {also}")

    notice = (
        "db1: ops has no password that sudo could ask for; give kickstart.additional_users[0] a "
        "password_hash, or say kickstart.sudo.wheel_nopasswd: true"
    )
    assert (notice in load(tmp_path, text).notices) is warned


def test_what_common_parts_lack_may_be_in_each_node(tmp_path: Path) -> None:
    text = changed("iso: { storage: local, image: rocky9.iso }", "iso: { storage: local }")
    text = changed("distro: rocky9", "timezone: Europe/Berlin", text)
    for number, distro in ((1, "rocky9"), (2, "debian12")):
        own = f"iso: {{ image: {distro}.iso }}\n        kickstart: {{ distro: {distro} }}"
        place = f"proxmox: {{ node_name: pve{number}"
        text = changed(place, f"{own}\n        {place}", text)

    sources = [guest.install for guest in load(tmp_path, text).guests]

    assert [source.iso for source in sources if source] == [
        "local:iso/rocky9.iso",
        "local:iso/debian12.iso",
    ]
    told = [source.installation for source in sources if source]
    assert [(one.distro, one.timezone) for one in told] == [
        ("rocky9", "Europe/Berlin"),
        ("debian12", "Europe/Berlin"),
    ]


def test_a_key_that_is_cut_short_loads_with_a_notice(tmp_path: Path) -> None:
    text = changed(KEY, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLE ops@example.com")

    assert any("cut short" in notice for notice in load(tmp_path, text).notices)


def test_a_second_load_of_the_same_files_gives_an_equal_environment(tmp_path: Path) -> None:
    assert load(tmp_path) == load(tmp_path)
