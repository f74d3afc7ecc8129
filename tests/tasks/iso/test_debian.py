"""What Debian's installer is told, and ifupdown after it."""

from __future__ import annotations

import pytest

from blocks.manifest.guest import Firmware, Guest, Inet, Nic
from tasks.iso.render import RenderError, render

from .guests import DHCP_DNS, STATIC, V6_ONLY, full, nic, plain
from .reading import preseed, put_files, setup


def interfaces(guest: Guest) -> list[str]:
    return put_files(render(guest, env="prod"))["/etc/network/interfaces"][1].splitlines()


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
    assert answers["partman-auto-lvm/new_vg_name"] == "system_db1"
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


def test_debian_keeps_to_gpt_and_uefi_where_the_firmware_does() -> None:
    answers = preseed(render(plain("debian12", firmware=Firmware(bios="ovmf")), env="prod"))

    assert answers["partman-efi/non_efi_system"] == "true"
    assert "partman-efi/non_efi_system" not in preseed(render(plain("debian12"), env="prod"))
