"""Cloud-init as the options of Proxmox VE."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from blocks.manifest.guest import CloneSource, CloudInit, Guest, Inet, Nic
from blocks.proxmox.properties import (
    UnsupportedCloudInit,
    beyond_fields,
    cloud_init_drives,
    decode_cloud_init,
    encode_cicustom,
    encode_cloud_init,
)
from blocks.sha512crypt import salt_for, sha512_crypt
from tests.environments import KEY
from tests.tasks.cloudinit.guests import DUAL, HASH, nic, static

FACTS = Path(__file__).parents[2] / "deployments/pve_facts/06-cloud-image-template.jsonl"


def guest(*nics: Nic, ostype: str = "l26", name: str = "web1", **told: Any) -> Guest:
    usual = {"storage": "local", "hostname": name, "user": "ops", "ssh_keys": (KEY,)}
    return Guest(
        label="web1",
        node="pve1",
        vmid=901,
        name=name,
        ostype=ostype,
        nics=nics,
        source=CloneSource(template="template"),
        cloud_init=CloudInit(**{**usual, **told}),
    )


def recorded(step: int) -> dict[str, Any]:
    lines = FACTS.read_text().splitlines()
    found: dict[str, Any] = next(row for row in map(json.loads, lines) if row["step"] == step)
    return found


@pytest.mark.parametrize(
    ("inet", "option"),
    [
        (Inet(), "ip=dhcp"),
        (Inet(method="none"), None),
        (static("192.0.2.10/24", gateway="192.0.2.1"), "gw=192.0.2.1,ip=192.0.2.10/24"),
        (static("192.0.2.10/24"), "ip=192.0.2.10/24"),
        (
            DUAL,
            "gw=192.0.2.1,gw6=2001:db8::1,ip=192.0.2.10/24,ip6=2001:db8::10/64",
        ),
        (
            static("2001:db8::10/64", gateway="2001:db8::1"),
            "gw6=2001:db8::1,ip6=2001:db8::10/64",
        ),
        (Inet(ipv6="auto"), "ip=dhcp,ip6=auto"),
        (Inet(method="none", ipv6="dhcp"), "ip6=dhcp"),
        (Inet(gateway=ip_address("192.0.2.1")), "ip=dhcp"),
    ],
)
def test_each_card_has_its_own_option(inet: Inet, option: str | None) -> None:
    options = encode_cloud_init(guest(nic(0), nic(3, inet)))

    assert options["ipconfig0"] == "ip=dhcp"
    assert options.get("ipconfig3") == option


def test_keys_and_names_are_written_as_the_recorded_server_keeps_them() -> None:
    config = recorded(2)["data"]
    key = decode_cloud_init(config)["sshkeys"].replace("%20", " ").replace("%40", "@")
    one = guest(
        nic(inet=static("192.0.2.10/24", gateway="192.0.2.1")),
        user="admin",
        ssh_keys=(key,),
        dns=(ip_address("192.0.2.53"),),
        search=("example.test",),
        upgrade=True,
    )

    options = decode_cloud_init(encode_cloud_init(one))

    kept = {key: value for key, value in decode_cloud_init(config).items() if key != "cipassword"}
    assert options == {**kept, "citype": "nocloud"}


def test_several_keys_are_one_a_line() -> None:
    options = encode_cloud_init(guest(ssh_keys=(KEY, KEY)))

    assert str(options["sshkeys"]).count("%0A") == 1
    assert " " not in str(options["sshkeys"])


def test_a_switch_that_is_off_is_said_since_the_server_upgrades_by_default() -> None:
    assert encode_cloud_init(guest())["ciupgrade"] == 0
    assert "ciupgrade" not in decode_cloud_init({"ciupgrade": 1})


def test_windows_gets_the_kind_that_it_reads() -> None:
    kinds = {
        ostype: encode_cloud_init(guest(ostype=ostype))["citype"] for ostype in ("win11", "l26")
    }

    assert kinds == {"win11": "configdrive2", "l26": "nocloud"}


def test_a_seed_needs_no_options_and_snippets_only_the_kind() -> None:
    assert encode_cloud_init(guest(method="seed")) == {}
    assert encode_cloud_init(guest(method="snippets")) == {"citype": "nocloud"}


def test_the_domain_comes_first_since_the_server_appends_the_search_domain_to_the_name() -> None:
    assert encode_cloud_init(guest(domain="corp.example"))["searchdomain"] == "corp.example"


def test_a_password_is_sent_as_a_hash_that_the_server_keeps_as_it_is() -> None:
    options = encode_cloud_init(guest(password=SecretStr("correct horse")))

    assert str(options["cipassword"]).startswith("$6$")
    assert options == encode_cloud_init(guest(password=SecretStr("correct horse")))


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"packages": ("vim",)}, "packages"),
        ({"commands": ("true",)}, "commands"),
        ({"timezone": "UTC"}, "timezone"),
        ({"locale": "C.UTF-8"}, "locale"),
        ({"user_data": "#cloud-config\n"}, "user_data"),
        ({"vendor_data": "#!/bin/sh\n"}, "vendor_data"),
        ({"network_config": "version: 2\n"}, "network_config"),
        ({"sudo_nopasswd": False}, "sudo"),
        ({"password_hash": SecretStr("$y$j9T$salt$hash")}, "password_hash"),
        ({"search": ("a.example", "b.example")}, "search domains"),
    ],
)
def test_what_the_options_cannot_say_is_refused_by_name(told: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedCloudInit, match=named) as refused:
        encode_cloud_init(guest(**told))

    assert "seed" in str(refused.value.advice)
    assert "$y$" not in str(refused.value)


@pytest.mark.parametrize(
    ("card", "named"),
    [
        (nic(inet=static("192.0.2.10/24", "192.0.2.11/24")), "several addresses"),
        (nic(inet=static("2001:db8::1/64", ipv6="auto")), "automatic IPv6"),
        (nic(name="public0"), "public0"),
    ],
)
def test_what_the_options_cannot_say_of_a_card_is_told(card: Nic, named: str) -> None:
    (text,) = beyond_fields(guest(card))

    assert named in text
    assert "net0" in text


def test_everything_that_does_not_fit_is_told_at_once() -> None:
    assert len(beyond_fields(guest(nic(name="x"), packages=("a",), commands=("b",)))) == 3


def test_the_names_of_cards_that_the_server_gives_may_be_declared() -> None:
    assert beyond_fields(guest(nic(0, name="eth0"), nic(1, name="eth1"))) == ()


def test_a_name_with_a_domain_may_have_several_search_domains() -> None:
    assert beyond_fields(guest(name="web1.a.example", search=("a.example", "b.example"))) == ()


@pytest.mark.parametrize(
    "line",
    [
        "local:1070/vm-1070-cloudinit.qcow2,media=cdrom",
        "local-lvm:vm-1070-cloudinit,media=cdrom,size=4M",
        "local:cloudinit",
    ],
)
def test_the_servers_own_drive_is_known_by_its_volume(line: str) -> None:
    assert list(cloud_init_drives({"ide2": line, "ide0": "local:iso/a.iso,media=cdrom"})) == [
        "ide2"
    ]


def test_another_guests_disk_is_no_cloud_init_drive() -> None:
    assert (
        cloud_init_drives({"scsi0": "local-lvm:vm-1070-disk-0,size=4G", "name": "x:cloudinit"})
        == {}
    )


def test_options_compare_in_whatever_spelling() -> None:
    one = {
        "ipconfig0": "ip=192.0.2.10/24,gw=192.0.2.1",
        "nameserver": "1.1.1.1,9.9.9.9 ",
        "cores": 2,
    }
    other = {"ipconfig0": "gw=192.0.2.1,ip=192.0.2.10/24", "nameserver": "1.1.1.1 9.9.9.9"}

    assert decode_cloud_init(one) == decode_cloud_init(other)
    assert decode_cloud_init({"cicustom": "vendor=a:snippets/v,user=a:snippets/u"}) == {
        "cicustom": encode_cicustom({"user": "a:snippets/u", "vendor": "a:snippets/v"})
    }


def test_a_value_that_somebody_wrote_wrong_stays_as_it_is() -> None:
    assert decode_cloud_init({"cicustom": "nothing"}) == {"cicustom": "nothing"}


def test_the_hash_is_that_of_the_published_test_vector() -> None:
    # From the specification of SHA-crypt, version 0.6; openssl passwd -6 makes the same.
    assert sha512_crypt("Hello world!", "saltstring") == (
        "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnI"
        "FNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1"
    )


def test_a_salt_is_the_same_for_the_same_words_alone() -> None:
    assert salt_for("a", "b") == salt_for("a", "b")
    assert len({salt_for("a", "b"), salt_for("ab"), salt_for("b", "a")}) == 3
    assert len(sha512_crypt("x", salt_for("a")).split("$")[2]) == 16


@pytest.mark.parametrize("salt", ["", "with blank", "seventeen_letters", "a" * 17])
def test_a_salt_that_crypt_would_not_take_is_refused(salt: str) -> None:
    with pytest.raises(ValueError, match="salt"):
        sha512_crypt("x", salt)


def test_a_hash_is_sent_as_declared() -> None:
    assert encode_cloud_init(guest(password_hash=SecretStr(HASH)))["cipassword"] == HASH
