"""The installed system boots and is what was declared, asked from inside over SSH.

``make acceptance``. By Debian's whole installer where the mirror in reach carries its packages; and
in any case by what the seed's script makes of a system that debootstrap has made. It prints which.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from blocks.manifest.guest import Guest
from blocks.manifest.loader import load_environment
from blocks.units import GIB, MIB
from flows.iso import main
from tasks.iso.render import render
from tests.acceptance import installer, system
from tests.acceptance.components import Components, components
from tests.acceptance.declared import ADDRESS, MACS, USER, manifest
from tests.acceptance.inside import (
    expect_declared,
    expect_installed_by_the_installer,
    expect_untouched,
)
from tests.acceptance.login import Login, free_port, new_key
from tests.acceptance.machine import Firmware, Hardware, Machine, empty, running
from tests.acceptance.mirror import serving

# An emulated processor on a busy machine; what is usual is a fifth of it (seconds).
BOOT, WHOLE = 1500, 4 * 3600
QUESTION = re.compile(r"\[[!?.]{1,2}\] [^\n]{0,60}")
ENV = "acceptance"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("installs")


@pytest.fixture(scope="module")
def key(folder: Path) -> tuple[Path, str]:
    return new_key(folder)


def present(*lists: list[str]) -> None:
    lacking = sorted({name for one in lists for name in one})
    if lacking:
        pytest.fail(f"first: apt-get install {' '.join(lacking)}", pytrace=False)


def full(path: Path) -> Path:
    """A disk that somebody has data on: every sector of it is told apart."""
    path.write_bytes(random.Random(7).randbytes(64 * MIB))
    return path


def logged_in(machine: Machine, login: Login, bound: float, asked: Callable[[], str | None]) -> int:
    """Seconds until somebody could log in; fails where a question is asked meanwhile."""

    def there() -> bool:
        assert asked() is None, f"{asked()}\n{machine.tail()}"
        return login.run("true", 60).returncode == 0

    return round(machine.wait(there, bound, "login over SSH"))


@pytest.mark.timeout(5400)
def test_the_script_on_the_seed_makes_the_declared_system(
    folder: Path, key: tuple[Path, str]
) -> None:
    present(installer.missing(), system.missing())
    env = manifest(folder, "seabios", "debian", key[1])
    guest = load_environment(env).guest("box")
    made = system.installed(folder / "system", render(guest, env=ENV), 3 * GIB)
    data = full(folder / "data.raw")
    login = Login(free_port(), key[0], USER)
    hardware = Hardware(
        "seabios", (made.disk, data), MACS, login=(ADDRESS, login.port), kernel=made.boot
    )

    with running(folder / "system", hardware) as machine:
        up = logged_in(machine, login, BOOT, lambda: None)
        expect_declared(login, guest, ENV)
        expect_untouched(login, data)
        print(
            f"\nsystem ({machine.accelerator}): login as {USER} after {up} s; network, users, "
            "sudo, packages, firewall, marker and data disk as declared. Reached: what the script "
            "on the seed makes of debootstrap's system, without the installer",
            flush=True,
        )


@pytest.mark.timeout(WHOLE + 1800)
@pytest.mark.parametrize("firmware", ["seabios", "ovmf"])
def test_a_whole_installation_is_what_was_declared(
    firmware: Firmware, folder: Path, key: tuple[Path, str]
) -> None:
    present(installer.missing())
    packages = carried(folder / f"apt-{firmware}")
    root = f"only-in-the-preseed-of-{firmware}/debian"
    source = installer.source_iso(folder / firmware, packages)
    env = manifest(folder, firmware, root, key[1])
    guest: Guest = load_environment(env).guest("box")
    install, seed = folder / f"{firmware}-install.iso", folder / f"{firmware}-seed.iso"
    assert main(["remaster", str(source), "debian12", "-o", str(install)]) == 0
    assert main(["build", str(env), "box", "-o", str(seed)]) == 0
    disk, data = empty(folder / f"{firmware}.raw", 8 * GIB), full(folder / f"{firmware}-data.raw")
    before = hashlib.sha256(data.read_bytes()).digest()
    login = Login(free_port(), key[0], USER)

    with serving(root, packages, whole=True) as mirror:
        hardware = Hardware(
            firmware,
            (disk, data),
            MACS,
            (install, seed),
            mirror=mirror.port,
            login=(ADDRESS, login.port),
            again=True,
        )
        with running(folder / firmware, hardware) as machine:

            def asked() -> str | None:
                found = QUESTION.search(machine.console)
                return found[0] if found else None

            up = logged_in(machine, login, WHOLE, asked)
            assert machine.console.count("Linux version") == 2, "one installation, one restart"
            expect_declared(login, guest, ENV)
            expect_installed_by_the_installer(login, guest)
            expect_untouched(login, data)
            print(
                f"\n{firmware} ({machine.accelerator}): installed, restarted and logged in as "
                f"{USER} after {up} s. Reached: the whole installation",
                flush=True,
            )
    assert hashlib.sha256(data.read_bytes()).digest() == before
    shutil.rmtree(folder / firmware)


def carried(folder: Path) -> Components:
    """The installer's packages, if the mirror in reach has what a whole installation needs."""
    packages = components(folder)
    lacking = packages.lacking() if packages is not None else []
    if packages is not None and not lacking:
        return packages
    why = (
        f"the mirror in reach lists and lacks {', '.join(lacking)}"
        if packages is not None
        else "apt has no source of Debian 12 with the installer's list of packages"
    )
    print(f"\nno whole installation: {why}", flush=True)
    pytest.skip(f"no whole installation: {why}")
