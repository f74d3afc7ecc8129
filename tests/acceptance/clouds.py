"""Clones of a template boot a real cloud image of Debian with their seeds, and are asked inside.

``make acceptance``; minutes, and what each step took is printed. The image boots by its own boot
loader, on the hardware that Proxmox VE would give the clone.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Guest
from blocks.manifest.loader import load_environment
from blocks.units import GIB
from tasks.cloudinit.documents import documents
from tasks.cloudinit.seed import build
from tests.acceptance.cloudimage import CloudImage, cloud_image, missing
from tests.acceptance.cloudmachine import CloudMachine, booted, machine_type

# An emulated processor on a busy machine; what is usual is a fifth of it (seconds).
LOGIN, FINISHED = 1200, 1500
pytestmark = pytest.mark.timeout(3600)
# What is on the console when there is nothing to wait for any more.
LOST = ("Kernel panic", "No init found", "emergency mode")


@dataclass(frozen=True)
class Clone:
    """A clone whose first boot has ended; ``guest`` is what was declared."""

    guest: Guest
    machine: CloudMachine

    def addresses(self) -> dict[str, set[str]]:
        """MAC address, in upper case, to the addresses of global scope with prefix lengths."""
        cards = json.loads(self.machine.inside("ip -json address show"))
        return {
            card["address"].upper(): {
                f"{one['local']}/{one['prefixlen']}"
                for one in card["addr_info"]
                if one["scope"] == "global"
            }
            for card in cards
            if card["link_type"] == "ether"
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clouds")


@pytest.fixture(scope="module")
def image() -> CloudImage:
    lacking = missing()
    if lacking:
        pytest.fail(f"first: apt-get install {' '.join(lacking)}", pytrace=False)
    began = time.monotonic()
    found = cloud_image()
    _tell("image", f"{found.packages} packages, at hand after {time.monotonic() - began:.0f} s")
    return found


@pytest.fixture(scope="module")
def key(folder: Path) -> Path:
    path = folder / "key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "acceptance", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def web1(folder: Path, image: CloudImage, key: Path) -> Iterator[Clone]:
    """By BIOS, on the usual hardware, with a pool of packages."""
    declared = """\
      ip:
        - {address: 10.0.2.55/24, gateway: 10.0.2.2}
        - {address: 10.0.3.77/24, address6: "fd00:3::77/64"}
      cloud_init:
        timezone: Europe/Berlin
        locale: en_US.UTF-8
        packages: [tree]
        commands: ["echo 'quotes \\" and ümlauts: kept' > /var/lib/marker"]
"""
    environment = template(folder / "bios.yaml", key, "seabios", "ide2", "web1", declared)
    with first_boot(folder, image, environment, "web1", key, online=True) as clone:
        yield clone


def template(path: Path, key: Path, bios: str, slot: str, label: str, declared: str) -> Environment:
    """A template with one clone, for which ``declared`` is written down."""
    path.write_text(f"""\
version: "1"
kind: Template
metadata: {{name: acceptance, domain: example.com}}
spec:
  node: pve1
  vm_id: 9000
  image: {{path: /nowhere/debian-12.qcow2}}
  firmware: {bios}
  disk: 6G
  nics: [vmbr0, vmbr1]
  cloud_init:
    method: seed
    slot: {slot}
    user: ops
    ssh_keys: {key}.pub
    dns: 10.0.2.3
    search: [lab.example.com]
  clones:
    - name: {label}
      vm_id: 9101
{declared}""")
    return load_environment(path)


@contextmanager
def first_boot(
    folder: Path,
    image: CloudImage,
    environment: Environment,
    label: str,
    key: Path,
    *,
    online: bool,
) -> Iterator[Clone]:
    """Boot the clone with the seed that a build would upload, until cloud-init has finished."""
    guest = environment.guest(label)
    assert guest.cloud_init is not None
    seed = build(documents(guest, env=environment.name), folder / f"{label}.iso")
    with booted(folder / label, image, guest, seed.path, key, online=online) as running:
        box = running.machine
        hardware = f"{machine_type(guest)}, {guest.firmware.bios}, seed on {guest.cloud_init.slot}"
        _tell(label, f"{hardware} ({box.accelerator})")
        kernel = box.wait(lambda: "Linux version" in box.console, LOGIN, "kernel")
        _tell(label, f"kernel {_version(box.console)} after {kernel:.0f} s")
        _tell(label, f"logged in by SSH after {_logged_in(running):.0f} s")
        running.ssh("cloud-init status --wait", FINISHED)
        _tell(label, f"cloud-init finished after {box.age:.0f} s")
        yield Clone(guest, running)


def test_the_first_boot_ends_without_errors_and_warnings(web1: Clone) -> None:
    status = web1.machine.inside("cloud-init status --long")
    result = json.loads(web1.machine.inside("cat /run/cloud-init/result.json"))
    log = "sudo grep -E 'WARNING|ERROR|CRITICAL|Traceback' /var/log/cloud-init.log || true"

    assert "status: done" in status, status
    assert result["v1"]["errors"] == []
    assert "DataSourceNoCloud" in result["v1"]["datasource"]
    assert web1.machine.inside(log) == ""


def test_it_has_its_host_name_and_domain(web1: Clone) -> None:
    assert web1.machine.inside("hostname") == "web1"
    assert web1.machine.inside("hostname -f") == "web1.example.com"


def test_each_card_has_the_addresses_declared_for_its_mac(web1: Clone) -> None:
    first, second = (str(nic.mac) for nic in web1.guest.nics)

    found = web1.addresses()

    assert found == {first: {"10.0.2.55/24"}, second: {"10.0.3.77/24", "fd00:3::77/64"}}


def test_the_only_default_route_is_through_the_declared_gateway(web1: Clone) -> None:
    routes = json.loads(web1.machine.inside("ip -json route show default"))

    assert [(route["gateway"], route["dev"]) for route in routes] == [("10.0.2.2", "eth0")]


def test_names_are_asked_of_the_declared_servers(web1: Clone) -> None:
    servers = web1.machine.inside("resolvectl dns eth0").partition(": ")[2].split()
    domains = web1.machine.inside("resolvectl domain eth0").partition(": ")[2].split()

    assert servers == ["10.0.2.3"]
    assert domains == ["example.com", "lab.example.com"]


def test_the_user_logs_in_by_key_alone_and_becomes_root(web1: Clone) -> None:
    assert web1.machine.inside("id -un") == "ops"
    assert web1.machine.inside("sudo -n id -un") == "root"
    assert web1.machine.inside("sudo passwd --status ops").split()[1] == "L"
    served = web1.machine.inside("sudo sshd -T").splitlines()
    assert "passwordauthentication no" in served


def test_the_root_file_system_fills_the_declared_disk(web1: Clone) -> None:
    size = int(web1.machine.inside("df --block-size=1 --output=size / | tail -1"))

    assert web1.guest.disks[0].size - size < GIB // 4


def test_packages_commands_timezone_and_locale_are_as_declared(web1: Clone) -> None:
    assert "tree v" in web1.machine.inside("tree --version")
    assert web1.machine.inside("cat /var/lib/marker") == 'quotes " and ümlauts: kept'
    assert web1.machine.inside("readlink /etc/localtime").endswith("/Europe/Berlin")
    assert "LANG=en_US.UTF-8" in web1.machine.inside("cat /etc/default/locale")


def test_vendor_data_has_run_and_left_its_marker(web1: Clone) -> None:
    marker = web1.machine.inside("cat /etc/proxflow-release").splitlines()

    assert "PROXFLOW_ENVIRONMENT=acceptance" in marker
    assert "PROXFLOW_GUEST=web1" in marker


def test_the_agent_was_fetched_and_answers_on_its_port(web1: Clone) -> None:
    assert any("/qemu-guest-agent_" in path for path in web1.machine.asked), web1.machine.asked
    assert web1.machine.agent("guest-ping") == {}
    cards = web1.machine.agent("guest-network-get-interfaces")
    told = {
        card["hardware-address"].upper(): {one["ip-address"] for one in card["ip-addresses"]}
        for card in cards
        if card["name"] != "lo"
    }
    first, second = (str(nic.mac) for nic in web1.guest.nics)
    assert "10.0.2.55" in told[first]
    assert {"10.0.3.77", "fd00:3::77"} <= told[second]


def test_it_comes_back_from_a_reboot_as_it_was(web1: Clone) -> None:
    before = web1.addresses()
    began, boot = (
        web1.machine.machine.age,
        web1.machine.inside("cat /proc/sys/kernel/random/boot_id"),
    )

    web1.machine.ssh("sudo systemctl reboot")
    web1.machine.machine.wait(lambda: _boot_id(web1.machine) not in ("", boot), LOGIN, "reboot")
    web1.machine.ssh("cloud-init status --wait", FINISHED)
    _tell("web1", f"back after {web1.machine.machine.age - began:.0f} s")

    assert web1.addresses() == before
    assert web1.machine.inside("hostname -f") == "web1.example.com"
    assert web1.machine.inside("systemctl is-active qemu-guest-agent") == "active"
    assert web1.machine.agent("guest-ping") == {}


def test_a_clone_without_internet_boots_all_the_same_and_says_what_it_lacks(
    folder: Path, image: CloudImage, key: Path
) -> None:
    # Debian 12's cloud kernel has no driver for the drives of q35, so the seed is on SCSI.
    declared = "      ip: [{address: 10.0.2.56/24, gateway: 10.0.2.2}, none]\n"
    environment = template(folder / "uefi.yaml", key, "ovmf", "scsi1", "web2", declared)

    with first_boot(folder, image, environment, "web2", key, online=False) as web2:
        status = web2.machine.inside("cloud-init status --long")
        said = web2.machine.inside("sudo cat /var/log/cloud-init-output.log")
        first, second = (str(nic.mac) for nic in web2.guest.nics)

        assert "status: done" in status, status
        assert web2.machine.inside("hostname -f") == "web2.example.com"
        assert web2.addresses() == {first: {"10.0.2.56/24"}, second: set()}
        assert web2.machine.inside("sudo -n id -un") == "root"
        assert "qemu-guest-agent is not installed" in said


def _logged_in(running: CloudMachine) -> float:
    def seen() -> bool:
        lost = [words for words in LOST if words in running.machine.console]
        assert not lost, running.machine.tail()
        return running.ssh("true").returncode == 0

    return running.machine.wait(seen, LOGIN, "login by SSH")


def _boot_id(running: CloudMachine) -> str:
    with suppress(subprocess.TimeoutExpired):
        return running.ssh("cat /proc/sys/kernel/random/boot_id").stdout.strip()
    return ""


def _version(console: str) -> str:
    return console.partition("Linux version ")[2].partition(" ")[0]


def _tell(label: str, text: str) -> None:
    print(f"\n{label}: {text}", end="", flush=True)
