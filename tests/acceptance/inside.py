"""What an installed system must be, asked from inside and compared with the declaration."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from blocks.manifest.guest import Guest
from tasks.iso.render import render
from tasks.marker import PATH
from tests.acceptance.login import Login

DATA_DISK = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi1"


def expect_declared(login: Login, guest: Guest, env: str) -> None:
    """Host name, network, users, packages, firewall and marker, as declared."""
    assert guest.install is not None
    wanted = guest.install.installation
    assert login.inside("hostname") == wanted.hostname
    assert login.inside("hostname -f") == f"{wanted.hostname}.{wanted.domain}"
    expect_network(login, guest)
    expect_users(login, guest)
    for package in (*wanted.packages, "qemu-guest-agent", "openssh-server", "ufw"):
        status = login.inside(f"dpkg-query -W -f '${{db:Status-Status}}' {package}")
        assert status == "installed", package
    assert login.inside("sudo -n ufw status").splitlines()[0] == "Status: active"
    assert login.inside("sudo -n systemctl is-active qemu-guest-agent") == "active"
    marker = dict(line.split("=", 1) for line in login.inside(f"cat {PATH}").splitlines())
    assert marker["PROXFLOW_CONTENT"] == render(guest, env=env).digest
    assert (marker["PROXFLOW_ENVIRONMENT"], marker["PROXFLOW_GUEST"]) == (env, guest.label)


def expect_network(login: Login, guest: Guest) -> None:
    """Each card, told by its MAC address, has its declared addresses and no others."""
    links = {link["address"].upper(): link for link in json.loads(login.inside("ip -json address"))}
    for nic in guest.nics:
        assert nic.mac is not None
        link = links[nic.mac]
        assert "UP" in link["flags"], nic.slot
        found = {
            f"{row['local']}/{row['prefixlen']}"
            for row in link["addr_info"]
            if row["family"] == "inet"
        }
        assert found == {str(one) for one in nic.inet.addresses if one.version == 4}, nic.slot
        if nic.inet.gateway is not None:
            (route,) = json.loads(login.inside("ip -json route show default"))
            assert (route["gateway"], route["dev"]) == (str(nic.inet.gateway), link["ifname"])
        resolver = login.inside("cat /etc/resolv.conf")
        assert all(f"nameserver {server}" in resolver for server in nic.inet.dns)


def expect_users(login: Login, guest: Guest) -> None:
    """Every declared user and root can log in with the key; passwords and sudo as declared."""
    assert guest.install is not None
    wanted = guest.install.installation
    for user in wanted.users:
        there = Login(login.port, login.key, user.name)
        groups = there.inside("id -nG").split()
        assert ("sudo" in groups) == user.sudo, user.name
        if user.sudo and wanted.sudo_nopasswd:
            assert there.inside("sudo -n id -u") == "0"
    if wanted.root_ssh_keys:
        assert Login(login.port, login.key, "root").inside("id -u") == "0"
    for name in ("root", *(user.name for user in wanted.users if user.password_hash is None)):
        assert login.inside(f"sudo -n passwd --status {name}").split()[1] == "L", name


def expect_untouched(login: Login, data: Path) -> None:
    """The data disk is there, has no part in anything, and holds what it held before."""
    before = hashlib.sha256(data.read_bytes()).hexdigest()
    assert login.inside(f"sudo -n sha256sum {DATA_DISK}", 600).split()[0] == before
    name = login.inside(f"basename $(readlink -f {DATA_DISK})")
    (row,) = json.loads(login.inside(f"lsblk --json -o NAME,TYPE,MOUNTPOINTS /dev/{name}"))[
        "blockdevices"
    ]
    assert row.get("children", []) == [], row
    assert row["mountpoints"] == [None], row


def expect_installed_by_the_installer(login: Login, guest: Guest) -> None:
    """What only a whole installation makes: the root disk's layout, its boot, the time zone."""
    assert guest.install is not None
    wanted = guest.install.installation
    assert login.inside("findmnt -no SOURCE /") == f"/dev/mapper/system_{guest.label}-root"
    root = login.inside("sudo -n pvs --noheadings -o pv_name").strip()
    disk = login.inside(f"lsblk -no PKNAME {root}")
    declared = login.inside(
        f"readlink -f /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-{wanted.root_disk}"
    )
    assert declared == f"/dev/{disk}"
    assert login.inside("readlink -f /etc/localtime").endswith(f"/{wanted.timezone}")
    uefi = login.inside("test -d /sys/firmware/efi && echo ovmf || echo seabios")
    assert uefi == guest.firmware.bios
    assert "console=ttyS0" in login.inside("cat /proc/cmdline")
