"""The command line for installer files: what it prints, what it writes, how it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flows.iso import main
from tasks.iso.build import parse_seed_name
from tests.tasks.iso.images import needs_xorriso, ubuntu

HASH = "$6$rounds0salt$508Qvbe7ObUnxoj15DRCkzC3qO7edjH0VV7BPNRDYK4QR8ofJaEEF2he"
MANIFEST = """\
version: "1"
kind: Env
metadata: {{name: shop, domain: shop.example}}
spec:
  hypervisor:
    kind: Hypervisor
    iso: {{storage: local, image: rocky9.iso}}
    kickstart:
      distro: {distro}
      keyboard_layout: "{keyboard}"
      root_password_hash: "{hash}"
    nodes:
      db1:
        proxmox: {{node_name: pve1, vm_id: 101}}
        nics: [{{name: net0, bridge: vmbr0, bootproto: dhcp, network: lan}}]
        disks: [{{id: 0, size: 32G, storage_class: fast}}]
  networks: {{kind: Networks, lan: {{cidr: 10.0.0.0/24}}}}
  storage_classes: {{kind: StorageClasses, fast: {{backend: local-lvm}}}}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return write(tmp_path)


def write(folder: Path, *, distro: str = "rocky9", keyboard: str = "us") -> Path:
    path = folder / "env.yaml"
    path.write_text(MANIFEST.format(distro=distro, keyboard=keyboard, hash=HASH), encoding="utf-8")
    return path


def test_list_without_a_file_names_every_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 24
    assert any(line.startswith("debian12") and "preseed.cfg" in line for line in lines)


def test_list_shows_what_each_node_is_installed_with(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", str(manifest)]) == 0

    head, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["node", "distro", "installer", "label", "content"]
    assert row[:4] == ["db1", "rocky9", "anaconda", "OEMDRV"]


def test_render_hides_password_hashes(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(manifest), "db1"]) == 0

    text = capsys.readouterr().out
    assert "rootpw --iscrypted '***'" in text
    assert HASH not in text


def test_render_shows_password_hashes_when_asked(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", str(manifest), "db1", "--show-secrets"]) == 0

    assert HASH in capsys.readouterr().out


def test_build_writes_a_seed_under_its_own_name(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(manifest), "db1", "--output", str(tmp_path)]) == 0

    (seed,) = tmp_path.glob("*.iso")
    name = parse_seed_name(seed.name)
    assert name is not None
    assert (name.env, name.guest) == ("shop", "db1")
    assert str(seed) in capsys.readouterr().out


@pytest.mark.parametrize("command", ["list", "render", "build"])
def test_a_value_that_cannot_be_rendered_is_named_without_a_traceback(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, distro="sles15", keyboard="il")
    node = [] if command == "list" else ["db1"]

    assert main([command, str(path), *node]) == 2

    error = capsys.readouterr().err
    assert error.startswith("db1: installation.keyboard: YaST is taught these layouts only")
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["render", "{manifest}", "db2"], "did you mean 'db1'?"),
        (["render", "{manifest}/missing.yaml", "db1"], "missing.yaml"),
        (["rendr"], 'Did you mean "render"?'),
        (["remaster", "{manifest}", "beos"], "unknown distro 'beos'"),
        (["remaster", "{manifest}", "rocky9"], "reads the seed by itself"),
        (["remaster", "{manifest}", "debian12"], "env.yaml: "),
    ],
)
def test_a_mistake_is_answered_with_what_would_be_right(
    arguments: list[str], words: str, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([argument.format(manifest=manifest) for argument in arguments])

    assert code == 2
    assert words in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_named(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(manifest), "db1", "--output", "/proc/seed.iso"]) == 1

    assert "/proc" in capsys.readouterr().err


@needs_xorriso
def test_remaster_writes_beside_the_source_and_says_what_it_rewrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ubuntu(tmp_path)

    assert main(["remaster", str(source), "ubuntu2404"]) == 0

    assert len(list(tmp_path.glob("install.proxflow-*.iso"))) == 1
    assert "boot/grub/grub.cfg" in capsys.readouterr().out


def test_prefect_is_not_imported_for_it(manifest: Path) -> None:
    code = (
        "import sys; from flows.iso import main; main(['render', sys.argv[1], 'db1']); "
        "sys.exit('prefect' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(manifest)], capture_output=True, check=False
    )

    assert done.returncode == 0
