"""Publishers' lists of checksums."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocks.manifest.guest import Digest
from tasks.fetching import OriginError
from tasks.image.sums import find_sum, parse_sums

A, B, C = "a1" * 32, "b2" * 32, "c3" * 64
NAME = "debian-13-genericcloud-amd64.qcow2"

names = st.text(string.ascii_letters + string.digits + "-_.+~() ", min_size=1, max_size=40).filter(
    lambda name: name == name.strip() and not name.startswith("./")
)
digests = st.sampled_from(["sha256", "sha512"]).flatmap(
    lambda algorithm: st.text(
        "0123456789abcdef", min_size=int(algorithm[3:]) // 4, max_size=int(algorithm[3:]) // 4
    ).map(lambda text: Digest(algorithm=algorithm, hex=text))
)


def gnu(name: str, digest: Digest) -> str:
    return f"{digest.hex}  {name}"


def binary(name: str, digest: Digest) -> str:
    return f"{digest.hex} *{name}"


def bsd(name: str, digest: Digest) -> str:
    return f"{digest.algorithm.upper()} ({name}) = {digest.hex}"


def upper(name: str, digest: Digest) -> str:
    return f"{digest.hex.upper()}  ./{name}"


@given(
    wanted=st.dictionaries(names, digests, min_size=1, max_size=6),
    style=st.sampled_from([gnu, binary, bsd, upper]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_was_written_is_read(wanted: dict[str, Digest], style: object, end: str) -> None:
    assert callable(style)
    text = "# comment" + end + "".join(style(name, one) + end for name, one in wanted.items())

    assert {entry.name: entry.digest for entry in parse_sums(text)} == wanted
    for name, digest in wanted.items():
        assert find_sum(text, name, "SHA256SUMS") == digest


@given(text=st.text(max_size=400))
def test_any_text_is_read_without_trouble(text: str) -> None:
    for entry in parse_sums(text):
        assert len(entry.digest.hex) in {64, 128}


def test_a_list_with_comments_and_sizes_is_read() -> None:
    text = f"# Rocky.qcow2: 609812480 bytes\nSHA256 (Rocky.qcow2) = {A}\nMD5 (Rocky.qcow2) = 0\n"
    assert find_sum(text, "Rocky.qcow2", "CHECKSUM").hex == A


@pytest.mark.parametrize("other", [f"old-{NAME}", f"{NAME}.xz", NAME.upper(), f"sub/{NAME}"])
def test_a_name_is_matched_exactly(other: str) -> None:
    text = f"{B}  {other}\n"
    with pytest.raises(OriginError, match=f"SHA256SUMS does not name {NAME}") as missing:
        find_sum(text, NAME, "SHA256SUMS")
    assert other in (missing.value.advice or "")


def test_the_stronger_checksum_counts() -> None:
    assert find_sum(f"{A}  x\n{C}  x\n", "x", "SUMS").algorithm == "sha512"


def test_two_checksums_of_one_file_are_not_guessed_about() -> None:
    with pytest.raises(OriginError, match="several checksums of x"):
        find_sum(f"{A}  x\n{B}  x\n", "x", "SUMS")


def test_a_checksum_without_a_name_counts_for_the_file_that_the_list_is_named_after() -> None:
    assert find_sum(f"{C}\n", "alpine.qcow2", "alpine.qcow2.sha512").hex == C
    with pytest.raises(OriginError, match="does not name other"):
        find_sum(f"{C}\n", "other.qcow2", "alpine.qcow2.sha512")


def test_a_list_of_weak_checksums_only_is_refused() -> None:
    with pytest.raises(OriginError, match="no SHA-256 or SHA-512 checksums"):
        find_sum(f"{'0' * 40}  x\n", "x", "SHA1SUMS")
