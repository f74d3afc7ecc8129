"""Property strings are read and written without losing anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocks.proxmox.properties import (
    KINDS,
    NIC_MODELS,
    Properties,
    PropertyError,
    decode_sshkeys,
    encode_sshkeys,
    format,
    format_tags,
    kind_of,
    normal,
    normal_description,
    owner_of,
    parse,
    parse_tags,
    storage_of,
)

RECORDED = json.loads((Path(__file__).parent / "recorded_configs.json").read_text())["strings"]

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters=",;", exclude_categories=["Cc", "Zl", "Zp"]),
    min_size=1,
    max_size=12,
)
# A text that reads as a number or a switch would be one, where the key's type says so.
PLAIN = WORDS.map(lambda word: f"x{word}")
VALUES = {
    "text": WORDS,
    "urlencoded": WORDS | st.just("a,b;c\nd"),
    "bool": st.booleans() | PLAIN,
    "int": st.integers() | PLAIN,
    "number": st.floats(0, 1e9, allow_subnormal=False) | PLAIN,
    "size": st.integers(1, 2**50) | PLAIN,
    "list": st.lists(WORDS, min_size=1, max_size=3).map(tuple),
}


@st.composite
def kinds_with_values(draw: st.DrawFn) -> tuple[str, Properties]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    spec = KINDS[kind]
    known = {key: VALUES[type_] for key, type_ in spec.types.items()}
    if spec.default and spec.default not in known:
        known[spec.default] = WORDS
    if kind == "net":
        known["model"] = st.sampled_from(sorted(NIC_MODELS)) | PLAIN
        known["macaddr"] = st.just("AA:BB:CC:00:11:22")
    if kind == "smbios1":
        known["family"] = WORDS
    unknown = st.dictionaries(st.from_regex(r"new-[a-z]{1,5}[0-9]?", fullmatch=True), WORDS)
    value = draw(unknown) | draw(st.fixed_dictionaries({}, optional=known))
    return kind, value


@given(kinds_with_values())
def test_what_is_written_is_read_back_whatever_the_kind_unknown_keys_included(
    case: tuple[str, Properties],
) -> None:
    kind, value = case
    assert parse(kind, format(kind, value)) == value


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in RECORDED.items() for text in texts]
)
def test_every_recorded_string_means_the_same_after_reading_and_writing(
    kind: str, text: str
) -> None:
    assert parse(kind, normal(kind, text)) == parse(kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("net", "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1,mtu=1,tag=20"),
        ("disk", "local:1050/vm-1050-disk-2.raw,discard=on,iothread=1,serial=DATA01,size=2G,ssd=1"),
        ("efidisk", "local:1050/vm-1050-disk-0.raw,efitype=4m,pre-enrolled-keys=0,size=528K"),
        ("lxc-net", "name=eth1,bridge=vmbr0,hwaddr=AA:BB:CC:00:33:01,ip=dhcp,ip6=auto,type=veth"),
        ("boot", "order=scsi0;ide2;net0"),
        ("disk", "local:1070/vm-1070-disk-0.qcow2,discard=on,size=4608M"),
    ],
)
def test_the_servers_own_spelling_comes_out_as_it_went_in(kind: str, text: str) -> None:
    assert normal(kind, text) == text


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("agent", "1", "enabled=1"),
        ("agent", "enabled=on", "enabled=true"),
        (
            "net",
            "virtio=AA:BB:CC:00:11:22,bridge=b",
            "bridge=b,model=virtio,macaddr=AA:BB:CC:00:11:22",
        ),
        ("net", "virtio,bridge=vmbr0", "model=virtio,bridge=vmbr0"),
        ("disk", "local:vm-1-disk-0,ssd=1", "ssd=yes,file=local:vm-1-disk-0"),
        ("disk", "local:vm-1-disk-0", "volume=local:vm-1-disk-0"),
        ("disk", "a:b,size=3584M", "a:b,size=3.5G"),
        ("rootfs", "local:1", "volume=local:1"),
        ("startup", "2,up=10", "up=10,order=2"),
        ("memory", "256", "current=256"),
    ],
)
def test_two_spellings_of_one_thing_are_equal(kind: str, one: str, other: str) -> None:
    assert parse(kind, one) == parse(kind, other)
    assert normal(kind, one) == normal(kind, other)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("net", "virtio=AA:BB:CC:00:11:22,model=e1000", "'model' is given twice"),
        ("disk", "local:1,file=local:2", "'file' is given twice"),
        ("disk", "local:1,ssd=", "has no value"),
        ("disk", "local:1,=1", "has no key"),
        ("features", "nesting", "write key=value"),
        ("smbios1", "base64=1,family=%%%", "'family' is no base64"),
    ],
)
def test_a_broken_string_is_refused_with_the_place(kind: str, text: str, says: str) -> None:
    with pytest.raises(PropertyError, match=says):
        parse(kind, text)


@pytest.mark.parametrize("value", ["a,b", "a\nb", "", "a\n"])
def test_a_value_that_no_string_can_hold_is_refused_instead_of_written(value: str) -> None:
    with pytest.raises(PropertyError, match="'cache'"):
        format("disk", {"file": "local:1", "cache": value})


def test_a_value_with_an_equals_sign_keeps_its_key() -> None:
    text = format("disk", {"file": "/dev/disk/by-id/a=b"})
    assert text == "file=/dev/disk/by-id/a=b"
    assert parse("disk", text) == {"file": "/dev/disk/by-id/a=b"}


def test_a_blank_value_keeps_its_key_since_blank_parts_are_skipped() -> None:
    assert format("disk", {"file": " "}) == "file= "
    assert parse("disk", "file= ") == {"file": " "}


def test_a_blank_string_is_empty_as_the_servers_boot_order_without_devices() -> None:
    assert parse("boot", " ") == {}


def test_smbios_fields_are_decoded_when_the_string_says_base64() -> None:
    value: Properties = {"uuid": "x", "base64": True, "manufacturer": "Düsentrieb, Inc."}
    text = format("smbios1", value)
    assert text == "base64=1,manufacturer=RMO8c2VudHJpZWIsIEluYy4=,uuid=x"
    assert parse("smbios1", text) == value


@pytest.mark.parametrize(
    ("key", "guest", "kind"),
    [
        ("scsi12", "qemu", "disk"),
        ("net0", "qemu", "net"),
        ("net0", "lxc", "lxc-net"),
        ("memory", "lxc", None),
        ("mp0", "lxc", "mp"),
        ("scsihw", "qemu", None),
        ("name", "qemu", None),
        ("numa", "qemu", None),
        ("numa0", "qemu", "numa"),
    ],
)
def test_the_kind_of_a_config_key_is_known(
    key: str, guest: Literal["qemu", "lxc"], kind: str | None
) -> None:
    assert kind_of(key, guest) == kind


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("Zeta;alpha,ALPHA beta", "alpha;beta;zeta"),
        ("Web;db;web", "db;web"),
        ("_x+1;a.b-c", "_x+1;a.b-c"),
        ("", ""),
        (" ", ""),
    ],
)
def test_tags_are_folded_sorted_and_deduplicated_as_recorded(written: str, kept: str) -> None:
    assert format_tags([written]) == kept
    assert parse_tags(written) == parse_tags(kept)


KEY = "ssh-ed25519 AAAAC3Nza/C1lZDI1+NTE5AAAA= rec@exämple"


def test_ssh_keys_are_percent_encoded_once_without_plus_signs() -> None:
    text = encode_sshkeys([KEY, f"  {KEY}2\n", ""])
    assert not set(text) & set(" +/:=@\n")
    assert text.startswith("ssh-ed25519%20AAAA")
    assert unquote(text) == f"{KEY}\n{KEY}2"
    assert decode_sshkeys(text) == (KEY, f"{KEY}2")


def test_descriptions_differ_by_more_than_newlines_at_the_end() -> None:
    assert normal_description("ct text\n") == normal_description("ct text")
    assert normal_description("a\r\nb") == "a\nb"
    assert normal_description("a\n\nb\n") == "a\n\nb"


@pytest.mark.parametrize(
    ("volid", "storage", "owner"),
    [
        ("local:1050/vm-1050-disk-0.raw", "local", 1050),
        ("local-lvm:vm-1300-disk-1", "local-lvm", 1300),
        ("local:1100/base-1100-disk-1.qcow2/1101/vm-1101-disk-1.qcow2", "local", 1101),
        ("local-lvm:base-1300-disk-0", "local-lvm", 1300),
        ("local:iso/vm-1-x.iso", "local", 1),
        ("local:iso/a.iso", "local", None),
        ("none", "", None),
        ("/dev/disk/by-id/ata-a:b", "", None),
    ],
)
def test_a_volume_id_tells_storage_and_owner(volid: str, storage: str, owner: int | None) -> None:
    assert storage_of(volid) == storage
    assert owner_of(volid) == owner
