"""The lab's installers do what real seeds say: users, keys, files, by running their scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.lab.guestdisk import set_up
from deployments.lab.guestfs import Blobs, FileTree
from deployments.lab.seeds import SEED_FILES
from deployments.lab.seedscripts import setup_of
from tasks.iso.distros import DISTROS
from tasks.iso.render import render
from tests.tasks.iso.guests import KEY, full
from tests.tasks.iso.reading import put_files


@pytest.fixture
def tree(tmp_path: Path) -> FileTree:
    fresh = FileTree(Blobs(tmp_path))
    fresh.mkdir("/root")
    fresh.provide("/etc/passwd", b"root:x:0:0:root:/root:/bin/bash\n")
    fresh.provide("/etc/shadow", b"root:!:20000:0:99999:7:::\n")
    return fresh


@pytest.mark.parametrize("distro", sorted(DISTROS))
def test_every_file_that_a_seed_puts_is_there_with_its_mode_and_the_keys_too(
    tree: FileTree, distro: str
) -> None:
    rendered = render(full(distro), env="prod")
    name = next(file for file in SEED_FILES if file in rendered.files)

    set_up(tree, setup_of(name, dict(rendered.files)), "db1")

    put = {path: row for path, row in put_files(rendered).items() if not path.startswith("$")}
    assert "/etc/proxflow-release" in put
    for path, (mode, text) in put.items():
        entry = tree.entry(path)
        assert entry is not None, path
        assert (f"{entry.mode:04o}", tree.read(path).decode()) == (mode, text + "\n"), path
    users = tree.read("/etc/passwd").decode().splitlines()
    homes = [line.split(":")[5] for line in users]
    keyed = [home for home in homes if tree.entry(f"{home}/.ssh/authorized_keys")]
    assert keyed
    assert all(KEY in tree.read(f"{home}/.ssh/authorized_keys").decode() for home in keyed)


def test_late_commands_write_into_the_installed_system(tree: FileTree) -> None:
    text = """\
#cloud-config
autoinstall:
  identity: {hostname: web, username: ops, password: "$6$salt$hash"}
  ssh: {authorized-keys: ["ssh-ed25519 AAAA one"]}
  late-commands:
    - echo installed > /target/etc/marker
    - [curtin, in-target, --, sh, -c, "echo inside >> /etc/marker"]
    - curtin in-target -- unknown-tool --flag
"""

    set_up(tree, setup_of("user-data", {"user-data": text}), "web")

    assert tree.read("/etc/marker") == b"installed\ninside\n"
    assert tree.read("/home/ops/.ssh/authorized_keys") == b"ssh-ed25519 AAAA one\n"
    assert b"ops:$6$salt$hash:" in tree.read("/etc/shadow")
