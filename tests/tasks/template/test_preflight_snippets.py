"""Preflight of snippets: the login and the folder are tried before anything is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blocks.manifest.guest import Guest, SnippetHost
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.proxmox.inventory import read_inventory
from tasks.template.preflight import check_template
from tests.environments import Place
from tests.tasks.cloudinit.sshserver import SshServer, needs_sshd, ssh_server
from tests.tasks.template.machines import ALL, from_image
from tests.templates import Golden

pytestmark = needs_sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A real SSH server for the module."""
    with ssh_server(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def golden(place: Place, server: SshServer, monkeypatch: pytest.MonkeyPatch) -> Golden:
    """A template in a place of its own; ``ssh`` talks to the server."""
    server.use(monkeypatch)
    return Golden(place)


def told(golden: Golden, guest: Guest, host: SnippetHost, **changes: Any) -> Guest:
    """The guest, told by snippets on ``local`` of its node."""
    usual = {"method": "snippets", "snippet_storage": "local", "snippet_host": host}
    cloud = golden.cloud_init(guest.name, **{**usual, **changes})
    return guest.model_copy(update={"cloud_init": cloud})


def found(
    golden: Golden, *clones: Guest, template: Guest | None = None, stages: frozenset[str] = ALL
) -> list[str]:
    """What the preflight finds, which must leave everything as it is."""
    lab = golden.place.lab
    before = lab.snapshot()
    lab.forget_requests()
    connection = lab_connection(lab.state)
    recipe = golden.recipe(*clones, template=template or from_image(golden))
    with Client(connection) as client:
        inventory = read_inventory(client)
        findings = check_template(
            client, connection, golden.environment(recipe), inventory, stages=stages
        )
    assert lab.writes() == []
    assert lab.snapshot() == before
    return [str(finding) for finding in findings]


def test_a_login_and_a_folder_that_do_are_no_finding_and_nothing_stays_there(
    golden: Golden, server: SshServer, tmp_path: Path
) -> None:
    folder = tmp_path / "snippets"
    folder.mkdir()
    clone = told(golden, golden.clone(), server.host(folder))

    assert found(golden, clone) == []
    assert len(server.calls) == 1
    assert list(folder.iterdir()) == []


def test_a_key_that_the_node_does_not_know_is_one_finding_with_the_words_of_ssh(
    golden: Golden, server: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.use(monkeypatch, key="other")
    host = server.host(tmp_path)
    template = told(golden, from_image(golden), host)
    clones = [told(golden, golden.clone(index), host) for index in (1, 2)]

    (finding,) = found(golden, *clones, template=template)

    assert "Permission denied" in finding
    assert f"(for the snippets of template, {clones[0].label}, {clones[1].label})" in finding
    assert "put your public key into its authorized_keys" in finding
    assert len(server.calls) == 1


def test_a_folder_that_is_not_there_or_may_not_be_written_is_found(
    golden: Golden, server: SshServer, tmp_path: Path
) -> None:
    absent = told(golden, golden.clone(1), server.host(tmp_path / "absent"))
    closed = told(golden, golden.clone(2), server.host(Path("/proc")))

    texts = found(golden, absent, closed)

    assert len(texts) == 2
    assert f"{absent.label}: 127.0.0.1 has no folder {tmp_path}/absent" in texts[0]
    assert f"{closed.label}: {server.user} may not write into /proc" in texts[1]


def test_only_guests_that_are_to_be_made_have_the_login_tried(
    golden: Golden, server: SshServer, tmp_path: Path
) -> None:
    seed = told(golden, golden.clone(1), server.host(tmp_path), method="seed", storage="local")
    late = told(golden, golden.clone(2), server.host(tmp_path / "absent"))

    texts = found(golden, seed, late, stages=ALL - {"clones"})

    assert texts == []
    assert server.calls == []


def test_a_storage_without_snippets_is_told_without_a_login(
    golden: Golden, server: SshServer, tmp_path: Path
) -> None:
    clone = told(golden, golden.clone(), server.host(tmp_path), snippet_storage="local-lvm")

    (finding,) = found(golden, clone)

    assert "local-lvm on pve1 does not take content 'snippets'" in finding
    assert server.calls == []
