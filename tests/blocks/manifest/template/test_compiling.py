"""A template document compiles to a recipe: the template, and whole guests of its clones."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest

from blocks.manifest.guest import CloneSource, Firmware, ImageSource, Inet, PciDevice
from blocks.manifest.loader import load as load_whole
from blocks.manifest.recipe import Alias, Rebuild
from blocks.manifest.render import rendered, to_yaml
from blocks.units import GIB
from tests.blocks.manifest.sample import KEY, changed, write
from tests.blocks.manifest.template.sample import (
    MINIMAL,
    TEMPLATE,
    environment,
    recipe,
    template,
    with_spec,
)


def test_an_environment_of_a_template_has_its_guests_template_first(tmp_path: Path) -> None:
    found = environment(tmp_path)

    assert found.name == "golden"
    assert found.context == "lab"
    assert found.recipe is not None
    assert [guest.label for guest in found.guests] == ["template", "db1", "db2"]
    assert found.guests == (found.recipe.template, *found.recipe.clones)


def test_what_only_the_cluster_knows_is_no_notice_of_a_linked_clone_elsewhere(
    tmp_path: Path,
) -> None:
    found = environment(tmp_path)
    elsewhere = found.guest("db2")

    assert (elsewhere.node, elsewhere.clone and elsewhere.clone.full) == ("pve2", False)
    assert found.notices == ()


def test_a_template_of_nine_lines_has_sane_defaults(tmp_path: Path) -> None:
    guest = template(tmp_path, MINIMAL)

    assert (guest.name, guest.vmid, guest.node) == ("golden", 9000, "pve1")
    assert (guest.cores, guest.memory, guest.cpu) == (2, 2048, "x86-64-v2-AES")
    assert [(disk.slot, disk.storage, disk.size) for disk in guest.disks] == [
        ("scsi0", "local-lvm", 20 * GIB)
    ]
    assert [(nic.slot, nic.bridge) for nic in guest.nics] == [("net0", "vmbr0")]
    assert guest.boot == ("scsi0",)
    assert guest.serial_console
    assert guest.agent
    assert not guest.autostart
    assert guest.firmware == Firmware(machine="i440fx")
    assert guest.cloud_init is not None
    assert guest.cloud_init.method == "fields"
    assert guest.cloud_init.storage == "local-lvm"
    assert guest.cloud_init.ssh_keys == (KEY,)


def test_a_short_name_of_the_catalogue_brings_url_list_and_signature(tmp_path: Path) -> None:
    source = template(tmp_path, changed("debian13", "noble", MINIMAL)).image

    assert source == ImageSource(
        name="noble",
        origin=(
            "https://cloud-images.ubuntu.com/releases/noble/release/"
            "ubuntu-24.04-server-cloudimg-amd64.img"
        ),
        storage="local",
        sums="https://cloud-images.ubuntu.com/releases/noble/release/SHA256SUMS",
        signature="https://cloud-images.ubuntu.com/releases/noble/release/SHA256SUMS.gpg",
    )


def test_an_image_by_url_is_named_after_its_file(tmp_path: Path) -> None:
    text = changed(
        "image: debian13",
        "image: { url: 'https://e.com/a/My%20Image_1.qcow2.xz', checksum: '" + "AB" * 32 + "',"
        " storage: nfs, fetch: here }",
        MINIMAL,
    )

    source = template(tmp_path, text).image

    assert source is not None
    assert source.name == "my-image-1"
    assert str(source.checksum) == "sha256:" + "ab" * 32
    assert (source.storage, source.fetch, source.sums) == ("nfs", "here", None)


def test_an_image_by_path_is_looked_for_beside_the_manifest(tmp_path: Path) -> None:
    source = template(tmp_path, changed("debian13", "./img/own.raw", MINIMAL)).image

    assert source is not None
    assert source.origin == str(tmp_path / "img" / "own.raw")
    assert source.name == "own"


def test_a_checksum_pins_an_image_of_the_catalogue(tmp_path: Path) -> None:
    text = changed(
        "image: debian13",
        "image: { name: debian13, checksum: 'sha512:" + "0" * 128 + "' }",
        MINIMAL,
    )

    source = template(tmp_path, text).image

    assert source is not None
    assert source.checksum is not None
    assert source.checksum.algorithm == "sha512"
    assert source.sums is None


def test_a_clone_is_a_whole_guest_with_what_differs(tmp_path: Path) -> None:
    whole = recipe(tmp_path)
    one, two = whole.clones

    assert one.source == CloneSource(template="template", full=True)
    assert two.source == CloneSource(template="template", full=False)
    assert [guest.node for guest in (one, two)] == ["pve1", "pve2"]
    assert [disk.size for guest in (one, two) for disk in guest.disks] == [40 * GIB, 20 * GIB]
    assert one.cores == whole.template.cores
    assert one.nics[0].vlan == 20
    assert one.tags == ("gold",)
    assert one.autostart
    assert one.ssh_addresses == (ip_address("10.0.0.11"),)
    assert one.nics[0].inet == Inet(
        method="static",
        addresses=(ip_interface("10.0.0.11/24"),),
        gateway=ip_address("10.0.0.1"),
    )
    assert one.cloud_init is not None
    assert (one.cloud_init.hostname, one.cloud_init.domain) == ("db1", "example.com")
    assert one.cloud_init.search == ("example.com",)


def test_macs_are_derived_differ_and_stay(tmp_path: Path) -> None:
    first, again = recipe(tmp_path), recipe(tmp_path)

    macs = [guest.nics[0].mac for guest in (first.template, *first.clones)]

    assert len(set(macs)) == 3
    assert all(mac is not None and mac.startswith("02:") for mac in macs)
    assert first == again


def test_a_given_mac_is_kept_and_not_inherited(tmp_path: Path) -> None:
    text = changed("vlan: 20", "vlan: 20, mac: '02-00-00-00-00-0a'", TEMPLATE)

    whole = recipe(tmp_path, text)

    assert whole.template.nics[0].mac == "02:00:00:00:00:0A"
    assert all(clone.nics[0].mac != "02:00:00:00:00:0A" for clone in whole.clones)


def test_a_clone_overrides_key_by_key(tmp_path: Path) -> None:
    text = changed(
        "      disk: 40G\n",
        "      disk: 40G\n"
        "      storage: ceph\n"
        "      start: false\n"
        "      onboot: true\n"
        "      pool: db\n"
        "      tags: [db]\n"
        "      description: first\n"
        "      resources: { memory: 8192 }\n"
        "      nics: [{ bridge: vmbr1, mtu: 9000 }]\n"
        "      cloud_init: { user: dba }\n",
        TEMPLATE,
    )

    one = recipe(tmp_path, text).clones[0]

    assert (one.memory, one.cores) == (8192, 2)
    assert one.disks[0].storage == "ceph"
    assert one.clone is not None
    assert one.clone.storage == "ceph"
    assert (one.autostart, one.onboot, one.pool, one.description) == (False, True, "db", "first")
    assert one.tags == ("db", "gold")
    assert [(nic.bridge, nic.vlan, nic.mtu) for nic in one.nics] == [("vmbr1", None, 9000)]
    assert one.cloud_init is not None
    assert one.cloud_init.user == "dba"
    assert one.cloud_init.ssh_keys == (KEY,)


def test_a_full_clone_takes_every_volume_to_its_storage(tmp_path: Path) -> None:
    text = with_spec(
        "firmware: { bios: ovmf, tpm: true }\n"
        "disks: [5G]\n"
        "agent: false\n"
        "clones: [{ name: a, vm_id: 200, storage: ceph }]"
    )

    (clone,) = recipe(tmp_path, text).clones

    assert {disk.storage for disk in clone.disks} == {"ceph"}
    assert (clone.firmware.efi_storage, clone.firmware.tpm_storage) == ("ceph", "ceph")
    assert clone.cloud_init is not None
    assert clone.cloud_init.storage == "ceph"


def test_a_pinned_image_that_is_to_be_new_is_noticed(tmp_path: Path) -> None:
    text = with_spec("rebuild: on-new-image", changed("debian13", "oracle9", MINIMAL))

    (notice,) = environment(tmp_path, text).notices

    assert "never a new one" in notice


def test_a_clone_is_in_no_pool_unless_it_says_so(tmp_path: Path) -> None:
    whole = recipe(tmp_path, with_spec("pool: templates", TEMPLATE))

    assert whole.template.pool == "templates"
    assert [clone.pool for clone in whole.clones] == [None, None]


@pytest.mark.parametrize(
    ("asked", "method"),
    [
        ("user: ops", "fields"),
        ("upgrade: true", "fields"),
        ("packages: [chrony]", "seed"),
        ("packages: chrony", "seed"),
        ("commands: [date]", "seed"),
        ("timezone: Europe/Berlin", "seed"),
        ("locale: de_DE.UTF-8", "seed"),
        ("sudo: false", "seed"),
        ("vendor_data: { packages: [htop] }", "seed"),
        ("method: snippets", "snippets"),
        ("method: seed", "seed"),
    ],
)
def test_the_way_of_cloud_init_follows_from_what_is_asked(
    asked: str, method: str, tmp_path: Path
) -> None:
    told = template(tmp_path, MINIMAL + f"    {asked}\n").cloud_init

    assert told is not None
    assert told.method == method
    assert told.storage == ("local" if method == "seed" else "local-lvm")
    assert told.snippet_storage == ("local" if method == "snippets" else None)


@pytest.mark.parametrize(("agent", "method"), [("true", "seed"), ("false", "fields")])
def test_a_clone_gets_its_agent_by_a_seed_and_the_template_needs_none(
    agent: str, method: str, tmp_path: Path
) -> None:
    whole = recipe(tmp_path, with_spec(f"agent: {agent}", TEMPLATE))

    assert whole.template.cloud_init is not None
    assert whole.template.cloud_init.method == "fields"
    assert {clone.cloud_init and clone.cloud_init.method for clone in whole.clones} == {method}


@pytest.mark.parametrize(("method", "drive"), [("", "local-lvm"), ("    method: seed\n", "isos")])
def test_a_storage_for_the_seeds_of_clones_is_not_asked_to_take_the_templates_drive(
    method: str, drive: str, tmp_path: Path
) -> None:
    text = changed("    user: ops\n", f"    user: ops\n    storage: isos\n{method}", TEMPLATE)

    whole = recipe(tmp_path, text)

    assert whole.template.cloud_init is not None
    assert whole.template.cloud_init.storage == drive
    assert {clone.cloud_init and clone.cloud_init.storage for clone in whole.clones} == {"isos"}


def test_a_clone_of_an_image_with_the_agent_may_keep_to_the_options(tmp_path: Path) -> None:
    text = changed("    user: ops\n", "    user: ops\n    method: fields\n", TEMPLATE)

    whole = recipe(tmp_path, text)

    assert {guest.cloud_init and guest.cloud_init.method for guest in whole.clones} == {"fields"}


@pytest.mark.parametrize(
    ("asked", "slot"),
    [
        ("firmware: { bios: seabios }", "ide2"),
        ("firmware: { bios: ovmf }", "scsi30"),
        ("firmware: { machine: pc-q35-9.0 }", "scsi30"),
    ],
)
def test_the_drive_is_where_every_cloud_kernel_sees_it(
    asked: str, slot: str, tmp_path: Path
) -> None:
    found = environment(tmp_path, with_spec(asked, MINIMAL))

    assert [guest.cloud_init and guest.cloud_init.slot for guest in found.guests] == [slot]


def test_a_named_card_needs_the_seed(tmp_path: Path) -> None:
    told = template(tmp_path, with_spec("nics: [{ bridge: vmbr0, name: lan0 }]")).cloud_init

    assert told is not None
    assert told.method == "seed"


@pytest.mark.parametrize(
    ("written", "inet"),
    [
        ("dhcp", Inet(method="dhcp")),
        ("none", Inet(method="none")),
        ("auto6", Inet(method="none", ipv6="auto")),
        ("dhcp6", Inet(method="none", ipv6="dhcp")),
        ("10.0.0.5/24", Inet(method="static", addresses=(ip_interface("10.0.0.5/24"),))),
        ("'2001:db8::5/64'", Inet(method="static", addresses=(ip_interface("2001:db8::5/64"),))),
        ("{ address: dhcp, address6: auto }", Inet(method="dhcp", ipv6="auto")),
        (
            "{ address: 10.0.0.5/24, gateway: 10.0.0.9, address6: fd00::5/64, gateway6: fd00::1 }",
            Inet(
                method="static",
                addresses=(ip_interface("10.0.0.5/24"), ip_interface("fd00::5/64")),
                gateway=ip_address("10.0.0.9"),
                gateway6=ip_address("fd00::1"),
            ),
        ),
        (
            "{ address: 10.0.0.5/24, gateway: 10.0.0.1, address6: auto }",
            Inet(
                method="static",
                addresses=(ip_interface("10.0.0.5/24"),),
                gateway=ip_address("10.0.0.1"),
                ipv6="auto",
            ),
        ),
    ],
)
def test_addresses_are_said_in_words_or_in_full(written: str, inet: Inet, tmp_path: Path) -> None:
    guest = template(tmp_path, MINIMAL + f"    ip: [{written}]\n")

    assert guest.nics[0].inet == inet


def test_only_the_first_static_card_gets_the_common_gateway(tmp_path: Path) -> None:
    text = with_spec("nics: [vmbr0, vmbr1, vmbr2]") + "  clones:\n"
    text += (
        "    - { name: a, vm_id: 200, ip: [dhcp, 10.0.0.5/24, 10.1.0.5/24], gateway: 10.0.0.1 }\n"
    )

    (clone,) = recipe(tmp_path, text).clones

    assert [nic.inet.gateway for nic in clone.nics] == [None, ip_address("10.0.0.1"), None]


@pytest.mark.parametrize(
    ("written", "firmware"),
    [
        ("ovmf", Firmware(bios="ovmf", machine="q35", efi_storage="local-lvm")),
        (
            "{ secure_boot: true }",
            Firmware(bios="ovmf", machine="q35", efi_storage="local-lvm", secure_boot=True),
        ),
        (
            "{ efi_storage: zfs, tpm: true }",
            Firmware(bios="ovmf", machine="q35", efi_storage="zfs", tpm_storage="local-lvm"),
        ),
        ("{ tpm_storage: zfs }", Firmware(tpm_storage="zfs")),
        ("{ machine: q35 }", Firmware(machine="q35")),
        ("{ machine: pc }", Firmware(machine="i440fx")),
    ],
)
def test_firmware_follows_from_what_is_asked(
    written: str, firmware: Firmware, tmp_path: Path
) -> None:
    assert template(tmp_path, with_spec(f"firmware: {written}")).firmware == firmware


def test_an_image_that_boots_by_uefi_alone_gets_it(tmp_path: Path) -> None:
    text = changed("debian13", "alpine", MINIMAL)

    assert template(tmp_path, text).firmware.bios == "ovmf"
    (notice,) = environment(tmp_path, with_spec("firmware: seabios", text)).notices
    assert "made for ovmf, not for seabios" in notice


def test_an_image_for_newer_processors_gets_such_a_cpu(tmp_path: Path) -> None:
    text = changed("debian13", "rocky10", MINIMAL)

    assert template(tmp_path, text).cpu == "x86-64-v3"
    assert template(tmp_path, with_spec("resources: { cpu: host }", text)).cpu == "host"


def test_devices_are_mappings_or_raw_ids_and_clones_have_them_too(tmp_path: Path) -> None:
    text = with_spec(
        """
image: { name: debian13-generic }
pci: [{ mapping: gpu, primary: true }, "0000:01:00.1", audio]
clones:
  - { name: a, vm_id: 200 }
  - { name: b, vm_id: 201, pci: [] }
""",
        MINIMAL.replace("  image: debian13\n", ""),
    )

    whole = recipe(tmp_path, text)

    assert whole.template.pci == (
        PciDevice(mapping="gpu", primary=True),
        PciDevice(device="0000:01:00.1"),
        PciDevice(mapping="audio"),
    )
    assert whole.template.firmware.machine == "q35"
    assert whole.template.display == "none"
    assert [len(clone.pci) for clone in whole.clones] == [3, 0]
    assert [clone.display for clone in whole.clones] == ["none", None]


def test_data_disks_take_free_slots_and_the_root_disks_storage(tmp_path: Path) -> None:
    text = with_spec("disks: [10G, { size: 5G, storage: fast, slot: virtio1, serial: data }]")

    disks = template(tmp_path, text).disks

    assert [(disk.slot, disk.storage, disk.size) for disk in disks] == [
        ("scsi0", "local-lvm", 20 * GIB),
        ("scsi1", "local-lvm", 10 * GIB),
        ("virtio1", "fast", 5 * GIB),
    ]
    assert disks[2].serial == "data"
    assert not disks[2].ssd


@pytest.mark.parametrize(
    ("written", "rebuild"),
    [
        ("rebuild: never", Rebuild(vmids=(9000, 9000))),
        ("rebuild: weekly", Rebuild(when="weekly", vmids=(9000, 9009))),
        (
            "rebuild: { when: on-new-image, keep: 1, vm_ids: [8999, 9001] }",
            Rebuild(when="on-new-image", keep=1, vmids=(8999, 9001)),
        ),
    ],
)
def test_generations_have_numbers_of_their_own(
    written: str, rebuild: Rebuild, tmp_path: Path
) -> None:
    assert recipe(tmp_path, with_spec(written)).rebuild == rebuild


def test_the_alias_is_not_on_the_guests(tmp_path: Path) -> None:
    whole = recipe(tmp_path)

    assert whole.alias == Alias(tag="golden-current", pool="golden")
    assert all("golden-current" not in guest.tags for guest in (whole.template, *whole.clones))


def test_a_password_comes_by_reference_and_is_shown_nowhere(tmp_path: Path) -> None:
    text = MINIMAL + "    password: ${env:OPS_PASSWORD}\n"
    env = {"OPS_PASSWORD": "correct horse"}

    guest = template(tmp_path, text, env)
    shown = to_yaml(rendered(load_whole(write(tmp_path, text), env=env), guests=True))

    assert guest.cloud_init is not None
    assert guest.cloud_init.password is not None
    assert guest.cloud_init.password.get_secret_value() == "correct horse"
    assert "correct horse" not in repr(guest) + shown


def test_secrets_in_a_document_are_shown_nowhere(tmp_path: Path) -> None:
    text = MINIMAL.replace("ssh_keys", "user_data: { password: '${env:PW}' }\n    # ssh_keys")
    env = {"PW": "s3cret-enough"}

    guest = template(tmp_path, text, env)
    shown = to_yaml(rendered(load_whole(write(tmp_path, text), env=env), guests=True))

    assert guest.cloud_init is not None
    assert guest.cloud_init.user_data == "#cloud-config\npassword: s3cret-enough\n"
    assert "s3cret-enough" not in repr(guest) + shown


def test_parts_may_be_in_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "clones.yaml").write_text("name: a\nvm_id: 200\n")
    text = with_spec("clones: [{ $ref: clones.yaml }]")

    whole = environment(tmp_path, text)

    assert [guest.name for guest in whole.guests] == ["golden", "a"]
    assert [file.name for file in whole.source_files] == ["env.yaml", "clones.yaml"]
