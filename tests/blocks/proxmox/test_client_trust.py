"""Whose certificates the client accepts."""

from pathlib import Path

import pytest

from blocks.proxmox.client import Client
from blocks.proxmox.errors import BadSettings, UntrustedCertificate
from blocks.proxmox.tls import seen_fingerprint
from tests.blocks.proxmox.standin import VERSION, Reply, in_turn, standin

ANSWER = in_turn(Reply(data=VERSION))


def test_a_certificate_of_the_given_authority_is_accepted(tmp_path: Path) -> None:
    with standin(tmp_path, ANSWER) as server, server.client() as client:
        assert client.check().release == "9.2"
        assert str(server.ca_file) in client.trust
        assert client.notices == []


def test_the_pinned_certificate_is_accepted_whatever_its_name_and_date(tmp_path: Path) -> None:
    with (
        standin(tmp_path, ANSWER, name="elsewhere.example", expired=True) as server,
        server.client(ca_file=None, fingerprint=server.fingerprint.lower()) as client,
    ):
        client.check()
        assert server.fingerprint in client.trust


def test_another_certificate_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    pinned = "AB:" * 31 + "CD"
    with (
        standin(tmp_path, ANSWER) as server,
        server.client(ca_file=None, fingerprint=pinned) as client,
    ):
        with pytest.raises(UntrustedCertificate) as told:
            client.check()
        assert server.requests == []
        assert pinned in str(told.value)
        assert server.fingerprint in str(told.value)


def test_an_unknown_authority_is_refused_with_the_fingerprint_to_pin(tmp_path: Path) -> None:
    with standin(tmp_path, ANSWER) as server, server.client(ca_file=None) as client:
        with pytest.raises(UntrustedCertificate, match="not signed by an authority") as told:
            client.check()
        assert server.requests == []
        assert server.fingerprint in str(told.value)
        assert f"`fingerprint: {server.fingerprint}`" in str(told.value.advice)
        assert not told.value.transient


def test_another_authority_than_the_given_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with (
        standin(tmp_path / "other", ANSWER) as other,
        standin(tmp_path, ANSWER) as server,
        server.client(ca_file=other.ca_file) as client,
        pytest.raises(UntrustedCertificate, match=f"not signed by {other.ca_file}"),
    ):
        client.check()


def test_an_expired_certificate_says_that_it_has_expired(tmp_path: Path) -> None:
    with (
        standin(tmp_path, ANSWER, expired=True) as server,
        server.client() as client,
        pytest.raises(UntrustedCertificate, match="has expired"),
    ):
        client.check()


def test_a_certificate_for_another_name_says_so(tmp_path: Path) -> None:
    with (
        standin(tmp_path, ANSWER, name="elsewhere.example") as server,
        server.client() as client,
        pytest.raises(UntrustedCertificate, match="another name than localhost"),
    ):
        client.check()


def test_the_servers_own_certificate_may_stand_for_its_authority(tmp_path: Path) -> None:
    import ssl

    with standin(tmp_path, ANSWER) as server:
        own = tmp_path / "own.pem"
        own.write_text(ssl.get_server_certificate(("localhost", server.port)))
        with server.client(ca_file=own) as client:
            client.check()


def test_verification_switched_off_accepts_anything_and_says_so_once(tmp_path: Path) -> None:
    with (
        standin(tmp_path, ANSWER, name="elsewhere.example", expired=True) as server,
        server.client(ca_file=None, verify=False) as client,
    ):
        client.check()
        client.check()
        assert len(client.notices) == 1
        assert "not verified" in client.notices[0]
        assert "verification is off" in client.trust


@pytest.mark.parametrize(("content", "what"), [(None, "does not exist"), ("hello", "no PEM")])
def test_a_ca_file_that_is_none_is_told_before_any_call(
    tmp_path: Path, content: str | None, what: str
) -> None:
    file = tmp_path / "missing.pem"
    if content is not None:
        file.write_text(content)
    with standin(tmp_path, ANSWER) as server, pytest.raises(BadSettings, match=what):
        Client(server.connection(ca_file=file))


def test_the_fingerprint_of_a_server_can_be_asked_for_without_trusting_it(tmp_path: Path) -> None:
    with standin(tmp_path, ANSWER) as server:
        assert seen_fingerprint("localhost", server.port) == server.fingerprint
