"""The script that cloud-init runs once: the marker and the guest agent."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tasks.cloudinit.documents import documents
from tasks.marker import PATH

from .guests import ENV, guest, nic

TOOLS = ("sh", "chmod", "timeout", "cat", "touch")
ROUTE = "echo default via 192.0.2.1 dev eth0"


class System:
    """A folder that is the script's whole system; its programs write down their calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)

    def program(self, name: str, body: str = "") -> None:
        file = self.bin / name
        file.write_text(f'#!{shutil.which("sh")}\necho {name} "$@" >>{self.root}/calls\n{body}\n')
        file.chmod(0o755)

    def boot(self, script: str) -> subprocess.CompletedProcess[str]:
        text = script.replace(PATH, str(self.root / "release"))
        return subprocess.run(
            ["sh"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env={"PATH": str(self.bin)},
        )

    @property
    def calls(self) -> list[str]:
        file = self.root / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def vendor(*, agent: bool = True) -> str:
    one = guest(nic()).model_copy(update={"agent": agent})
    return documents(one, env=ENV).vendor_data


def test_the_marker_tells_environment_and_guest(system: System) -> None:
    done = system.boot(vendor(agent=False))

    assert (done.returncode, done.stderr) == (0, "")
    lines = (system.root / "release").read_text().splitlines()
    assert lines[:2] == ["PROXFLOW_ENVIRONMENT=golden", "PROXFLOW_GUEST=web1"]
    assert lines[2].startswith("PROXFLOW_CONTENT=")
    assert system.calls == []


def test_an_agent_that_the_image_has_is_only_started(system: System) -> None:
    for name in ("qemu-ga", "apt-get", "ip", "systemctl"):
        system.program(name)

    assert system.boot(vendor()).returncode == 0

    assert system.calls == [
        "systemctl enable qemu-guest-agent",
        "systemctl start --no-block qemu-guest-agent",
    ]


@pytest.mark.parametrize("manager", ["apt-get", "dnf", "yum", "zypper", "apk"])
def test_the_agent_is_installed_by_whatever_package_manager_there_is(
    system: System, manager: str
) -> None:
    system.program("ip", ROUTE)
    system.program("systemctl")
    made = f'case " $* " in *" qemu-guest-agent "*) touch {system.bin}/qemu-ga;'
    system.program(manager, f"{made} chmod 755 {system.bin}/qemu-ga;; esac")

    done = system.boot(vendor())

    assert (done.returncode, done.stderr) == (0, "")
    assert any(call.startswith(manager) and "qemu-guest-agent" in call for call in system.calls)
    assert system.calls[-1] == "systemctl start --no-block qemu-guest-agent"


def test_without_a_default_route_nothing_is_fetched_and_the_boot_goes_on(system: System) -> None:
    for name in ("ip", "apt-get", "systemctl"):
        system.program(name)

    done = system.boot(vendor())

    assert done.returncode == 0
    assert "no default route" in done.stderr
    assert [call for call in system.calls if not call.startswith("ip ")] == []


def test_a_fetch_that_fails_is_told_and_the_boot_goes_on(system: System) -> None:
    system.program("ip", ROUTE)
    system.program("apt-get", "exit 100")
    system.program("systemctl")

    done = system.boot(vendor())

    assert done.returncode == 0
    assert "not installed" in done.stderr
    assert not any("--no-download" in call for call in system.calls)


def test_alpines_services_are_started_too(system: System) -> None:
    for name in ("qemu-ga", "rc-update", "rc-service"):
        system.program(name)

    assert system.boot(vendor()).returncode == 0

    assert system.calls[-1] == "rc-service qemu-guest-agent start"


@pytest.mark.skipif(shutil.which("dash") is None, reason="dash is not installed")
def test_the_script_is_plain_posix_shell() -> None:
    done = subprocess.run(
        ["dash", "-n"],
        input=vendor(),
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )

    assert (done.returncode, done.stderr) == (0, "")
