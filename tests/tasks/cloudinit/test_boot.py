"""The lab's guests boot with what they were told: name, user, key and address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from blocks.manifest.guest import Guest
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.upload import upload
from tasks.marker import read_marker
from tasks.session import Session
from tests.environments import KEY, Place
from tests.templates import Golden

from .guests import HASH
from .machines import make, path, told
from .sshserver import needs_sshd, ssh_server


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


def imported(here: Session, golden: Golden, guest: Guest) -> Guest:
    """The guest, its disk made from an image, and told."""
    image = golden.image_file(golden.place.folder)
    volid = upload(here.client, guest.node, "local", image, content="import")
    disk = f"local-lvm:0,import-from={volid}"
    make(here, guest.label, scsi0=disk)
    told(here, guest)
    return guest


@contextmanager
def booted(golden: Golden, one: Guest) -> Iterator[tuple[Session, Guest]]:
    """The guest, up and running."""
    with golden.opened(golden.recipe(one)) as here:
        guest = imported(here, golden, here.guest(one.label))
        here.client.run("POST", path(guest) + "/status/start")
        answers(here, guest)
        yield here, guest


def answers(here: Session, guest: Guest) -> None:
    """Wait for the agent, with as many calls as a boot of no length takes."""
    for _ in range(200):
        try:
            here.client.run("POST", path(guest) + "/agent/ping")
        except ProxmoxError:
            continue
        return
    raise AssertionError("the guest's agent never answers")


def inside(here: Session, guest: Guest, file: str) -> str:
    """A file of the guest, by its agent."""
    answer: dict[str, Any] = here.client.get(path(guest) + "/agent/file-read", file=file)
    return str(answer["content"])


def addresses(here: Session, guest: Guest) -> set[str]:
    """The addresses that the guest's agent tells."""
    answer = here.client.get(path(guest) + "/agent/network-get-interfaces")
    return {one["ip-address"] for card in answer["result"] for one in card["ip-addresses"]}


def check(here: Session, golden: Golden, guest: Guest) -> None:
    assert inside(here, guest, "/etc/hostname").strip() == guest.name
    assert KEY in inside(here, guest, "/home/ops/.ssh/authorized_keys")
    assert golden.place.address(1) in addresses(here, guest)


def test_by_the_options_of_proxmox_ve(golden: Golden) -> None:
    with booted(golden, golden.clone()) as (here, guest):
        check(here, golden, guest)


def test_by_a_seed_iso_with_neither_ssh_nor_root(golden: Golden) -> None:
    cloud = golden.cloud_init(
        golden.clone().name,
        method="seed",
        storage="local",
        domain="corp.example",
        password_hash=SecretStr(HASH),
        commands=("echo it ran > /etc/ran",),
    )
    with booted(golden, golden.clone(cloud_init=cloud)) as (here, guest):
        check(here, golden, guest)
        assert HASH in inside(here, guest, "/etc/shadow")
        assert inside(here, guest, "/etc/ran") == "it ran\n"

        marker = read_marker(here.client, guest)

    assert (marker.state, marker.environment, marker.guest) == ("read", golden.name, guest.label)


@needs_sshd
def test_by_snippets(
    golden: Golden, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = golden.place.lab.state / "storage" / "pve1" / "local" / "snippets"
    folder.mkdir(parents=True, exist_ok=True)
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        server.use(monkeypatch)
        cloud = golden.cloud_init(
            golden.clone().name,
            method="snippets",
            snippet_storage="local",
            snippet_host=server.host(folder),
        )
        with booted(golden, golden.clone(cloud_init=cloud)) as (here, guest):
            check(here, golden, guest)
