"""What several installers are told in the same way."""

from __future__ import annotations

import re

import pytest

from blocks.manifest.guest import Repository
from blocks.manifest.kickstart import WITHOUT_SELINUX
from tasks.iso.distros import DISTROS
from tasks.iso.render import RenderError, render

from .guests import DHCP_DNS, full, nic, plain
from .reading import installed_late, put_files, setup


@pytest.mark.parametrize("distro", ["rocky9", "debian12", "sles16"])
def test_a_named_card_is_named_by_its_mac_in_the_initramfs_too(distro: str) -> None:
    rendered = render(full(distro), env="prod")

    _, text = put_files(rendered)["/etc/systemd/network/70-proxflow-pub0.link"]

    assert text == "[Match]\nMACAddress=bc:24:11:00:00:00\n\n[Link]\nName=pub0"
    assert "dracut --force" in setup(rendered) or "update-initramfs -u" in setup(rendered)


@pytest.mark.parametrize("distro", ["rocky9", "ubuntu2404", "debian12", "sles15", "sles16"])
@pytest.mark.parametrize("console", [True, False])
def test_the_serial_console_is_used_where_the_vm_has_one(distro: str, console: bool) -> None:
    guest = plain(distro).model_copy(update={"serial_console": console})

    text = "".join(render(guest, env="prod").files.values())

    assert ("console=ttyS0,115200" in text) is console


@pytest.mark.parametrize("distro", ["rocky9", "ubuntu2404", "debian12", "sles15", "sles16"])
def test_name_servers_beside_dhcp_are_not_lost(distro: str) -> None:
    text = "".join(render(plain(distro, nics=(nic(0, DHCP_DNS),)), env="prod").files.values())

    assert "10.0.0.2" in text
    assert "x.example" in text


@pytest.mark.parametrize("distro", sorted(DISTROS))
def test_selinux_is_refused_in_the_same_distributions_by_manifest_and_renderer(
    distro: str,
) -> None:
    refusal = None
    try:
        render(plain(distro, selinux="permissive"), env="prod")
    except RenderError as error:
        refusal = error.key

    assert refusal == ("installation.selinux" if distro in WITHOUT_SELINUX else None)


@pytest.mark.parametrize(
    ("distro", "baseurl"),
    [
        ("ubuntu2404", "https://r.example/x stable main"),
        ("debian12", "https://r.example/x stable main"),
        ("leap15", "https://r.example/x"),
        ("leap16", "https://r.example/x"),
    ],
)
def test_packages_wait_for_the_repositories_that_they_may_come_from(
    distro: str, baseurl: str
) -> None:
    repositories = (Repository(name="own", baseurl=baseurl),)
    packages = ("vim", "pattern:kvm_server") if distro.startswith("leap") else ("vim",)

    rendered = render(
        plain(distro, packages=packages, packages_post=("git",), repositories=repositories),
        env="prod",
    )

    text = setup(rendered)
    assert sorted(installed_late(rendered)) == sorted([*packages, "git"])
    assert text.index("proxflow-own") < text.index(" install ") < text.index("proxflow-release")
    answers = "".join(text for name, text in rendered.files.items() if not name.endswith(".sh"))
    assert len(re.findall(r"\bvim\b", answers)) == (1 if distro.startswith("leap") else 0)


@pytest.mark.parametrize(
    ("distro", "told"),
    [
        ("rocky9", "rpm --import https://r.example/key"),
        ("leap15", "gpgkey=https://r.example/key"),
        ("leap16", "gpgkey=https://r.example/key"),
    ],
)
def test_the_key_of_a_repository_is_there_before_its_packages(distro: str, told: str) -> None:
    own = Repository(name="own", baseurl="https://r.example/x", gpg_key="https://r.example/key")

    text = setup(render(plain(distro, packages_post=("git",), repositories=(own,)), env="prod"))

    assert text.index(told) < text.index(" install ")


@pytest.mark.parametrize("label", ["db1", "db-1.prod", "x" * 63])
@pytest.mark.parametrize("distro", ["rocky9", "debian12", "sles15", "sles16"])
def test_the_volume_group_has_the_label_in_a_form_that_lvm_takes(distro: str, label: str) -> None:
    guest = plain(distro).model_copy(update={"label": label})

    text = "".join(render(guest, env="prod").files.values())

    (name,) = set(re.findall(r"\bsystem_\w+", text))
    assert name == "system_" + label.replace("-", "_").replace(".", "_")
    assert len(name) < 128
