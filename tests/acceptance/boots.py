"""Debian's packaged installer boots from our media on an emulated machine, and asks nothing.

``make acceptance``; minutes, and what each took is printed. The mirror in reach decides how far it
goes: with the installer's own packages, to where the installer has fetched its components.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blocks.manifest.loader import load_environment
from blocks.units import GIB
from flows.iso import main
from tasks.iso.menus import KERNEL_ARGS
from tests.acceptance.components import Components, components
from tests.acceptance.declared import MACS, manifest
from tests.acceptance.installer import ARGUMENTS, kernel_version, missing, source_iso
from tests.acceptance.machine import Firmware, Hardware, empty, running
from tests.acceptance.mirror import serving
from tests.environments import KEY

# An emulated processor on a busy machine; what is usual is a fifth of it (seconds).
KERNEL, PRESEED, COMPONENTS = 900, 2400, 2400
# Components after which it is plain that the installer goes on by itself.
ENOUGH = 20
# The titles of questions, and only theirs, say how important an answer is.
QUESTION = re.compile(r"\[[!?.]{1,2}\] [^\n]{0,60}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acceptance")


@pytest.fixture(scope="module")
def packages(folder: Path) -> Components:
    lacking = missing()
    if lacking:
        pytest.fail(f"first: apt-get install {' '.join(lacking)}", pytrace=False)
    found = components(folder / "apt")
    if found is None:
        pytest.fail("apt has no source of Debian 12 with the installer's packages", pytrace=False)
    return found


@pytest.fixture(scope="module")
def source(folder: Path, packages: Components) -> Path:
    return source_iso(folder, packages)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("firmware", ["seabios", "ovmf"])
def test_the_installer_boots_reads_its_answers_and_fetches_its_components(
    firmware: Firmware, folder: Path, source: Path, packages: Components
) -> None:
    root = f"only-in-the-preseed-of-{firmware}/debian"
    env = manifest(folder, firmware, root, KEY)
    install, seed = folder / f"{firmware}-install.iso", folder / f"{firmware}-seed.iso"
    assert main(["remaster", str(source), "debian12", "-o", str(install)]) == 0
    assert main(["build", str(env), "box", "-o", str(seed)]) == 0
    assert load_environment(env).guest("box").nics[0].mac == MACS[0]

    disk = empty(folder / f"{firmware}.raw", 8 * GIB)

    with (
        serving(root, packages) as mirror,
        running(
            folder / firmware,
            Hardware(firmware, (disk,), MACS, (install, seed), mirror=mirror.port),
        ) as machine,
    ):
        kernel = machine.wait(lambda: "Kernel command line:" in machine.console, KERNEL, "kernel")
        print(f"\n{firmware} ({machine.accelerator}): kernel after {kernel:.0f} s", flush=True)
        given = re.search(r"Kernel command line: ([^\r\n]*)", machine.console)
        assert given is not None
        line = given[1]
        for argument in (*ARGUMENTS.split(), *KERNEL_ARGS["debian-installer"][:3]):
            assert argument in line.split(), line
        assert KERNEL_ARGS["debian-installer"][3].partition("=")[2] in line
        assert line.index("preseed/file") < line.index("---")

        # Where the mirror is, only the preseed file on the seed says.
        asked = machine.wait(
            lambda: bool(mirror.asked) or _question(machine.console) is not None,
            PRESEED,
            "call of the installer to the mirror that its preseed file names",
        )
        assert _question(machine.console) is None, machine.tail()
        print(f"{firmware}: preseed file loaded, network up after {asked:.0f} s", flush=True)

        def fetching() -> bool:
            return len(mirror.components(200)) >= ENOUGH or bool(mirror.components(404))

        fetched = machine.wait(
            lambda: fetching() or _question(machine.console) is not None,
            COMPONENTS,
            "components of the installer",
        )
        assert fetching(), f"{machine.tail()}\n{mirror}"
        lacking = mirror.components(404)
        end = f"the mirror in reach lacks {lacking[0]}" if lacking else "that is enough to see"
        print(
            f"{firmware}: kernel {kernel_version(machine.console)} fetches its components after "
            f"{fetched:.0f} s ({len(mirror.components(200))} so far), and no question was asked. "
            f"Reached: the installer fetches its components, no whole installation; {end}",
            flush=True,
        )


def _question(console: str) -> str | None:
    found = QUESTION.search(console)
    return found[0] if found else None
