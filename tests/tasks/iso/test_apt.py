"""What Debian and Ubuntu have in common: chrony and ufw."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from blocks.manifest.guest import Repository
from tasks.iso.render import RenderError, render

from .guests import full, plain
from .reading import put_files, setup


@pytest.mark.parametrize("distro", ["debian12", "ubuntu2404"])
def test_chrony_keeps_only_the_named_servers(distro: str) -> None:
    rendered = render(full(distro), env="prod")

    _, text = put_files(rendered)["/etc/chrony/sources.d/proxflow.sources"]

    assert text == "server ntp1.corp.example iburst\nserver 10.0.0.9 iburst"
    assert "sed -i -E 's/^[[:space:]]*(pool|server)" in setup(rendered)


@pytest.mark.parametrize("distro", ["debian12", "ubuntu2404"])
def test_ufw_gets_the_ssh_rule_in_its_own_files_once(distro: str, tmp_path: Path) -> None:
    for family in ("", "6"):
        text = f"*filter\n:ufw{family}-user-input - [0:0]\n### RULES ###\nCOMMIT\n"
        (tmp_path / f"user{family}.rules").write_text(text, encoding="utf-8")
    script = setup(render(plain(distro), env="prod"))
    rule = script[script.index("for family in") : script.index("sed -i 's/^ENABLED")]
    rule = rule.replace("/etc/ufw", str(tmp_path))

    for _ in range(2):
        subprocess.run(["sh", "-euc", rule], check=True)

    assert (tmp_path / "user.rules").read_text(encoding="utf-8").splitlines() == [
        "*filter",
        ":ufw-user-input - [0:0]",
        "### RULES ###",
        "",
        "### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in",
        "-A ufw-user-input -p tcp --dport 22 -j ACCEPT",
        "",
        "COMMIT",
    ]
    six = (tmp_path / "user6.rules").read_text(encoding="utf-8")
    assert "tcp 22 ::/0 any ::/0 in\n-A ufw6-user-input -p tcp --dport 22 -j ACCEPT\n" in six


def test_no_firewall_means_no_ufw() -> None:
    rendered = render(plain("debian12", firewall=False), env="prod")

    assert "ufw" not in "".join(rendered.files.values())


@pytest.mark.parametrize("distro", ["debian12", "ubuntu2404"])
@pytest.mark.parametrize(
    ("key", "kept"), [(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n", "asc"), (b"\x99\x02\x0d", "gpg")]
)
def test_the_key_of_a_repository_gets_the_name_that_its_source_gives(
    distro: str, key: bytes, kept: str, tmp_path: Path
) -> None:
    own = Repository(
        name="own",
        baseurl="[arch=amd64] https://r.example/x stable main",
        gpg_key="https://r.example/key",
    )
    script = setup(render(plain(distro, repositories=(own,)), env="prod"))
    begin = script.index("put /etc/apt/sources.list.d")
    part = script[script.index("put()") : script.index("\n}\n") + 3] + script[begin:]
    part = part[: part.index("apt-get update")].replace("/etc/apt", str(tmp_path))
    (tmp_path / "key").write_bytes(key)
    helper = tmp_path / "helper"
    helper.write_text(f'#!/bin/sh\ntest "$2" = https://r.example/key && cp {tmp_path}/key "$3"\n')
    helper.chmod(0o755)

    part = part.replace("/usr/lib/apt/apt-helper", str(helper))
    subprocess.run(["sh", "-euc", part], check=True)

    keyring = tmp_path / f"keyrings/proxflow-own.{kept}"
    line = (tmp_path / "sources.list.d/proxflow-own.list").read_text()
    assert line == f"deb [arch=amd64 signed-by={keyring}] https://r.example/x stable main\n"
    assert [path.name for path in keyring.parent.iterdir()] == [keyring.name]
    assert keyring.read_bytes() == key


def test_two_keyrings_for_one_repository_are_refused() -> None:
    own = Repository(
        name="own",
        baseurl="[signed-by=/usr/share/keyrings/x.gpg] https://r.example/x stable main",
        gpg_key="https://r.example/key",
    )

    with pytest.raises(RenderError) as refused:
        render(plain("debian12", repositories=(own,)), env="prod")

    assert refused.value.key == "installation.repositories[0].gpg_key"
