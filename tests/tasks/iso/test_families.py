"""What each installer is told about network, disks, firmware and packages."""

from __future__ import annotations

import configparser
import subprocess
from pathlib import Path
from typing import Any

import pytest

from blocks.manifest.guest import Firmware, Guest, Inet, Nic, Repository
from tasks.iso.render import RenderError, render

from .guests import HASH, ROOT_HASH, STATIC, full, nic, plain
from .reading import NS, autoinstall, kickstart, preseed, profile, put_files, setup

EL = ["oraclelinux8", "rhel9", "rocky10", "fedora"]
V6_ONLY = Inet.model_validate(
    {"method": "static", "addresses": ("fd00::7/64",), "gateway": "fe80::1", "dns": ("fd00::2",)}
)
DHCP_DNS = Inet.model_validate({"method": "dhcp", "dns": ("10.0.0.2",), "search": ("x.example",)})


def keyfile(guest: Guest, slot: str) -> dict[str, dict[str, str]]:
    path = f"/etc/NetworkManager/system-connections/proxflow-{slot}.nmconnection"
    mode, text = put_files(render(guest, env="prod"))[path]
    assert mode == "0600"
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def interfaces(guest: Guest) -> list[str]:
    return put_files(render(guest, env="prod"))["/etc/network/interfaces"][1].splitlines()


def text_of(guest: Guest, path: str) -> str | None:
    return profile(render(guest, env="prod")).findtext(path, None, NS)


# Anaconda


@pytest.mark.parametrize("distro", EL)
def test_anaconda_installs_over_the_card_with_the_gateway(distro: str) -> None:
    guest = full(distro, nics=(nic(0), nic(1, STATIC)))

    first = kickstart(render(guest, env="prod")).network.network[0]

    assert first.device == "bc:24:11:00:00:01"
    assert (first.ip, first.netmask, first.gateway) == ("10.0.0.5", "255.255.255.0", "10.0.0.1")
    assert first.ipv6 == "fd00::5/64"
    assert first.nameserver == "10.0.0.2,fd00::2"


def test_anaconda_without_ipv4_is_told_so() -> None:
    network = kickstart(render(plain("rocky9", nics=(nic(0, V6_ONLY),)), env="prod")).network

    assert network.network[0].noipv4
    assert network.network[0].ipv6gateway == "fe80::1"


@pytest.mark.parametrize("distro", EL)
def test_a_static_card_of_the_red_hat_family_is_bound_to_its_mac(distro: str) -> None:
    found = keyfile(full(distro), "net0")

    assert found["ethernet"] == {"mac-address": "BC:24:11:00:00:00"}
    assert found["ipv4"] == {
        "method": "manual",
        "address1": "10.0.0.5/24",
        "address2": "10.0.0.6/24",
        "gateway": "10.0.0.1",
        "dns": "10.0.0.2;",
        "dns-search": "corp.example;",
    }
    assert found["ipv6"] == {
        "method": "manual",
        "address1": "fd00::5/64",
        "dns": "fd00::2;",
        "dns-search": "corp.example;",
    }
    assert "interface-name" not in found["connection"]


@pytest.mark.parametrize(
    ("inet", "ipv6", "expected"),
    [
        (Inet(), True, ("auto", "auto")),
        (Inet(), False, ("auto", "disabled")),
        (Inet(method="none"), True, ("disabled", "disabled")),
        (V6_ONLY, True, ("disabled", "manual")),
    ],
)
def test_networkmanager_methods_follow_the_card(
    inet: Inet, ipv6: bool, expected: tuple[str, str]
) -> None:
    found = keyfile(plain("rocky9", nics=(nic(0, inet),), ipv6=ipv6), "net0")

    assert (found["ipv4"]["method"], found["ipv6"]["method"]) == expected


def test_anacondas_own_profiles_are_removed_before_ours_are_written() -> None:
    script = setup(render(full("rocky9"), env="prod"))

    assert script.index("rm -f /etc/sysconfig/network-scripts/ifcfg-*") < script.index("net0.nm")


@pytest.mark.parametrize("distro", ["rocky9", "debian12"])
def test_a_named_card_is_named_by_its_mac_in_the_initramfs_too(distro: str) -> None:
    rendered = render(full(distro), env="prod")

    _, text = put_files(rendered)["/etc/systemd/network/70-proxflow-pub0.link"]

    assert text == "[Match]\nMACAddress=bc:24:11:00:00:00\n\n[Link]\nName=pub0"
    assert "dracut --force" in setup(rendered) or "update-initramfs -u" in setup(rendered)


def test_anaconda_lays_out_lvm_on_the_root_disk_only() -> None:
    handler = kickstart(render(full("rocky9"), env="prod"))
    disk = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi0"

    assert handler.ignoredisk.onlyuse == [disk]
    assert handler.bootloader.bootDrive == disk
    assert handler.reqpart.reqpart
    assert [(lv.name, lv.mountpoint) for lv in handler.logvol.lvList] == [
        ("swap", "swap"),
        ("root", "/"),
    ]


@pytest.mark.parametrize(("url", "method"), [(None, "cdrom"), ("http://x.example/os", "url")])
def test_anaconda_installs_from_the_iso_or_from_a_url(url: str | None, method: str) -> None:
    handler = kickstart(render(plain("rocky9", install_url=url), env="prod"))

    assert handler.method.method == method


def test_anaconda_repositories_keep_mirror_list_and_cost() -> None:
    repositories = (
        Repository(name="epel", mirrorlist="https://m.example/?repo=e&arch=$basearch", cost=50),
        Repository(name="own", baseurl="http://r.example/$releasever/"),
    )

    epel, own = kickstart(
        render(plain("rocky9", repositories=repositories), env="prod")
    ).repo.repoList

    assert (epel.mirrorlist, epel.cost) == ("https://m.example/?repo=e&arch=$basearch", 50)
    assert own.baseurl == "http://r.example/$releasever/"
    assert own.install


def test_anaconda_accounts_are_locked_without_a_hash() -> None:
    handler = kickstart(render(full("rocky9", root_password_hash=None), env="prod"))
    joe, ann = handler.user.userList

    assert handler.rootpw.lock
    assert (joe.password, joe.isCrypted, joe.lock, joe.groups) == (HASH, True, False, ["wheel"])
    assert (ann.password, ann.lock, ann.groups) == ("", True, [])


@pytest.mark.parametrize("distro", EL)
def test_anaconda_groups_and_exclusions_reach_the_package_list(distro: str) -> None:
    packages = ("@Development Tools", "@^workstation", "-firewalld", "vim")

    found = kickstart(render(plain(distro, packages=packages), env="prod")).packages

    assert "Development Tools" in [group.name for group in found.groupList]
    assert "firewalld" in found.excludedList


@pytest.mark.parametrize(("firewall", "expected"), [(True, True), (False, False)])
def test_anaconda_firewall_follows_the_manifest(firewall: bool, expected: bool) -> None:
    found = kickstart(render(plain("rocky9", firewall=firewall), env="prod")).firewall

    assert found.enabled is expected


# Subiquity


def test_netplan_matches_every_card_by_mac() -> None:
    ethernets = autoinstall(render(full("ubuntu2404"), env="prod"))["network"]["ethernets"]

    assert ethernets == {
        "net0": {
            "match": {"macaddress": "bc:24:11:00:00:00"},
            "set-name": "pub0",
            "dhcp4": False,
            "dhcp6": False,
            "accept-ra": False,
            "addresses": ["10.0.0.5/24", "10.0.0.6/24", "fd00::5/64"],
            "routes": [{"to": "0.0.0.0/0", "via": "10.0.0.1"}],
            "nameservers": {"addresses": ["10.0.0.2", "fd00::2"], "search": ["corp.example"]},
        },
        "net1": {"match": {"macaddress": "bc:24:11:00:00:01"}, "dhcp4": True, "dhcp6": True},
        "net2": {
            "match": {"macaddress": "bc:24:11:00:00:02"},
            "dhcp4": False,
            "dhcp6": False,
            "accept-ra": False,
            "link-local": [],
            "optional": True,
        },
    }


def test_netplan_without_ipv6_has_no_link_local_addresses() -> None:
    guest = plain("ubuntu2404", ipv6=False)

    (card,) = autoinstall(render(guest, env="prod"))["network"]["ethernets"].values()

    assert (card["dhcp4"], card["dhcp6"], card["link-local"]) == (True, False, [])


def test_the_live_system_of_subiquity_answers_no_ssh_whichever_unit_its_server_has(
    tmp_path: Path,
) -> None:
    (command,) = autoinstall(render(full("ubuntu2404"), env="prod"))["early-commands"]
    stub, heard = tmp_path / "systemctl", tmp_path / "heard"
    stub.write_text(f'#!/bin/sh\necho "$@" >{heard}\nexit 5\n')
    stub.chmod(0o755)

    done = subprocess.run(command, check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert done.returncode == 0
    assert heard.read_text() == "stop ssh.socket ssh.service\n"


def test_subiquity_finds_the_disk_by_its_serial_and_makes_no_user_of_its_own() -> None:
    config = autoinstall(render(full("ubuntu2404"), env="prod"))

    assert config["storage"]["layout"]["match"] == {"serial": "0QEMU_QEMU_HARDDISK_drive-scsi0"}
    assert config["user-data"]["users"] == []
    assert "identity" not in config


def test_no_hash_is_in_the_user_data_where_the_installer_would_log_it() -> None:
    rendered = render(full("ubuntu2404"), env="prod")

    assert "$6$" not in rendered.files["user-data"]
    assert f"root:{ROOT_HASH}" in rendered.files["setup.sh"]


@pytest.mark.parametrize(("changes", "allowed"), [({}, True), ({"password": False}, False)])
def test_ssh_takes_passwords_only_where_somebody_has_one(
    changes: dict[str, Any], allowed: bool
) -> None:
    without = {"users": (), "root_password_hash": None} if changes else {}

    config = autoinstall(render(full("ubuntu2404", **without), env="prod"))

    assert config["ssh"] == {"install-server": True, "allow-pw": allowed}


# Debian


def test_debian_is_configured_over_the_card_with_the_gateway() -> None:
    answers = preseed(render(full("debian12"), env="prod"))

    assert answers["netcfg/choose_interface"] == "bc:24:11:00:00:00"
    assert answers["netcfg/get_ipaddress"] == "10.0.0.5"
    assert answers["netcfg/get_netmask"] == "255.255.255.0"
    assert answers["netcfg/get_gateway"] == "10.0.0.1"


def test_debian_without_a_usable_card_installs_from_the_disc_alone() -> None:
    answers = preseed(render(plain("debian12", nics=(nic(0, Inet(method="none")),)), env="prod"))

    assert answers["netcfg/enable"] == "false"
    assert answers["apt-setup/use_mirror"] == "false"


@pytest.mark.parametrize(("nics", "listed"), [((nic(0),), False), ((), True)])
def test_debian_asks_nothing_where_updates_are_out_of_reach(
    nics: tuple[Nic, ...], listed: bool
) -> None:
    answers = preseed(render(plain("debian12", nics=nics), env="prod"))

    assert answers["apt-setup/service-failed"] == ""
    assert ("apt-setup/services-select" in answers) is listed


def test_debian_stanzas_follow_the_cards() -> None:
    assert interfaces(full("debian12")) == [
        "auto lo",
        "iface lo inet loopback",
        "",
        "auto pub0",
        "iface pub0 inet static",
        "    address 10.0.0.5/24",
        "    gateway 10.0.0.1",
        "iface pub0 inet static",
        "    address 10.0.0.6/24",
        "iface pub0 inet6 static",
        "    address fd00::5/64",
        "",
        "auto net1",
        "iface net1 inet dhcp",
        "iface net1 inet6 auto",
        "",
        "auto net2",
        "iface net2 inet manual",
        "    pre-up echo 1 >/proc/sys/net/ipv6/conf/$IFACE/disable_ipv6 || true",
    ]


def test_debian_without_ipv6_has_no_inet6_stanza() -> None:
    assert not any("inet6" in line for line in interfaces(plain("debian12", ipv6=False)))


def test_debian_ipv6_alone_has_its_gateway() -> None:
    lines = interfaces(plain("debian13", nics=(nic(0, V6_ONLY),)))

    assert lines[3:] == [
        "auto net0",
        "iface net0 inet manual",
        "iface net0 inet6 static",
        "    address fd00::7/64",
        "    gateway fe80::1",
    ]


def test_debian_resolver_has_servers_and_search_domains() -> None:
    _, text = put_files(render(full("debian12"), env="prod"))["/etc/resolv.conf"]

    assert text == "nameserver 10.0.0.2\nnameserver fd00::2\nsearch corp.example"


def test_debian_keeps_declared_name_servers_beside_dhcp() -> None:
    beside = render(plain("debian12", nics=(nic(0, DHCP_DNS),)), env="prod")
    alone = render(plain("debian12", nics=(nic(0, STATIC),)), env="prod")

    assert "nohook resolv.conf" in setup(beside)
    assert "/etc/dhcp/dhclient-enter-hooks.d/proxflow" in put_files(beside)
    assert "resolv.conf' >>" not in setup(alone)


def test_debians_installer_does_not_copy_its_network_settings_over_ours() -> None:
    late = preseed(render(full("debian12"), env="prod"))["preseed/late_command"]

    assert "/usr/lib/finish-install.d/55netcfg-copy-config" in late.split(";")[0]


def test_debian_never_falls_back_to_another_disk() -> None:
    answers = preseed(render(full("debian12"), env="prod"))
    disk = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi0"

    assert answers["partman-auto/disk"] == disk
    assert answers["partman/early_command"].startswith(f"disk=$(readlink -f {disk}) && test -b")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (None, ("http", "ftp.debian.org", "/debian")),
        ("https://m.example:8443/debian/", ("https", "m.example:8443", "/debian")),
        ("http://m.example", ("http", "m.example", "/")),
    ],
)
def test_debian_mirror_is_split_as_the_installer_asks(
    url: str | None, expected: tuple[str, str, str]
) -> None:
    answers = preseed(render(plain("debian12", install_url=url), env="prod"))
    scheme = answers["mirror/protocol"]

    assert (
        scheme,
        answers[f"mirror/{scheme}/hostname"],
        answers[f"mirror/{scheme}/directory"],
    ) == expected


def test_debian_refuses_a_mirror_that_its_installer_cannot_use() -> None:
    with pytest.raises(RenderError, match=r"install_url: Debian's installer takes http"):
        render(plain("debian12", install_url="ftp://m.example/debian"), env="prod")


def test_debian_answers_hold_no_line_that_ends_in_a_backslash() -> None:
    text = render(full("debian12"), env="prod").files["preseed.cfg"]

    assert not any(line.endswith("\\") for line in text.splitlines())


@pytest.mark.parametrize("distro", ["debian12", "ubuntu2404"])
def test_chrony_keeps_only_the_named_servers(distro: str) -> None:
    rendered = render(full(distro), env="prod")

    _, text = put_files(rendered)["/etc/chrony/sources.d/proxflow.sources"]

    assert text == "server ntp1.corp.example iburst\nserver 10.0.0.9 iburst"
    assert "sed -i -E 's/^[[:space:]]*(pool|server)" in setup(rendered)


@pytest.mark.parametrize("distro", ["debian12", "ubuntu2404"])
def test_ufw_gets_the_ssh_rule_in_its_own_files_once(distro: str, tmp_path: Path) -> None:
    for family in ("", "6"):
        text = f"*filter\n:ufw{family}-user-input - [0:0]\n### RULES ###\nCOMMIT\n"
        (tmp_path / f"user{family}.rules").write_text(text, encoding="utf-8")
    script = setup(render(plain(distro), env="prod"))
    rule = script[script.index("for family in") : script.index("sed -i 's/^ENABLED")]
    rule = rule.replace("/etc/ufw", str(tmp_path))

    for _ in range(2):
        subprocess.run(["sh", "-euc", rule], check=True)

    assert (tmp_path / "user.rules").read_text(encoding="utf-8").splitlines() == [
        "*filter",
        ":ufw-user-input - [0:0]",
        "### RULES ###",
        "",
        "### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in",
        "-A ufw-user-input -p tcp --dport 22 -j ACCEPT",
        "",
        "COMMIT",
    ]
    six = (tmp_path / "user6.rules").read_text(encoding="utf-8")
    assert "tcp 22 ::/0 any ::/0 in\n-A ufw6-user-input -p tcp --dport 22 -j ACCEPT\n" in six


def test_no_firewall_means_no_ufw() -> None:
    rendered = render(plain("debian12", firewall=False), env="prod")

    assert "ufw" not in "".join(rendered.files.values())


# AutoYaST


def test_autoyast_names_every_card_by_mac_and_configures_it() -> None:
    root = profile(render(full("sles15"), env="prod"))

    rules = {
        rule.findtext("y:name", None, NS): rule.findtext("y:value", None, NS)
        for rule in root.findall(".//y:net-udev/y:rule", NS)
    }
    cards = {
        card.findtext("y:device", None, NS): card.findtext("y:bootproto", None, NS)
        for card in root.findall(".//y:interfaces/y:interface", NS)
    }
    assert rules == {
        "pub0": "bc:24:11:00:00:00",
        "eth1": "bc:24:11:00:00:01",
        "eth2": "bc:24:11:00:00:02",
    }
    assert cards == {"pub0": "static", "eth1": "dhcp", "eth2": "none"}
    assert [alias.text for alias in root.findall(".//y:aliases/*/y:IPADDR", NS)] == [
        "10.0.0.6",
        "fd00::5",
    ]
    assert root.findtext(".//y:route/y:gateway", None, NS) == "10.0.0.1"


@pytest.mark.parametrize(
    ("bios", "loader", "partition"), [("seabios", "grub2", "263"), ("ovmf", "grub2-efi", "259")]
)
def test_autoyast_boots_as_the_firmware_does(bios: Any, loader: str, partition: str) -> None:
    guest = plain("leap15", firmware=Firmware(bios=bios))

    assert text_of(guest, "y:bootloader/y:loader_type") == loader
    assert text_of(guest, ".//y:partitions/y:partition/y:partition_id") == partition


def test_debian_keeps_to_gpt_and_uefi_where_the_firmware_does() -> None:
    answers = preseed(render(plain("debian12", firmware=Firmware(bios="ovmf")), env="prod"))

    assert answers["partman-efi/non_efi_system"] == "true"
    assert "partman-efi/non_efi_system" not in preseed(render(plain("debian12"), env="prod"))


@pytest.mark.parametrize(("distro", "product"), [("sles15", "SLES"), ("leap15", "Leap")])
def test_autoyast_names_the_product(distro: str, product: str) -> None:
    assert text_of(plain(distro), "y:software/y:products/y:product") == product


def test_autoyast_passes_the_install_source_to_linuxrc() -> None:
    text = text_of(full("leap15"), "y:init/y:info_file") or ""

    assert "install: http://mirror.corp.example/os" in text.splitlines()
    assert "textmode: 1" in text.splitlines()


def test_linuxrc_which_reads_no_xml_finds_the_address_as_it_was_written() -> None:
    address = "http://mirror.corp.example/get?a=1&b=2"

    text = render(plain("leap15", install_url=address), env="prod").files["autoinst.xml"]

    assert f"\ninstall: {address}\n" in text
    assert text_of(plain("leap15", install_url=address), "y:init/y:info_file") is not None


def test_autoyast_marks_the_system_when_its_second_stage_is_over() -> None:
    text = text_of(full("sles15"), "y:scripts/y:init-scripts/y:script/y:source") or ""
    before = text_of(full("sles15"), "y:scripts/y:chroot-scripts/y:script/y:source") or ""

    assert "put /etc/proxflow-release" in text
    assert "/etc/proxflow-release" not in before


def test_suse_is_updated_in_its_first_boot_where_it_has_its_own_network() -> None:
    root = profile(render(full("sles15"), env="prod"))

    before, after = (
        root.findtext(f"y:scripts/y:{kind}-scripts/y:script/y:source", "", NS)
        for kind in ("chroot", "init")
    )

    assert "zypper" not in before
    assert after.index("zypper --non-interactive") < after.index("put /etc/proxflow-release")


@pytest.mark.parametrize(("code", "finished"), [(0, True), (102, True), (103, True), (104, False)])
def test_suse_is_finished_unless_its_update_failed(
    code: int, finished: bool, tmp_path: Path
) -> None:
    root = profile(render(full("sles15"), env="prod"))
    script = root.findtext("y:scripts/y:init-scripts/y:script/y:source", "", NS)
    script = script.replace("/etc/proxflow-release", str(tmp_path / "release"))
    (tmp_path / "zypper").write_text(f"#!/bin/sh\nexit {code}\n")
    (tmp_path / "zypper").chmod(0o755)

    subprocess.run(["sh", "-c", script], check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert (tmp_path / "release").exists() is finished


def test_autoyast_patterns_are_told_from_packages() -> None:
    root = profile(render(plain("sles15", packages=("pattern:kvm_server", "vim")), env="prod"))

    patterns = [node.text for node in root.findall(".//y:patterns/y:pattern", NS)]
    packages = [node.text for node in root.findall(".//y:packages/y:package", NS)]
    assert patterns == ["base", "kvm_server"]
    assert "vim" in packages
    assert "pattern:kvm_server" not in packages


def test_zypper_repositories_become_files() -> None:
    repositories = (Repository(name="own", baseurl="https://r.example/15?a=1&b=2"),)

    files = put_files(render(plain("leap15", repositories=repositories), env="prod"))

    assert files["/etc/zypp/repos.d/proxflow-own.repo"][1].splitlines()[-1] == (
        "baseurl=https://r.example/15?a=1&b=2"
    )


@pytest.mark.parametrize("distro", ["rocky9", "ubuntu2404", "debian12", "sles15"])
@pytest.mark.parametrize("console", [True, False])
def test_the_serial_console_is_used_where_the_vm_has_one(distro: str, console: bool) -> None:
    guest = plain(distro).model_copy(update={"serial_console": console})

    text = "".join(render(guest, env="prod").files.values())

    assert ("console=ttyS0,115200" in text) is console


@pytest.mark.parametrize("distro", ["rocky9", "ubuntu2404", "debian12", "sles15"])
def test_name_servers_beside_dhcp_are_not_lost(distro: str) -> None:
    text = "".join(render(plain(distro, nics=(nic(0, DHCP_DNS),)), env="prod").files.values())

    assert "10.0.0.2" in text
    assert "x.example" in text
