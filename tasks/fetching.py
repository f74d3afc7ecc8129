"""Files that come from elsewhere: fetched into the cache, taken up where it broke off, compared.

Everything here is a cache that may be deleted at any time. ``sums`` in it holds the checksums of
files that have not changed since they were read. Whatever is taken from it is compared first.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests
from filelock import FileLock, Timeout

from blocks.manifest.guest import Digest
from blocks.paths import cache_dir
from blocks.units import human_size
from tasks.errors import StageError

Progress = Callable[[str, int, int], None]
"""Gets the job, bytes done and bytes in all (0: not known); may raise to give up."""

_CHUNK = 1024 * 1024
_CONNECT, _STALL, _PROBE = 15.0, 60.0, 5.0
_LOCK_POLL = 0.5
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "proxflow"}
_KEPT = "what has arrived is kept; the next try goes on from there"


class OriginError(StageError):
    """A file cannot be had from where the manifest says; ``transient``: not now."""

    def __init__(self, message: str, *, advice: str | None = None, transient: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.transient = transient


class NothingThere(OriginError):
    """The server says that there is no such file."""


@dataclass(frozen=True)
class Words:
    """What messages say of a file: what it is, and the key in the manifest of its origin.

    ``mismatch``: what to do about a wrong checksum.
    """

    thing: str
    origin: str
    mismatch: str = ""


def is_url(origin: str) -> bool:
    """Whether an origin is a URL, and not a path."""
    return "://" in origin


def shown(origin: str) -> str:
    """An origin for people: a query or a user part may hold a password."""
    plain = origin.partition("?")[0]
    scheme, separator, rest = plain.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else plain


def file_name(origin: str) -> str:
    """The last part of a URL's or a path's name: what checksum lists call the file."""
    path = unquote(urlsplit(origin).path) if is_url(origin) else origin
    return path.rpartition("/")[2]


def file_sha256(path: Path, on_progress: Progress = lambda _job, _done, _total: None) -> str:
    """SHA-256 of a file, remembered as long as the file is not touched. Raises OSError."""
    return file_digest(path, "sha256", on_progress)


def file_digest(
    path: Path, algorithm: str, on_progress: Progress = lambda _job, _done, _total: None
) -> str:
    """Checksum of a file in hex, remembered as long as the file is not touched. Raises OSError."""
    status = path.stat()
    signature = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    suffix = "" if algorithm == "sha256" else f".{algorithm}"
    memory = cache_dir() / "sums" / f"{name}{suffix}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(memory.read_text())
        if known["signature"] == signature:
            return str(known[algorithm])
    digest, done = hashlib.new(algorithm), 0
    with path.open("rb") as stream:
        while chunk := stream.read(4 * _CHUNK):
            digest.update(chunk)
            done += len(chunk)
            on_progress(f"reading {path.name}", done, status.st_size)
    after = path.stat()
    if [after.st_size, after.st_mtime_ns] == signature[:2]:
        with suppress(OSError):
            write_text(memory, json.dumps({"signature": signature, algorithm: digest.hexdigest()}))
    return digest.hexdigest()


def fetch_into(target: Path, url: str, wanted: Digest, words: Words, on_progress: Progress) -> Path:
    """The file behind a URL as ``target``: there already, or fetched now with that checksum.

    The caller holds ``alone(target)``. A broken fetch is taken up again. Raises OriginError:
    transient where the next try may end it.
    """
    if target.exists():
        if file_digest(target, wanted.algorithm, on_progress) == wanted.hex:
            return target
        target.unlink()
    part = target.with_suffix(".part")
    _fetch(url, part, words, on_progress)
    found = file_digest(part, wanted.algorithm, on_progress)
    if found != wanted.hex:
        part.unlink()
        raise wrong_checksum(shown(url), found, wanted, words)
    part.replace(target)
    return target


def wrong_checksum(what: str, found: str, wanted: Digest, words: Words) -> OriginError:
    """The error for a file whose checksum, ``found`` in hex, is not the wanted one."""
    name = {"sha256": "SHA-256", "sha512": "SHA-512"}[wanted.algorithm]
    return OriginError(
        f"{what} has the {name} {found}, and {wanted.hex} is asked for", advice=words.mismatch
    )


def probe(url: str, words: Words) -> int | None:
    """Size in bytes of what a URL names, None where that cannot be learnt from here.

    Raises NothingThere where the server says that there is nothing.
    """
    try:
        with requests.head(url, headers=_HEADERS, allow_redirects=True, timeout=_PROBE) as answer:
            if answer.status_code in {404, 410}:
                _refuse(answer, url, words)
            return int(answer.headers.get("Content-Length") or 0) if answer.ok else None
    except (requests.RequestException, ValueError):
        return None


@dataclass(frozen=True)
class Head:
    """The first bytes of a file, and its size in bytes where that is known."""

    data: bytes
    size: int | None


def head_of_url(url: str, length: int, words: Words) -> Head | None:
    """At most ``length`` first bytes of what a URL names, None where no answer is to be had here.

    Raises NothingThere where the server says that there is nothing.
    """
    headers = {**_HEADERS, "Range": f"bytes=0-{length - 1}"}
    try:
        with requests.get(url, headers=headers, stream=True, timeout=(_PROBE, _CONNECT)) as answer:
            if answer.status_code == requests.codes.requested_range_not_satisfiable:
                return Head(b"", 0)
            if answer.status_code in {404, 410}:
                _refuse(answer, url, words)
            if not answer.ok:
                return None
            data = bytearray()
            for chunk in answer.iter_content(min(length, 16 * 1024)):
                data += chunk
                if len(data) >= length:
                    break
            return Head(bytes(data[:length]), _whole_size(answer))
    except (requests.RequestException, ValueError):
        return None


def _whole_size(answer: requests.Response) -> int | None:
    if answer.status_code == requests.codes.partial_content:
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        return int(total) if total.isdigit() else None
    length = answer.headers.get("Content-Length")
    return int(length) if length else None


def fetch_small(url: str, most: int, words: Words) -> bytes:
    """A file of at most ``most`` bytes, into memory. Raises OriginError."""
    try:
        with requests.get(
            url, headers=_HEADERS, stream=True, timeout=(_CONNECT, _CONNECT)
        ) as answer:
            _refuse(answer, url, words)
            data = bytearray()
            for chunk in answer.iter_content(64 * 1024):
                data += chunk
                if len(data) > most:
                    raise OriginError(
                        f"{shown(url)} is larger than {human_size(most)}: that is no {words.thing}",
                        advice=f"correct {words.origin}",
                    )
            return bytes(data)
    except requests.RequestException as error:
        raise OriginError(
            f"{shown(url)} cannot be fetched: {_why(error)}", transient=True
        ) from None


def _fetch(url: str, part: Path, words: Words, on_progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = dict(_HEADERS)
    if have:
        headers["Range"] = f"bytes={have}-"
    job = f"fetching {file_name(url) or shown(url)}"
    try:
        with requests.get(url, headers=headers, stream=True, timeout=(_CONNECT, _STALL)) as answer:
            if answer.status_code == requests.codes.requested_range_not_satisfiable:
                return  # all of it is here already; the checksum will tell
            _refuse(answer, url, words)
            if answer.status_code != requests.codes.partial_content:
                have = 0
            length = int(answer.headers.get("Content-Length") or 0)
            total = have + length if length else 0
            with part.open("ab" if have else "wb") as stream:
                for chunk in answer.iter_content(_CHUNK):
                    stream.write(chunk)
                    have += len(chunk)
                    on_progress(job, have, total)
    except requests.RequestException as error:
        raise OriginError(
            f"{shown(url)} cannot be fetched: {_why(error)}", advice=_KEPT, transient=True
        ) from None
    if total and have < total:
        raise OriginError(
            f"{shown(url)} broke off after {human_size(have)} of {human_size(total)}",
            advice=_KEPT,
            transient=True,
        )


def _refuse(answer: requests.Response, url: str, words: Words) -> None:
    if answer.status_code < 400:
        return
    again = answer.status_code >= 500 or answer.status_code == 429
    kind = NothingThere if answer.status_code in {404, 410} else OriginError
    raise kind(
        f"{shown(url)}: the server answers {answer.status_code} {answer.reason}",
        advice=None if again else f"look whether the release has moved, and correct {words.origin}",
        transient=again,
    )


def _why(error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "the certificate of the server is not trusted"
    if isinstance(error, requests.Timeout):
        return "the server does not answer"
    if isinstance(error, requests.ConnectionError):
        return "there is no connection, or it broke off"
    return type(error).__name__


def write_text(path: Path, text: str) -> None:
    """Write a small file of the cache whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


@contextmanager
def alone(target: Path, on_progress: Progress, waiting_for: str) -> Iterator[None]:
    """One process at a time makes a file of the cache; the others wait, and find it.

    ``waiting_for`` is said to those who wait.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_suffix(".lock"), thread_local=False)
    while True:
        try:
            lock.acquire(timeout=_LOCK_POLL, poll_interval=0.05)
            break
        except Timeout:
            on_progress(f"waiting for another run that {waiting_for}", 0, 0)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def keeping_cache(what: str) -> Iterator[None]:
    """Around work in the cache folder: raises OriginError where that cannot be used."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise OriginError(
            f"{what} in {cache_dir()} cannot be used: {error.strerror or error}",
            advice="free some space, or name another folder in PROXFLOW_CACHE_DIR"
            if full
            else "name another folder in PROXFLOW_CACHE_DIR",
        ) from None
