"""The rendered files before programs that other people wrote, as a distribution ships them.

Those of debconf, cloud-init and libxml are in ``test_render``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from blocks.manifest.guest import Guest, Inet
from tasks.iso.distros import DISTROS
from tasks.iso.render import render
from tasks.iso.subiquity import dump

from .guests import V6_ONLY, full, nic, plain
from .reading import autoinstall

ANACONDA = [name for name, distro in DISTROS.items() if distro.family == "anaconda"]
SUBIQUITY = [name for name, distro in DISTROS.items() if distro.family == "subiquity"]


def guests(distro: str) -> tuple[Guest, ...]:
    return (
        full(distro),
        plain(distro),
        plain(distro, ipv6=False),
        plain(distro, nics=(nic(0, V6_ONLY), nic(1, Inet(method="none")))),
    )


@pytest.mark.parametrize("distro", ANACONDA)
def test_ksvalidator_finds_nothing_to_say_about_a_kickstart_file(
    distro: str, tmp_path: Path
) -> None:
    files = []
    for number, guest in enumerate(guests(distro)):
        files.append(tmp_path / f"{number}.cfg")
        files[-1].write_text(render(guest, env="prod").files["ks.cfg"], encoding="utf-8")
    ksvalidator = Path(sys.executable).parent / "ksvalidator"
    version = DISTROS[distro].ksversion or ""

    done = subprocess.run(
        [sys.executable, ksvalidator, "-e", "-v", version, *files],
        check=False,
        capture_output=True,
        text=True,
    )

    said = [line for line in done.stdout.splitlines() if line and not line.startswith("Checking")]
    assert (done.returncode, said, done.stderr) == (0, [], "")


@pytest.mark.skipif(not shutil.which("netplan"), reason="netplan is not installed")
@pytest.mark.parametrize("distro", SUBIQUITY)
def test_netplan_makes_a_network_of_each_card(distro: str, tmp_path: Path) -> None:
    for number, guest in enumerate(guests(distro)):
        root = tmp_path / str(number)
        (root / "etc/netplan").mkdir(parents=True)
        config = root / "etc/netplan/50-installer.yaml"
        network = autoinstall(render(guest, env="prod"))["network"]
        config.write_text(dump({"network": network}), encoding="utf-8")
        config.chmod(0o600)

        done = subprocess.run(
            ["netplan", "generate", "--root-dir", root], check=False, capture_output=True, text=True
        )

        made = sorted(path.name for path in (root / "run/systemd/network").glob("*.network"))
        assert (done.returncode, done.stderr) == (0, "")
        assert made == [f"10-netplan-{card.slot}.network" for card in guest.nics]


SCHEMA = os.environ.get("PROXFLOW_AUTOINSTALL_SCHEMA", "")


@pytest.mark.skipif(
    not SCHEMA, reason="PROXFLOW_AUTOINSTALL_SCHEMA names no copy of autoinstall-schema.json"
)
@pytest.mark.parametrize("distro", SUBIQUITY)
def test_the_schema_that_subiquity_publishes_accepts_the_answers(distro: str) -> None:
    validator = Draft7Validator(json.loads(Path(SCHEMA).read_text(encoding="utf-8")))

    for guest in guests(distro):
        answers = autoinstall(render(guest, env="prod"))

        assert [error.message for error in validator.iter_errors(answers)] == []
