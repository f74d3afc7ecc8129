"""Signatures of lists of checksums."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.errors import StageError
from tasks.image.signed import check_keyring, verified
from tests.tasks.image.keys import MISSING, Key, a_key

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

LIST = b"a1" * 32 + b"  image.qcow2\n- a line with a dash\n"


@pytest.fixture(scope="module")
def key() -> Iterator[Key]:
    with a_key() as made:
        yield made


@pytest.fixture(scope="module")
def stranger() -> Iterator[Key]:
    with a_key() as made:
        yield made


@pytest.mark.parametrize("armored_keys", [True, False])
@pytest.mark.parametrize("armored", [True, False])
def test_a_list_with_a_detached_signature_is_taken_as_it_is(
    key: Key, tmp_path: Path, armored_keys: bool, armored: bool
) -> None:
    keyring = key.public(tmp_path, armored=armored_keys)
    signature = key.detached(LIST, armored=armored)
    assert verified(LIST, signature, keyring, "SUMS") == LIST


def test_of_a_clear_signed_list_only_what_is_signed_is_taken(key: Key, tmp_path: Path) -> None:
    forged = b"b2" * 32 + b"  image.qcow2\n"
    text = forged + key.clear(LIST) + forged
    assert verified(text, None, key.public(tmp_path), "SUMS") == LIST


def test_a_list_of_two_signed_messages_is_refused(key: Key, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="SUMS is not signed in itself"):
        verified(key.clear(LIST) * 2, None, key.public(tmp_path), "SUMS")


def test_a_list_that_was_altered_is_refused(key: Key, tmp_path: Path) -> None:
    keyring = key.public(tmp_path)
    with pytest.raises(StageError, match="SUMS was altered after it was signed"):
        verified(LIST + b"x\n", key.detached(LIST), keyring, "SUMS")
    with pytest.raises(StageError, match="SUMS was altered after it was signed"):
        verified(key.clear(LIST).replace(b"a1a1", b"b2b2", 1), None, keyring, "SUMS")


def test_a_list_that_another_key_signed_is_refused(key: Key, stranger: Key, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"is not signed by a key of .*keys\.gpg, but by"):
        verified(LIST, stranger.detached(LIST), key.public(tmp_path), "SUMS")


def test_one_known_key_of_several_that_signed_is_enough(
    key: Key, stranger: Key, tmp_path: Path
) -> None:
    both = stranger.detached(LIST, armored=False) + key.detached(LIST, armored=False)
    assert verified(LIST, both, key.public(tmp_path), "SUMS") == LIST


@pytest.mark.parametrize("kind", ["inline", "clear"])
def test_a_signed_message_in_the_place_of_a_signature_signs_nothing(
    key: Key, tmp_path: Path, kind: str
) -> None:
    other = key.inline(LIST) if kind == "inline" else key.clear(LIST)
    with pytest.raises(StageError, match=r"SUMS has (no|a) signature"):
        verified(b"forged", other, key.public(tmp_path), "SUMS")


def test_no_signature_at_all_is_refused(key: Key, tmp_path: Path) -> None:
    keyring = key.public(tmp_path)
    with pytest.raises(StageError, match="SUMS is not signed in itself") as refused:
        verified(LIST, None, keyring, "SUMS")
    assert "image.signature" in (refused.value.advice or "")
    with pytest.raises(StageError, match="has no signature that gpgv can read"):
        verified(LIST, b"<html>404</html>", keyring, "SUMS")


def test_several_armored_keys_in_a_file_all_count(key: Key, stranger: Key, tmp_path: Path) -> None:
    keyring = tmp_path / "all.asc"
    one = stranger.public(tmp_path, armored=True).read_bytes()
    two = key.public(tmp_path, armored=True).read_bytes()
    keyring.write_bytes(one + b"and the other:\r\n" + two.replace(b"\n", b"\r\n"))
    assert verified(LIST, key.detached(LIST), keyring, "SUMS") == LIST


@pytest.mark.parametrize("content", [b"", b"no keys", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!"])
def test_a_file_without_keys_is_no_keyring(tmp_path: Path, content: bytes) -> None:
    keyring = tmp_path / "keys"
    keyring.write_bytes(content)
    with pytest.raises(StageError, match="keys is no keyring"):
        check_keyring(keyring)


def test_a_keyring_with_a_private_key_is_refused_without_showing_it(
    key: Key, tmp_path: Path
) -> None:
    keyring = tmp_path / "keys"
    secret = key.secret()
    keyring.write_bytes(secret)
    with pytest.raises(StageError, match="has a private key in it") as refused:
        check_keyring(keyring)
    assert secret.splitlines()[3].decode() not in str(refused.value)


def test_a_keyring_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"keyring .*none cannot be read: No such file"):
        check_keyring(tmp_path / "none")


def test_without_gpgv_it_is_said_what_to_install(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring, signature = key.public(tmp_path), key.detached(LIST)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(StageError, match="gpgv is not installed") as missing:
        verified(LIST, signature, keyring, "SUMS")

    assert "install it" in (missing.value.advice or "")
    with pytest.raises(StageError, match="gpgv is not installed"):
        check_keyring(keyring)


def test_a_key_that_has_expired_does_not_count(tmp_path: Path) -> None:
    with a_key(expires="1d", when="20200101T120000") as old:
        signature, keyring = old.detached(LIST), old.public(tmp_path)

    with pytest.raises(StageError, match="that has expired or was revoked"):
        verified(LIST, signature, keyring, "SUMS")
