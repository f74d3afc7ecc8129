"""Files that come from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.fetching import (
    NothingThere,
    OriginError,
    Words,
    fetch_small,
    file_digest,
    file_name,
    head_of_url,
    probe,
    shown,
)
from tests.tasks.image.files import sha256, sha512
from tests.webserver import Web

WORDS = Words("list", "`list.url`")


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ("https://me:hidden@host/a/b.img?token=hidden", "https://host/a/b.img"),
        ("https://host:8443/b.img", "https://host:8443/b.img"),
        ("/images/user@host.img", "/images/user@host.img"),
    ],
)
def test_an_origin_is_shown_without_its_secrets(origin: str, text: str) -> None:
    assert shown(origin) == text


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("https://host/latest/debian%2B13.qcow2?x=/y", "debian+13.qcow2"),
        ("/images/a b.img", "a b.img"),
        ("https://host/", ""),
    ],
)
def test_the_name_of_a_file_is_the_last_part_as_lists_write_it(origin: str, name: str) -> None:
    assert file_name(origin) == name


def test_only_the_beginning_of_a_file_is_asked_for(web: Web) -> None:
    url = web.put("a", b"0123456789" * 100)

    head = head_of_url(url, 10, WORDS)

    assert head is not None
    assert (head.data, head.size) == (b"0123456789", 1000)
    assert web.gets == ["bytes=0-9"]


def test_of_an_empty_file_the_beginning_is_nothing(web: Web) -> None:
    head = head_of_url(web.put("a", b""), 10, WORDS)
    assert head is not None
    assert (head.data, head.size) == (b"", 0)


def test_a_server_that_does_not_answer_tells_nothing(web: Web) -> None:
    url = web.put("a", b"text")
    web.deaf_to = "proxflow"
    assert head_of_url(url, 10, WORDS) is None
    assert probe(url, WORDS) is None


def test_a_server_in_trouble_tells_nothing(web: Web) -> None:
    url = web.put("a", b"text")
    web.fail = [503, 503]
    assert head_of_url(url, 10, WORDS) is None
    assert probe(url, WORDS) is None


def test_a_server_that_has_no_such_file_says_so(web: Web) -> None:
    with pytest.raises(NothingThere, match=r"/none: the server answers 404") as missing:
        probe(f"{web.url}/none", WORDS)
    assert "`list.url`" in (missing.value.advice or "")
    with pytest.raises(NothingThere):
        head_of_url(f"{web.url}/none", 10, WORDS)


def test_a_file_that_is_too_large_to_be_a_list_is_not_read(web: Web) -> None:
    url = web.put("a", bytes(3_000_000))
    with pytest.raises(OriginError, match=r"/a is larger than .*that is no list"):
        fetch_small(url, 1_000_000, WORDS)


def test_a_checksum_is_kept_apart_for_each_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXFLOW_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "a"
    path.write_bytes(b"text")
    for _ in range(2):
        assert file_digest(path, "sha256") == sha256(b"text").hex
        assert file_digest(path, "sha512") == sha512(b"text").hex
    path.write_bytes(b"other")
    assert file_digest(path, "sha512") == sha512(b"other").hex
