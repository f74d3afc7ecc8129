"""What Anaconda is told, and NetworkManager after it."""

from __future__ import annotations

import configparser

import pytest
from pykickstart.constants import SELINUX_DISABLED, SELINUX_ENFORCING, SELINUX_PERMISSIVE

from blocks.manifest.guest import Guest, Inet, Repository
from tasks.iso.render import render

from .guests import HASH, STATIC, V6_ONLY, full, nic, plain
from .reading import kickstart, put_files, setup

EL = ["oraclelinux8", "rhel9", "rocky10", "fedora"]


def keyfile(guest: Guest, slot: str) -> dict[str, dict[str, str]]:
    path = f"/etc/NetworkManager/system-connections/proxflow-{slot}.nmconnection"
    mode, text = put_files(render(guest, env="prod"))[path]
    assert mode == "0600"
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


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


def test_anaconda_lays_out_lvm_on_the_root_disk_only() -> None:
    handler = kickstart(render(full("rocky9"), env="prod"))
    disk = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi0"

    assert handler.ignoredisk.onlyuse == [disk]
    assert handler.bootloader.bootDrive == disk
    assert handler.reqpart.reqpart
    assert [group.vgname for group in handler.volgroup.vgList] == ["system_db1"]
    assert {volume.vgname for volume in handler.logvol.lvList} == {"system_db1"}
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


@pytest.mark.parametrize("distro", EL)
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, SELINUX_ENFORCING),
        ("enforcing", SELINUX_ENFORCING),
        ("permissive", SELINUX_PERMISSIVE),
        ("disabled", SELINUX_DISABLED),
    ],
)
def test_anaconda_gives_selinux_the_state_that_is_asked_for(
    distro: str, state: str | None, expected: int
) -> None:
    found = kickstart(render(plain(distro, selinux=state), env="prod")).selinux

    assert found.selinux == expected
