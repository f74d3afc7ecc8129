"""What holds for the installer files of every distribution."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from blocks.manifest.guest import Disk, Firmware, Inet, Repository
from blocks.units import GIB
from tasks.iso import templating
from tasks.iso.distros import DISTROS
from tasks.iso.render import RenderError, render

from .guests import HASH, KEY, ROOT_HASH, full, nic, plain
from .reading import kickstart, profile, put_files, setup, shell_accepts

EVERY = sorted(DISTROS)
ANACONDA = [name for name in EVERY if DISTROS[name].family == "anaconda"]
APT = [name for name in EVERY if DISTROS[name].sudo_group == "sudo"]


@pytest.mark.parametrize("distro", EVERY)
def test_renders_the_files_that_its_installer_looks_for(distro: str) -> None:
    rendered = render(full(distro), env="prod")

    assert tuple(rendered.files) == DISTROS[distro].files
    assert rendered.label == DISTROS[distro].label


@pytest.mark.parametrize("distro", EVERY)
def test_the_same_guest_gives_the_same_digest_and_another_guest_another(distro: str) -> None:
    first, again = (render(full(distro), env="prod") for _ in range(2))
    other = render(full(distro, packages=("emacs",)), env="prod")

    assert first == again
    assert first.digest != other.digest
    assert len(first.digest) == 64


@pytest.mark.parametrize("distro", EVERY)
def test_the_marker_file_names_environment_guest_node_and_content(distro: str) -> None:
    rendered = render(full(distro), env="prod")

    mode, text = put_files(rendered)["/etc/proxflow-release"]

    assert mode == "0644"
    assert text.splitlines() == [
        "PROXFLOW_ENVIRONMENT=prod",
        "PROXFLOW_GUEST=db1",
        "PROXFLOW_NODE=pve1",
        f"PROXFLOW_CONTENT={rendered.digest}",
    ]


@pytest.mark.parametrize("distro", EVERY)
def test_the_marker_is_written_when_everything_else_is_done(distro: str) -> None:
    script = setup(render(full(distro, update_system=True), env="prod"))

    after = script[script.index("put /etc/proxflow-release") :].splitlines()[5:]

    assert [line for line in after if not line.startswith(("if ", "    restorecon", "fi"))] == []


def test_the_digest_can_be_computed_again_from_label_and_files() -> None:
    rendered = render(full("debian12"), env="prod")
    digest = hashlib.sha256()

    blank = {n: t.replace(rendered.digest, "0" * 64) for n, t in rendered.files.items()}
    for part in (rendered.label, *(text for item in sorted(blank.items()) for text in item)):
        digest.update(len(part.encode()).to_bytes(8, "big") + part.encode())

    assert digest.hexdigest() == rendered.digest


@pytest.mark.parametrize("distro", EVERY)
def test_no_repr_shows_a_password_hash(distro: str) -> None:
    rendered = render(full(distro), env="prod")

    assert any(HASH in text for text in rendered.files.values())
    assert HASH not in repr(rendered)
    assert ROOT_HASH not in repr(rendered)


@pytest.mark.parametrize("distro", EVERY)
def test_the_setup_script_is_accepted_by_the_shell(distro: str) -> None:
    assert shell_accepts(setup(render(full(distro), env="prod")))


@pytest.mark.parametrize("distro", EVERY)
def test_hosts_lists_the_machine_at_its_static_address_and_the_entries(distro: str) -> None:
    _, text = put_files(render(full(distro), env="prod"))["/etc/hosts"]

    assert "10.0.0.5 db1.corp.example db1" in text.splitlines()
    assert "10.0.0.9 ntp ntp.x" in text.splitlines()


@pytest.mark.parametrize("distro", EVERY)
def test_hosts_does_not_name_the_machine_twice_where_the_operator_did(distro: str) -> None:
    guest = full(distro, hosts=({"ip": "10.9.9.9", "names": ("DB1",)},))

    _, text = put_files(render(guest, env="prod"))["/etc/hosts"]

    assert [line for line in text.lower().splitlines() if "db1" in line] == ["10.9.9.9 db1"]


@pytest.mark.parametrize("distro", EVERY)
@pytest.mark.parametrize("nopasswd", [True, False])
def test_sudo_asks_for_a_password_unless_told_not_to(distro: str, nopasswd: bool) -> None:
    rendered = render(full(distro, sudo_nopasswd=nopasswd), env="prod")

    mode, text = put_files(rendered)["/etc/sudoers.d/90-proxflow"]

    assert mode == "0440"
    assert f"%{DISTROS[distro].sudo_group} ALL=(ALL:ALL)" in text
    assert ("NOPASSWD" in text) is nopasswd


@pytest.mark.parametrize("distro", EVERY)
def test_every_key_of_every_account_is_installed_as_it_was_written(distro: str) -> None:
    script = setup(render(full(distro), env="prod"))

    assert f"{KEY} root@corp" in script
    assert f'{KEY} joe\'s "key" é'.replace("'", "'\"'\"'") in script
    assert f"'{KEY}\n{KEY} second'" in script


@pytest.mark.parametrize("distro", EVERY)
def test_only_the_root_disk_is_named_and_no_other(distro: str) -> None:
    text = "".join(render(full(distro, root_disk="scsi1"), env="prod").files.values())

    assert "0QEMU_QEMU_HARDDISK_drive-scsi1" in text
    assert "drive-scsi0" not in text


@pytest.mark.parametrize(
    ("disk", "machine", "expected"),
    [
        ({"slot": "scsi3"}, "i440fx", "scsi-0QEMU_QEMU_HARDDISK_drive-scsi3"),
        ({"slot": "scsi3", "serial": "ROOT"}, "q35", "scsi-0QEMU_QEMU_HARDDISK_drive-scsi3"),
        ({"slot": "scsi3", "serial": "ROOT"}, "pc-q35-9.2+pve1", "scsi-0QEMU_QEMU_HARDDISK_ROOT"),
        ({"slot": "virtio0", "serial": "ROOT"}, "q35", "virtio-ROOT"),
        ({"slot": "sata0", "serial": "ROOT"}, "q35", "ata-QEMU_HARDDISK_ROOT"),
    ],
)
def test_the_root_disk_is_named_as_the_guest_sees_it(
    disk: dict[str, str], machine: str, expected: str
) -> None:
    guest = plain(
        "rocky9",
        disks=(Disk(storage="local", size=GIB, **disk),),
        firmware=Firmware(machine=machine),
        root_disk=disk["slot"],
    )

    ignoredisk = kickstart(render(guest, env="prod")).ignoredisk

    assert ignoredisk.onlyuse == [f"/dev/disk/by-id/{expected}"]


@pytest.mark.parametrize("distro", EVERY)
@pytest.mark.parametrize("agent", [True, False])
def test_the_guest_agent_is_installed_where_the_vm_has_one(distro: str, agent: bool) -> None:
    text = "".join(render(plain(distro, agent=agent), env="prod").files.values())

    assert ("qemu-guest-agent" in text) is agent


@pytest.mark.parametrize("distro", EVERY)
def test_switching_ipv6_off_reaches_the_kernel(distro: str) -> None:
    rendered = render(plain(distro, ipv6=False), env="prod")

    assert "disable_ipv6 = 1" in put_files(rendered)["/etc/sysctl.d/70-proxflow-ipv6.conf"][1]
    assert "::1" not in put_files(rendered)["/etc/hosts"][1]


@pytest.mark.parametrize("distro", EVERY)
def test_a_guest_without_a_network_card_still_installs(distro: str) -> None:
    assert render(plain(distro, nics=()), env="prod").files


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hostname": "db_1"}, "installation.hostname"),
        ({"hostname": "a" * 64}, "installation.hostname"),
        ({"domain": "bad domain"}, "installation.domain"),
        ({"distro": "beos5"}, "installation.distro"),
        ({"timezone": "Mars; reboot"}, "installation.timezone"),
        ({"timezone": "Europe/Berlim"}, "installation.timezone"),
        ({"timezone": "Europe"}, "installation.timezone"),
        ({"keyboard": "us\nrootpw x"}, "installation.keyboard"),
        ({"lang": "en_US.UTF-8 --x"}, "installation.lang"),
        ({"packages": ("vim", "%end")}, "installation.packages[1]"),
        ({"packages_post": ("$(id)",)}, "installation.packages_post[0]"),
        ({"ntp_servers": ("a b",)}, "installation.ntp_servers[0]"),
        ({"install_url": "ftp//x"}, "installation.install_url"),
        ({"install_url": "http://x/ y"}, "installation.install_url"),
        (
            {"install_url": "http://x/", "nics": (nic(0, Inet(method="none")),)},
            "installation.install_url",
        ),
        (
            {"repositories": ({"name": "a", "baseurl": "http://x"},), "nics": ()},
            "installation.repositories",
        ),
        ({"root_disk": "scsi9"}, "installation.root_disk"),
        ({"root_password_hash": "plain text"}, "installation.root_password_hash"),
        ({"root_ssh_keys": (KEY, "no key")}, "installation.root_ssh_keys[1]"),
        ({"users": ({"name": "a b"},)}, "installation.users[0].name"),
        ({"users": ({"name": "root"},)}, "installation.users[0].name"),
        ({"users": ({"name": "a"}, {"name": "a"})}, "installation.users[1].name"),
        (
            {"users": ({"name": "a", "ssh_keys": (f"{KEY} x\ny",)},)},
            "installation.users[0].ssh_keys[0]",
        ),
        ({"users": ({"name": "a", "password_hash": "x"},)}, "installation.users[0].password_hash"),
        (
            {"repositories": ({"name": "a b", "baseurl": "http://x"},)},
            "installation.repositories[0].name",
        ),
        ({"repositories": ({"name": "a"},)}, "installation.repositories[0]"),
        (
            {"repositories": ({"name": "a", "baseurl": "http://x", "gpg_key": "file:///x"},)},
            "installation.repositories[0].gpg_key",
        ),
        ({"hosts": ({"ip": "10.0.0.1", "names": ()},)}, "installation.hosts[0].names"),
        ({"hosts": ({"ip": "10.0.0.1", "names": ("a\tb",)},)}, "installation.hosts[0].names"),
        ({"hosts": ({"ip": "fe80::1%eth0", "names": ("a",)},)}, "installation.hosts[0].ip"),
        ({"nics": (nic(0, Inet(method="static")),)}, "nics[net0].inet.addresses"),
        ({"nics": (nic(0, name="x" * 16),)}, "nics[net0].name"),
        ({"nics": (nic(0).model_copy(update={"mac": None}),)}, "nics[net0].mac"),
        ({"nics": (nic(0, name="a"), nic(1, name="a"))}, "nics[net1].name"),
    ],
)
@pytest.mark.parametrize("distro", ["rocky9", "ubuntu2404", "debian12", "sles15", "sles16"])
def test_a_value_that_fits_nowhere_is_refused_by_its_key(
    distro: str, changes: dict[str, Any], key: str
) -> None:
    told: dict[str, Any] = {"distro": distro, **changes}
    with pytest.raises(RenderError) as caught:
        render(plain(**told), env="prod")

    assert caught.value.key == key
    assert str(caught.value) == f"{key}: {caught.value.problem}"


def test_a_refused_password_is_not_repeated() -> None:
    with pytest.raises(RenderError) as caught:
        render(plain("rocky9", root_password_hash="hunter2 hunter2"), env="prod")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("inet", "key"),
    [
        ({"method": "static", "addresses": ("10.0.0.5/24",), "gateway": "10.1.0.1"}, "gateway"),
        ({"method": "static", "addresses": ("10.0.0.5/24",), "gateway": "fd00::1"}, "gateway"),
        ({"method": "static", "addresses": ("10.0.0.5/24",), "search": ("a b",)}, "search[0]"),
        ({"method": "dhcp", "gateway": "10.0.0.1"}, "method"),
        ({"method": "none", "addresses": ("10.0.0.5/24",)}, "method"),
        ({"method": "none", "dns": ("10.0.0.2",)}, "dns"),
        ({"method": "none", "search": ("x.example",)}, "search"),
        ({"method": "static", "addresses": ("fd00::5/64",), "dns": ("10.0.0.2",)}, "dns[0]"),
    ],
)
def test_a_network_setting_that_contradicts_itself_is_refused(
    inet: dict[str, object], key: str
) -> None:
    guest = plain("rocky9", nics=(nic(0, Inet.model_validate(inet)),))

    with pytest.raises(RenderError) as caught:
        render(guest, env="prod")

    assert caught.value.key == f"nics[net0].inet.{key}"


def test_ipv6_addresses_are_refused_where_ipv6_is_off() -> None:
    with pytest.raises(RenderError, match=r"nics\[net0\].inet: fd00::5/64 is IPv6"):
        render(full("rocky9", ipv6=False), env="prod")


@pytest.mark.parametrize("slot", ["virtio0", "sata0", "ide0"])
def test_a_root_disk_that_the_guest_could_not_tell_apart_is_refused(slot: str) -> None:
    guest = plain("rocky9", disks=(Disk(slot=slot, storage="s", size=GIB),), root_disk=slot)

    with pytest.raises(RenderError, match="set one, or use a scsi slot"):
        render(guest, env="prod")


def test_a_guest_that_is_not_installed_from_an_iso_is_refused() -> None:
    with pytest.raises(RenderError, match="source: guest db1 is not installed from an ISO"):
        render(plain("rocky9").model_copy(update={"source": None}), env="prod")


@pytest.mark.parametrize("env", ["a_b", "a/b", "", "ä"])
def test_an_environment_name_that_a_file_name_could_not_hold_is_refused(env: str) -> None:
    with pytest.raises(RenderError, match=r"^env: "):
        render(plain("rocky9"), env=env)


@pytest.mark.parametrize("distro", APT)
def test_an_apt_repository_becomes_a_source_line(distro: str) -> None:
    repositories = (
        Repository(name="pg", baseurl="[trusted=yes] https://apt.example/pg bookworm-pgdg main"),
        Repository(name="flat", baseurl="https://apt.example/flat/"),
        Repository(name="many", mirrorlist="https://apt.example/mirrors.txt stable main contrib"),
    )

    files = put_files(render(plain(distro, repositories=repositories), env="prod"))

    assert {path: text for path, (_, text) in files.items() if "sources.list.d" in path} == {
        "/etc/apt/sources.list.d/proxflow-pg.list": (
            "deb [trusted=yes] https://apt.example/pg bookworm-pgdg main"
        ),
        "/etc/apt/sources.list.d/proxflow-flat.list": "deb https://apt.example/flat/ ./",
        "/etc/apt/sources.list.d/proxflow-many.list": (
            "deb mirror+https://apt.example/mirrors.txt stable main contrib"
        ),
    }


@pytest.mark.parametrize("distro", [*APT, "sles15", "leap16"])
def test_a_cost_is_refused_where_the_package_manager_has_none(distro: str) -> None:
    repository = Repository(name="a", baseurl="https://x.example/a", cost=10)

    with pytest.raises(RenderError, match=r"repositories\[0\].cost"):
        render(plain(distro, repositories=(repository,)), env="prod")


@pytest.mark.skipif(not shutil.which("debconf-set-selections"), reason="debconf is not installed")
@pytest.mark.parametrize("distro", ["debian12", "debian13"])
def test_debconf_accepts_the_preseed_file(distro: str) -> None:
    text = render(full(distro), env="prod").files["preseed.cfg"]

    done = subprocess.run(
        ["debconf-set-selections", "--checkonly"],
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("cloud-init"), reason="cloud-init is not installed")
@pytest.mark.parametrize("distro", [name for name in EVERY if name.startswith("ubuntu")])
def test_cloud_init_accepts_the_user_data(distro: str, tmp_path: Path) -> None:
    path = tmp_path / "user-data"
    path.write_text(render(full(distro), env="prod").files["user-data"], encoding="utf-8")

    done = subprocess.run(
        ["cloud-init", "schema", "--config-file", str(path)],
        text=True,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("xmllint"), reason="xmllint is not installed")
@pytest.mark.parametrize("distro", ["sles15", "leap15"])
def test_xmllint_accepts_the_autoyast_profile(distro: str) -> None:
    text = render(full(distro), env="prod").files["autoinst.xml"]

    done = subprocess.run(
        ["xmllint", "--noout", "-"], input=text, text=True, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert profile(render(full(distro), env="prod")).tag.endswith("profile")


@pytest.mark.parametrize("distro", ANACONDA)
def test_pykickstart_accepts_the_kickstart_of_its_release_without_a_warning(distro: str) -> None:
    for guest in (full(distro), plain(distro), plain(distro, nics=())):
        assert kickstart(render(guest, env="prod")).platform == ""


def test_every_template_is_in_a_package_so_that_a_wheel_holds_it() -> None:
    folders = {path.parent for path in Path(templating.__file__).parent.rglob("*.j2")}

    assert len(folders) == 6
    assert all((folder / "__init__.py").exists() for folder in folders)
