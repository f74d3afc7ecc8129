"""What Agama is told, what its two scripts do, and its boot menu."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft201909Validator
from referencing import Registry
from referencing.jsonschema import DRAFT201909

from blocks.manifest.guest import Disk, Firmware, Inet, Repository
from blocks.units import GIB
from tasks.iso import menus
from tasks.iso.distros import DISTROS
from tasks.iso.keymaps import KEYMAPS
from tasks.iso.remaster import remaster
from tasks.iso.render import Rendered, RenderError, render

from .guests import HASH, KEY, ROOT_HASH, V6_ONLY, full, nic, plain
from .images import AGAMA_GRUB, agama_medium, needs_xorriso
from .reading import agama, put_files, puts, setup, shell_accepts

AGAMA = [name for name, distro in DISTROS.items() if distro.family == "agama"]


def told(distro: str = "sles16", **installation: Any) -> dict[str, Any]:
    return agama(render(plain(distro, **installation), env="prod"))


def put_keys(rendered: Rendered) -> list[str]:
    return [text for path, _, text in puts(rendered) if path.endswith("authorized_keys")]


def script(kind: str, **installation: Any) -> str:
    (one,) = told(**installation)["scripts"][kind]
    return str(one["content"])


@pytest.mark.parametrize(
    ("distro", "product"),
    [("sles16", "SLES"), ("leap16", "Leap_16.0"), ("leap161", "openSUSE_Leap")],
)
def test_agama_names_the_product_as_its_medium_does(distro: str, product: str) -> None:
    assert told(distro)["product"] == {"id": product}


def test_agama_asks_nothing_and_is_told_language_keyboard_zone_and_name() -> None:
    profile = agama(render(full("sles16"), env="prod"))

    assert profile["questions"] == {"policy": "auto"}
    assert profile["localization"] == {
        "language": "de_DE.UTF-8",
        "keyboard": "de",
        "timezone": "Europe/Berlin",
    }
    assert profile["hostname"] == {"static": "db1"}


@pytest.mark.parametrize(
    ("keyboard", "name"), [("us", "us"), ("de (nodeadkeys)", "de-nodeadkeys"), ("latam", "latam")]
)
def test_a_keyboard_is_named_as_localed_lists_it(keyboard: str, name: str) -> None:
    assert told(keyboard=keyboard)["localization"]["keyboard"] == name
    assert name in KEYMAPS


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("keyboard", "de (dvorack)", "of this layout it knows de, de-T3"),
        ("keyboard", "qq", "such as us or de"),
        ("lang", "C.UTF-8", "en_US.UTF-8"),
        ("lang", "de_DE.UTF-8@euro", "en_US.UTF-8"),
        ("lang", "de_ZZ.UTF-8", "en_US.UTF-8"),
    ],
)
def test_what_would_make_agama_drop_its_answers_is_refused_by_name(
    field: str, value: str, says: str
) -> None:
    with pytest.raises(RenderError, match=says) as refused:
        told(**{field: value})

    assert refused.value.key == f"installation.{field}"


def test_the_root_disk_is_found_by_its_link_wiped_and_is_the_only_one_named() -> None:
    storage = told()["storage"]

    (drive,) = storage["drives"]
    assert drive["search"] == {
        "condition": {"name": "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi0"},
        "ifNotFound": "error",
    }
    assert drive["partitions"][0] == {"search": "*", "delete": True}
    assert storage["boot"] == {"configure": True, "device": drive["alias"]}


def test_root_and_swap_are_on_lvm_on_the_root_disk() -> None:
    storage = told()["storage"]

    (group,) = storage["volumeGroups"]
    assert group["name"] == "system_db1"
    assert group["physicalVolumes"] == [storage["drives"][0]["partitions"][1]["alias"]]
    assert [
        (volume["filesystem"]["path"], volume["filesystem"]["type"])
        for volume in group["logicalVolumes"]
    ] == [("swap", "swap"), ("/", "xfs")]


def test_a_virtio_disk_is_found_by_its_serial_number() -> None:
    disk = Disk(slot="virtio0", storage="local", size=32 * GIB, serial="ROOT1")

    profile = agama(
        render(
            plain("leap16", disks=(disk,), root_disk="virtio0", firmware=Firmware(bios="ovmf")),
            env="prod",
        )
    )

    assert profile["storage"]["drives"][0]["search"]["condition"] == {
        "name": "/dev/disk/by-id/virtio-ROOT1"
    }


def test_the_installer_has_the_network_of_one_card_by_its_mac() -> None:
    (connection,) = agama(render(full("sles16"), env="prod"))["network"]["connections"]

    assert connection == {
        "id": "proxflow-net0",
        "macAddress": "BC:24:11:00:00:00",
        "method4": "manual",
        "method6": "manual",
        "addresses": ["10.0.0.5/24", "10.0.0.6/24", "fd00::5/64"],
        "gateway4": "10.0.0.1",
        "nameservers": ["10.0.0.2", "fd00::2"],
        "dnsSearchlist": ["corp.example"],
    }


@pytest.mark.parametrize(
    ("inet", "ipv6", "methods"),
    [
        (Inet(), True, ("auto", "auto")),
        (Inet(), False, ("auto", "disabled")),
        (V6_ONLY, True, ("disabled", "manual")),
    ],
)
def test_the_installers_protocols_are_those_of_the_card(
    inet: Inet, ipv6: bool, methods: tuple[str, str]
) -> None:
    (connection,) = told(nics=(nic(0, inet),), ipv6=ipv6)["network"]["connections"]

    assert (connection["method4"], connection["method6"]) == methods


def test_without_an_address_the_installer_gets_no_network() -> None:
    assert "network" not in told(nics=(nic(0, Inet(method="none")),))


def test_every_card_has_a_keyfile_and_a_named_one_its_name_in_the_initramfs() -> None:
    rendered = render(full("sles16"), env="prod")
    folder = "/etc/NetworkManager/system-connections"

    files = put_files(rendered)

    assert {path for path in files if path.startswith(folder)} == {
        f"{folder}/proxflow-net{index}.nmconnection" for index in range(3)
    }
    assert files["/etc/systemd/network/70-proxflow-pub0.link"][1].endswith("Name=pub0")
    text = setup(rendered)
    assert text.index(f"rm -f {folder}/*") < text.index(f"put {folder}")
    assert "dracut --force --regenerate-all" in text


def test_agama_gets_no_password_and_its_script_sets_the_real_ones() -> None:
    rendered = render(full("sles16"), env="prod")
    profile = agama(rendered)

    post, init = profile.pop("scripts").values()

    assert profile["root"] == {"password": "!", "hashedPassword": True}
    assert HASH not in json.dumps([profile, init])
    assert f"root:{ROOT_HASH}" in post[0]["content"]
    assert "rm -f /var/lib/agama/scripts/post/proxflow-*" in init[0]["content"]


def test_a_locked_root_keeps_its_keys() -> None:
    rendered = render(plain("sles16", root_ssh_keys=(KEY,)), env="prod")

    assert agama(rendered)["root"]["password"] == "!"
    assert "chpasswd" not in setup(rendered)
    assert put_keys(rendered) == [KEY]


def test_administrators_are_asked_for_their_own_password() -> None:
    _, text = put_files(render(plain("sles16"), env="prod"))["/etc/sudoers.d/90-proxflow"]

    assert text == "Defaults:%wheel !targetpw\n%wheel ALL=(ALL:ALL) ALL"


def test_patterns_are_added_to_those_of_the_product() -> None:
    software = told(packages=("pattern:kvm_server", "vim"))["software"]

    assert software["patterns"] == {"add": ["kvm_server"]}
    assert "vim" in software["packages"]
    assert "patterns" not in told()["software"]


def test_the_install_source_is_one_more_repository_of_the_installer() -> None:
    software = agama(render(full("leap16"), env="prod"))["software"]

    assert software["extraRepositories"] == [
        {"alias": "proxflow-install", "url": "http://mirror.corp.example/os"}
    ]


def test_zypper_repositories_become_files() -> None:
    own = Repository(name="own", baseurl="https://r.example/16?a=1&b=2")

    files = put_files(render(plain("leap16", repositories=(own,)), env="prod"))

    assert files["/etc/zypp/repos.d/proxflow-own.repo"][1].splitlines()[-1] == (
        "baseurl=https://r.example/16?a=1&b=2"
    )


def test_only_the_named_time_servers_count() -> None:
    rendered = render(full("sles16"), env="prod")

    assert put_files(rendered)["/etc/chrony.d/proxflow.conf"] == (
        "0644",
        "server ntp1.corp.example iburst\nserver 10.0.0.9 iburst",
    )
    assert "chrony" in agama(rendered)["software"]["packages"]
    assert "chrony" not in script("post")


@pytest.mark.parametrize("firewall", [True, False])
def test_the_firewall_lets_ssh_in_or_is_off(firewall: bool) -> None:
    text = script("post", firewall=firewall)

    assert ("--add-service=ssh" in text) is firewall
    assert ("systemctl enable firewalld" in text) is firewall
    assert ("systemctl disable firewalld" in text) is not firewall


@pytest.mark.parametrize("state", ["enforcing", "permissive", "disabled"])
def test_selinux_gets_the_declared_state(state: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("# SELINUX= can be:\nSELINUX=enforcing\nSELINUXTYPE=targeted\n")
    (line,) = [one for one in script("post", selinux=state).splitlines() if "SELINUX=" in one]

    subprocess.run(["sh", "-c", line.replace("/etc/selinux/config", str(config))], check=True)

    assert config.read_text() == f"# SELINUX= can be:\nSELINUX={state}\nSELINUXTYPE=targeted\n"
    assert ("pbl --add-option selinux=0" in script("post", selinux=state)) is (state == "disabled")
    added = told(selinux=state)["software"].get("patterns", {"add": []})["add"]
    assert added == ([] if state == "disabled" else ["selinux"])


def test_selinux_stays_as_the_distribution_has_it_if_nothing_is_said() -> None:
    assert "selinux" not in json.dumps(told())


@pytest.mark.parametrize("console", [True, False])
def test_the_kernel_speaks_to_a_serial_console_where_there_is_one(console: bool) -> None:
    guest = plain("sles16").model_copy(update={"serial_console": console})

    text = agama(render(guest, env="prod")).get("bootloader", {}).get("extraKernelParams", "")

    assert text == ("console=tty0 console=ttyS0,115200" if console else "")


@pytest.mark.parametrize(
    ("set_up", "code", "finished"),
    [(True, 0, True), (True, 102, True), (True, 103, True), (True, 104, False), (False, 0, False)],
)
def test_a_system_is_marked_in_its_first_boot_if_setup_update_and_packages_went_well(
    set_up: bool, code: int, finished: bool, tmp_path: Path
) -> None:
    text = script("init", update_system=True, packages_post=("git",))
    for place in ("/etc/proxflow-release", "/root/.proxflow-setup"):
        text = text.replace(place, str(tmp_path / place.rpartition("/")[2]))
    if set_up:
        (tmp_path / ".proxflow-setup").touch()
    calls = tmp_path / "calls"
    (tmp_path / "zypper").write_text(f'#!/bin/sh\necho "$@" >>{calls}\nexit {code}\n')
    (tmp_path / "zypper").chmod(0o755)

    subprocess.run(
        ["sh", "-c", text],
        check=False,
        capture_output=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )

    assert (tmp_path / "proxflow-release").exists() is finished
    assert not (tmp_path / ".proxflow-setup").exists()
    if finished:
        assert [line.split()[2:] for line in calls.read_text().splitlines()] == [
            ["update"],
            ["install", "git"],
        ]


def test_the_setup_script_says_at_its_very_end_that_it_came_there() -> None:
    lines = [line for line in script("post").splitlines() if line]

    assert lines[-1] == "touch /root/.proxflow-setup"
    assert "set -eu" in lines
    assert "/etc/proxflow-release" not in "".join(lines)


@pytest.mark.parametrize("distro", AGAMA)
def test_scripts_are_accepted_by_the_shell_and_begin_as_agama_runs_them(distro: str) -> None:
    scripts = agama(render(full(distro, selinux="disabled"), env="prod"))["scripts"]

    for one in (*scripts["post"], *scripts["init"]):
        assert one["content"].startswith("#!/bin/sh\n")
        assert shell_accepts(one["content"])


def test_the_menu_installs_where_it_would_boot_the_disk_whatever_the_firmware() -> None:
    once = menus.rewrite(AGAMA_GRUB, "grub", "agama", ())
    twice = menus.rewrite(once, "grub", "agama", ())

    assert once == AGAMA_GRUB + 'set default="Install SUSE SLE 16 (x86_64)"\nset timeout=1\n'
    assert twice == once
    assert menus.loader_of("boot/grub2/grub.cfg") == "grub"


@needs_xorriso
def test_the_medium_is_rewritten_in_its_menu_alone(tmp_path: Path) -> None:
    made = remaster(agama_medium(tmp_path), tmp_path / "new.iso", "agama")
    again = remaster(made.path, tmp_path / "again.iso", "agama")

    assert made.changed == ("boot/grub2/grub.cfg",)
    assert again.changed == ()


def test_a_menu_without_an_installer_stays_as_it_is() -> None:
    search = "search --file --set=root /boot/id\nconfigfile ($root)/boot/grub2/grub.cfg"

    assert menus.rewrite(search, "grub", "agama", ()) == search


@pytest.mark.skipif(not shutil.which("grub-script-check"), reason="grub-common is not installed")
def test_grub_accepts_the_rewritten_menu(tmp_path: Path) -> None:
    menu = tmp_path / "grub.cfg"
    menu.write_text(menus.rewrite(AGAMA_GRUB, "grub", "agama", ()), encoding="utf-8")

    done = subprocess.run(["grub-script-check", str(menu)], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


SCHEMA = os.environ.get("PROXFLOW_AGAMA_SCHEMA", "")
"""Agama's profile.schema.json, with the schemas beside it that it refers to."""
needs_schema = pytest.mark.skipif(
    not SCHEMA, reason="PROXFLOW_AGAMA_SCHEMA names no copy of Agama's profile.schema.json"
)


def validator() -> Draft201909Validator:
    registry: Registry[Any] = Registry()
    for path in Path(SCHEMA).parent.glob("*.schema.json"):
        # They name each other by their file names, and themselves by places on the web.
        schema = json.loads(path.read_text(encoding="utf-8"))
        schema.pop("$id", None)
        resource = DRAFT201909.create_resource(schema)
        registry = registry.with_resource(f"https://agama.example/{path.name}", resource)
    top = f"https://agama.example/{Path(SCHEMA).name}"
    return Draft201909Validator({"$ref": top}, registry=registry)


@needs_schema
@pytest.mark.parametrize("distro", AGAMA)
def test_the_schema_that_agama_publishes_accepts_the_profile(distro: str) -> None:
    for guest in (
        full(distro, selinux="permissive"),
        plain(distro),
        plain(distro, ipv6=False, packages=("pattern:kvm_server",)),
        plain(distro, nics=(nic(0, V6_ONLY), nic(1, Inet(method="none")))),
        plain(distro).model_copy(update={"serial_console": False}),
    ):
        profile = agama(render(guest, env="prod"))

        assert [error.message for error in validator().iter_errors(profile)] == []


@needs_schema
def test_the_schema_is_read_so_that_it_refuses_what_is_wrong() -> None:
    profile = told()
    profile["storage"]["drives"][0]["search"]["condition"]["name"] = 1
    profile["localisation"] = {}

    assert len([*validator().iter_errors(profile)]) == 2
