"""What AutoYaST is told, and what runs in the first boot."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from blocks.manifest.guest import Firmware, Guest, Inet, Repository
from tasks.iso.render import RenderError, render

from .guests import STATIC, V6_ONLY, full, nic, plain
from .reading import NS, profile, put_files


def text_of(guest: Guest, path: str) -> str | None:
    return profile(render(guest, env="prod")).findtext(path, None, NS)


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


@pytest.mark.parametrize(("distro", "product"), [("sles15", "SLES"), ("leap15", "Leap")])
def test_autoyast_names_the_product(distro: str, product: str) -> None:
    assert text_of(plain(distro), "y:software/y:products/y:product") == product


def test_autoyast_passes_the_install_source_to_linuxrc() -> None:
    text = text_of(full("leap15"), "y:init/y:info_file") or ""

    assert "install: http://mirror.corp.example/os" in text.splitlines()
    assert "textmode: 1" in text.splitlines()


@pytest.mark.parametrize(
    ("inet", "ipv6", "told"),
    [
        (Inet(), True, "dhcp"),
        (Inet(), False, "dhcp4"),
        (STATIC, True, "10.0.0.5/24 fd00::5/64,10.0.0.1,10.0.0.2 fd00::2,corp.example"),
        (V6_ONLY, True, "fd00::7/64,fe80::1,fd00::2,"),
    ],
)
def test_linuxrc_reaches_the_install_source_over_one_card_by_its_mac(
    inet: Inet, ipv6: bool, told: str
) -> None:
    nics = (nic(0, Inet(method="none")), nic(1, inet))
    guest = plain("sles15", nics=nics, ipv6=ipv6, install_url="http://mirror.example/15")

    lines = (text_of(guest, "y:init/y:info_file") or "").splitlines()

    mac = "bc:24:11:00:00:01"
    assert lines[lines.index("textmode: 1") + 1 : -1] == [
        f"netdevice: {mac}",
        f"ifcfg: {mac}={told}",
        "install: http://mirror.example/15",
    ]


def test_no_line_is_longer_than_linuxrc_reads() -> None:
    label = "x" * 61
    many = Inet.model_validate(
        {
            "method": "static",
            "addresses": tuple(f"2001:db8:ffff:ffff:ffff:ffff:ffff:{n:04x}/64" for n in range(99)),
            "dns": tuple(f"2001:db8:ffff:ffff:ffff:ffff:ffff:f{n:03x}" for n in range(99)),
            "search": tuple(f"{label}.{label}.{label}.{n}" for n in range(9)),
        }
    )
    guest = plain("sles15", nics=(nic(0, many),), install_url="http://mirror.example/15")

    (line,) = [
        line
        for line in (text_of(guest, "y:init/y:info_file") or "").splitlines()
        if "ifcfg" in line
    ]

    assert len(line) < 1023


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


def test_a_card_without_addresses_gets_none_by_ipv6_either() -> None:
    files = put_files(render(full("sles15"), env="prod"))

    assert files["/etc/sysctl.d/70-proxflow-eth2.conf"][1] == "net/ipv6/conf/eth2/disable_ipv6 = 1"
    assert [path for path in files if "sysctl" in path] == ["/etc/sysctl.d/70-proxflow-eth2.conf"]


@pytest.mark.parametrize("lang", ["C.UTF-8", "de_DE.ISO-8859-1", "de_DE.UTF-8@euro", "xx_XX"])
def test_a_locale_that_yast_would_make_another_of_is_refused(lang: str) -> None:
    with pytest.raises(RenderError, match="is not a locale that YaST takes"):
        render(plain("sles15", lang=lang), env="prod")


def test_hosts_and_repositories_are_written_when_yast_writes_no_more() -> None:
    own = Repository(name="own", baseurl="https://r.example/15")
    root = profile(render(plain("sles15", repositories=(own,)), env="prod"))

    before, after = (
        root.findtext(f"y:scripts/y:{kind}-scripts/y:script/y:source", "", NS)
        for kind in ("chroot", "init")
    )

    for path in ("/etc/hosts", "/etc/zypp/repos.d/proxflow-own.repo"):
        assert path not in before
        assert f"put {path} " in after


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
    script = script.replace("/etc/hosts", str(tmp_path / "hosts"))
    for name, ends in (("zypper", code), ("systemctl", 1)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {ends}\n")
        (tmp_path / name).chmod(0o755)

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


def test_autoyast_makes_one_volume_group_on_the_root_disk() -> None:
    root = profile(render(full("sles15"), env="prod"))

    drives = [drive.findtext("y:device", "", NS) for drive in root.findall(".//y:drive", NS)]
    groups = [group.text for group in root.findall(".//y:lvm_group", NS)]

    assert drives == [
        "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi0",
        "/dev/system_db1",
    ]
    assert groups == ["system_db1"]
