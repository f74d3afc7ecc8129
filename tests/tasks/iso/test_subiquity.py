"""What Subiquity is told, and netplan by it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tasks.iso.render import render

from .guests import ROOT_HASH, full, plain
from .reading import autoinstall


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
