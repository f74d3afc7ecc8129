"""What cloud-init reads, judged by cloud-init itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from ruamel.yaml import YAML

from blocks.manifest.guest import Guest, Inet
from tasks.cloudinit.documents import Documents, documents
from tasks.cloudinit.emit import emit
from tasks.iso.checks import RenderError
from tests.environments import KEY

from .guests import DUAL, ENV, HASH, MATRIX, STRANGE, guest, nic, static

needs_cloud_init = pytest.mark.skipif(
    shutil.which("cloud-init") is None, reason="cloud-init is not installed"
)
# Renderer and distribution of the cloud images of the catalogue.
RENDERERS = (
    ("netplan", "ubuntu"),
    ("netplan", "debian"),
    ("eni", "debian"),
    ("eni", "alpine"),
    ("sysconfig", "rocky"),
    ("sysconfig", "almalinux"),
    ("network-manager", "fedora"),
    ("networkd", "debian"),
    ("sysconfig", "opensuse"),
)
NETWORKS = ("no card", "three cards, dual stack", "IPv6 alone", "DHCPv6")
BOTH_ROUTES = "one card, dual stack"

Written = Mapping[tuple[str, str, str], str]


def made(one: Guest) -> Documents:
    return documents(one, env=ENV)


def read(text: str) -> dict[str, object]:
    """As cloud-init reads it: YAML 1.1."""
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 1)
    loaded = reader.load(text)
    assert isinstance(loaded, dict)
    return loaded


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_SEVERAL = """
import json, sys
from cloudinit.cmd.main import main
for words in json.load(sys.stdin):
    if main(["cloud-init", *words]):
        sys.exit(f"{words} failed")
"""


def cloud_init(program: str, text: str) -> str:
    """What a program of Python prints that imports cloud-init and reads this text."""
    interpreter = Path(str(shutil.which("cloud-init"))).read_text().partition("\n")[0]
    done = subprocess.run(
        [*interpreter.removeprefix("#!").split(), "-c", program],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(lines: Iterable[Sequence[object]]) -> str:
    """What several command lines of cloud-init print, of which none may fail."""
    return cloud_init(_SEVERAL, json.dumps([[str(word) for word in line] for line in lines]))


@needs_cloud_init
def test_cloud_inits_own_schema_accepts_every_user_document(tmp_path: Path) -> None:
    files = []
    for number, one in enumerate(MATRIX.values()):
        file = tmp_path / f"{number}.yaml"
        file.write_text(made(one).user_data)
        files.append(file)

    said = commands(("schema", "--config-file", file) for file in files)

    valid = [line for line in said.splitlines() if line.startswith("Valid")]
    assert len(valid) == len(files), said


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """What cloud-init's own renderers make of network documents, by document and renderer."""
    folder = tmp_path_factory.mktemp("renderers")
    sources = {name: made(MATRIX[name]).network_config for name in NETWORKS}
    sources[BOTH_ROUTES] = made(guest(nic(0, DUAL))).network_config
    lines: list[Sequence[object]] = []
    targets: dict[tuple[str, str, str], Path] = {}
    for number, (name, text) in enumerate(sources.items()):
        source = folder / f"{number}.yaml"
        source.write_text(text)
        for renderer, distro in RENDERERS:
            target = folder / f"{number}-{renderer}-{distro}"
            targets[name, renderer, distro] = target
            command = ("devel", "net-convert", "-k", "yaml", "-p", source, "-d", target)
            lines.append((*command, "-D", distro, "-O", renderer))
    commands(lines)
    return {
        key: "\n".join(file.read_text() for file in target.rglob("*") if file.is_file())
        for key, target in targets.items()
    }


@needs_cloud_init
@pytest.mark.parametrize(("renderer", "distro"), RENDERERS)
def test_cloud_inits_own_renderers_accept_every_network_document(
    written: Written, renderer: str, distro: str
) -> None:
    for name in NETWORKS:
        text = written[name, renderer, distro]
        found = [address in text for address in ("192.0.2.10", "2001:db8::10")]
        assert found == [name.startswith("three"), name.startswith(("three", "IPv6"))]


@needs_cloud_init
@pytest.mark.parametrize(("renderer", "distro"), [one for one in RENDERERS if one[1] != "opensuse"])
def test_both_default_routes_arrive_whatever_the_renderer(
    written: Written, renderer: str, distro: str
) -> None:
    text = written[BOTH_ROUTES, renderer, distro]

    lines = [line.strip().lower() for line in text.splitlines()]
    for gateway in ("192.0.2.1", "2001:db8::1"):
        (line,) = (line for line in lines if line.split("=")[-1].split(" ")[-1] == gateway)
        assert line.startswith(("gateway", "ipv6_defaultgw"))
    assert not any("::/64" in line for line in lines)
    assert any("192.0.2.53" in line for line in lines)


def test_cards_are_found_by_their_mac_address_and_named() -> None:
    one = guest(nic(0, DUAL), nic(1, Inet(), name="stor0"))

    cards = read(made(one).network_config)["config"]

    assert isinstance(cards, list)
    assert [(card["mac_address"], card["name"]) for card in cards[:2]] == [
        ("bc:24:11:00:00:00", "eth0"),
        ("bc:24:11:00:00:01", "stor0"),
    ]


def test_a_gateway_beside_dhcp_is_left_to_dhcp() -> None:
    inet = Inet(method="dhcp", gateway=ip_address("192.0.2.1"))

    network = made(guest(nic(inet=inet))).network_config

    assert "gateway" not in network


def test_a_named_user_takes_the_place_of_the_images_own() -> None:
    document = read(made(guest(nic(), sudo_nopasswd=False)).user_data)

    assert document["users"] == ["default"]
    assert document["user"] == {
        "name": "ops",
        "lock_passwd": True,
        "ssh_authorized_keys": [KEY],
        "sudo": "ALL=(ALL) ALL",
    }


_NORMALIZE = """
import json, sys, yaml
from cloudinit.distros import fetch, ug_util
from cloudinit.helpers import Paths
image = {"name": "debian", "lock_passwd": True, "groups": ["adm", "sudo"], "shell": "/bin/bash",
         "sudo": ["ALL=(ALL) NOPASSWD:ALL"]}
distro = fetch("debian")("debian", {"default_user": image}, Paths({}))
users, _ = ug_util.normalize_users_groups(yaml.safe_load(sys.stdin), distro)
print(json.dumps(users))
"""


def _accounts(text: str) -> dict[str, Any]:
    """The accounts that cloud-init itself would make of a user document on an image of Debian."""
    found: dict[str, Any] = json.loads(cloud_init(_NORMALIZE, text))
    return found


@needs_cloud_init
def test_cloud_init_makes_the_named_user_with_the_groups_of_the_images_own() -> None:
    one = guest(nic(), password_hash=SecretStr(HASH), sudo_nopasswd=False)

    (name, account), *others = _accounts(made(one).user_data).items()

    assert (name, others) == ("ops", [])
    assert (account["groups"], account["shell"]) == ("adm,sudo", "/bin/bash")
    assert (account["lock_passwd"], account["hashed_passwd"]) == (False, HASH)
    assert (account["sudo"], account["ssh_authorized_keys"]) == ("ALL=(ALL) ALL", [KEY])


@needs_cloud_init
def test_cloud_init_makes_nobody_beside_root_where_root_is_declared() -> None:
    accounts = _accounts(made(guest(nic(), user="root")).user_data)

    assert list(accounts) == ["root"]
    assert accounts["root"]["lock_passwd"] is True


def test_only_who_has_no_key_may_log_in_over_the_network_with_a_password() -> None:
    both = read(made(guest(nic(), password_hash=SecretStr(HASH))).user_data)
    password = read(made(guest(nic(), password_hash=SecretStr(HASH), ssh_keys=())).user_data)

    assert (both["ssh_pwauth"], password["ssh_pwauth"]) == (False, True)


def test_a_password_is_in_the_documents_as_the_same_hash_each_time() -> None:
    one = guest(nic(), password=SecretStr("correct horse"))

    first, second = made(one), made(one)

    assert first == second
    assert "correct horse" not in "".join(first.files.values())
    user = read(first.user_data)["user"]
    assert isinstance(user, dict)
    assert str(user["hashed_passwd"]).startswith("$6$")
    assert user["lock_passwd"] is False


def test_no_secret_is_in_the_repr_of_documents() -> None:
    one = made(guest(nic(), password_hash=SecretStr(HASH)))

    assert HASH in one.user_data
    assert HASH not in repr(one)


def test_a_hash_that_would_be_taken_for_a_clear_text_is_refused_for_the_images_user() -> None:
    yescrypt = SecretStr("$y$j9T$abcdefgh$" + "b" * 43)

    with pytest.raises(RenderError, match="mkpasswd -m sha-512") as refused:
        made(guest(nic(), user=None, password_hash=yescrypt))
    assert "$y$" not in str(refused.value)
    assert made(guest(nic(), password_hash=yescrypt)).user_data


def test_the_instance_id_changes_with_any_document_and_with_the_guest() -> None:
    one = guest(nic())
    others = (
        guest(nic(), packages=("vim",)),
        guest(nic(inet=static("192.0.2.10/24"))),
        guest(nic(), vendor_data="#!/bin/sh\n"),
        guest(nic(), hostname="web2", user_data="#cloud-config\n"),
        one.model_copy(update={"vmid": 902}),
    )

    ids = {read(made(each).meta_data)["instance-id"] for each in (one, *others)}

    assert len(ids) == 6
    assert read(made(one).meta_data) == read(made(guest(nic())).meta_data)


def test_strange_text_reaches_the_shell_unchanged() -> None:
    document = read(made(guest(nic(), commands=(STRANGE, "yes", "0123"))).user_data)

    assert document["runcmd"] == [STRANGE, "yes", "0123"]


WORDS = ("yes", "No", "null", "~", "0x1f", "012", "1e3", "12:30:45", "2001-01-01", "=", "<<", "")
texts = st.one_of(
    st.sampled_from(WORDS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(texts, max_size=6))
def test_any_text_comes_back_from_the_yaml_unchanged(commands: list[str]) -> None:
    one = guest(nic(), commands=tuple(commands))

    text = made(one).user_data

    assert text.isascii()
    assert read(text).get("runcmd", []) == commands


def test_debian_finds_a_declared_locale_on_its_list_once(tmp_path: Path) -> None:
    listed = tmp_path / "locale.gen"
    listed.write_text("# de_DE.UTF-8 UTF-8\n")
    document: dict[str, Any] = read(made(guest(nic(), locale="de_DE.UTF-8")).user_data)
    ((shell, option, script, *words),) = document["bootcmd"]

    for _ in range(2):
        run(shell, option, script.replace("/etc/locale.gen", str(listed)), *words)

    assert listed.read_text() == "# de_DE.UTF-8 UTF-8\nde_DE.UTF-8 UTF-8\n"


def test_text_that_no_document_can_hold_is_refused_by_its_key() -> None:
    with pytest.raises(RenderError, match="runcmd"):
        emit({"runcmd": ["\ud800"]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hostname", "not a name"),
        ("domain", "under_score"),
        ("user", "Ops Team"),
        ("ssh_keys", ("ssh-ed25519 short",)),
        ("password_hash", SecretStr("clear text")),
        ("timezone", "Europe / Berlin"),
        ("locale", "de DE"),
        ("packages", ("a\nb",)),
    ],
)
def test_a_value_that_is_wrong_is_refused_by_its_key(key: str, value: object) -> None:
    with pytest.raises(RenderError, match=rf"cloud_init\.{key}") as refused:
        made(guest(nic(), **{key: value}))

    assert "clear text" not in str(refused.value)


def test_a_card_without_a_mac_address_is_refused() -> None:
    with pytest.raises(RenderError, match="MAC address"):
        made(guest(nic(mac=None)))
