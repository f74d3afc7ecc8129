"""Install ISOs on this machine: fetched, rewritten, and known by their content.

Everything here is a cache that may be deleted at any time: ``isos`` holds what was fetched, by its
checksum, ``rewritten`` what was rewritten, by what it depends on, ``sums`` the checksums of files
that have not changed since they were read. Whatever is taken from it is compared first.
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
from urllib.parse import urlsplit

import requests
from filelock import FileLock, Timeout

from blocks.paths import cache_dir
from blocks.units import human_size
from tasks.errors import StageError
from tasks.iso.distros import Family
from tasks.iso.iso9660 import IsoError, volumes
from tasks.iso.remaster import remaster, remaster_key

Progress = Callable[[str, int, int], None]
"""Gets the job, bytes done and bytes in all (0: not known); may raise to give up."""

_CHUNK = 1024 * 1024
_CONNECT, _STALL, _PROBE = 15.0, 60.0, 5.0
_LOCK_POLL = 0.5


class OriginError(StageError):
    """The ISO cannot be had from where the manifest says; ``transient``: not now."""

    def __init__(self, message: str, *, advice: str | None = None, transient: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.transient = transient


@dataclass(frozen=True)
class LocalIso:
    """An ISO on this machine; ``size`` in bytes, ``sha256`` in hex."""

    path: Path
    size: int
    sha256: str


def is_url(origin: str) -> bool:
    """Whether an origin is a URL, and not a path."""
    return "://" in origin


def shown(origin: str) -> str:
    """An origin for people: a query may hold a password."""
    return origin.partition("?")[0]


def local_iso(path: Path, sha256: str | None, on_progress: Progress) -> LocalIso:
    """The ISO at a path. Raises OriginError: not there, no ISO, or not of that checksum."""
    try:
        with path.open("rb") as stream:
            volumes(stream)
        found = file_sha256(path, on_progress)
        size = path.stat().st_size
    except IsoError as error:
        raise OriginError(f"{path}: {error}", advice="name the ISO image itself") from None
    except OSError as error:
        raise OriginError(
            f"the ISO {path} cannot be read: {error.strerror}",
            advice="`iso.source` is a path on the machine that runs Proxflow, or a URL",
        ) from None
    if sha256 is not None and found != sha256:
        raise OriginError(
            f"{path} has the SHA-256 {found}, and the manifest asks for {sha256}",
            advice="fetch the ISO again, or correct `iso.checksum`",
        )
    return LocalIso(path, size, found)


def file_sha256(path: Path, on_progress: Progress = lambda _job, _done, _total: None) -> str:
    """SHA-256 of a file, remembered as long as the file is not touched. Raises OSError."""
    status = path.stat()
    signature = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    memory = cache_dir() / "sums" / f"{name}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(memory.read_text())
        if known["signature"] == signature:
            return str(known["sha256"])
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(4 * _CHUNK):
            digest.update(chunk)
            done += len(chunk)
            on_progress(f"reading {path.name}", done, status.st_size)
    after = path.stat()
    if [after.st_size, after.st_mtime_ns] == signature[:2]:
        with suppress(OSError):
            _write(memory, json.dumps({"signature": signature, "sha256": digest.hexdigest()}))
    return digest.hexdigest()


def fetched(url: str, sha256: str, on_progress: Progress) -> LocalIso:
    """The file behind a URL, from the cache or fetched now; a broken fetch is taken up again.

    Raises OriginError: transient where the next try may end it.
    """
    target = cache_dir() / "isos" / f"{sha256}.iso"
    with _cannot("the cache of ISOs"), _alone(target, on_progress):
        if target.exists():
            if file_sha256(target, on_progress) == sha256:
                return LocalIso(target, target.stat().st_size, sha256)
            target.unlink()
        part = target.with_suffix(".part")
        _fetch(url, part, on_progress)
        found = file_sha256(part, on_progress)
        if found != sha256:
            part.unlink()
            raise OriginError(
                f"{shown(url)} has the SHA-256 {found}, and the manifest asks for {sha256}",
                advice="compare `iso.checksum` with what the publisher says",
            )
        part.replace(target)
        return LocalIso(target, target.stat().st_size, sha256)


def probe(url: str) -> int | None:
    """Size in bytes of what a URL names, None where that cannot be learnt from here.

    Raises OriginError only where the server says that there is nothing.
    """
    try:
        with requests.head(url, allow_redirects=True, timeout=_PROBE) as answer:
            if answer.status_code in {404, 410}:
                _refuse(answer, url)
            return int(answer.headers.get("Content-Length") or 0) if answer.ok else None
    except requests.RequestException:
        return None


def is_fetched(sha256: str) -> bool:
    """Whether a file of that checksum is in the cache, as far as its name says."""
    return (cache_dir() / "isos" / f"{sha256}.iso").exists()


def rewritten(
    source: Callable[[], LocalIso], sha256: str, family: Family, on_progress: Progress
) -> LocalIso:
    """The rewritten copy of an ISO, from the cache or made now from ``source``.

    Raises OriginError for an image without an installer's boot menu, and what ``source`` raises.
    """
    target = cache_dir() / "rewritten" / f"{remaster_key(sha256, family)}.iso"
    with _cannot("the cache of rewritten ISOs"), _alone(target, on_progress):
        known = _known(target, on_progress)
        if known is not None:
            return known
        origin = source()
        job = f"rewriting {origin.path.name}"
        try:
            made = remaster(
                origin.path, target, family, on_progress=lambda d, t: on_progress(job, d, t)
            )
        except IsoError as error:
            raise OriginError(
                f"{origin.path}: {error}", advice=f"it must be an install ISO of {family}"
            ) from None
        _write(target.with_suffix(".json"), json.dumps({"sha256": made.sha256}))
        return LocalIso(target, made.size, made.sha256)


def _known(target: Path, on_progress: Progress) -> LocalIso | None:
    """A cached image, unless it is not what was once written."""
    try:
        sha256 = str(json.loads(target.with_suffix(".json").read_text())["sha256"])
        if file_sha256(target, on_progress) != sha256:
            return None
        return LocalIso(target, target.stat().st_size, sha256)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _fetch(url: str, part: Path, on_progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity", "User-Agent": "proxflow"}
    if have:
        headers["Range"] = f"bytes={have}-"
    job = f"fetching {urlsplit(url).path.rpartition('/')[2] or shown(url)}"
    try:
        with requests.get(url, headers=headers, stream=True, timeout=(_CONNECT, _STALL)) as answer:
            if answer.status_code == requests.codes.requested_range_not_satisfiable:
                return  # all of it is here already; the checksum will tell
            _refuse(answer, url)
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
            f"{shown(url)} cannot be fetched: {_why(error)}",
            advice="what has arrived is kept; the next try goes on from there",
            transient=True,
        ) from None
    if total and have < total:
        raise OriginError(
            f"{shown(url)} broke off after {human_size(have)} of {human_size(total)}",
            advice="what has arrived is kept; the next try goes on from there",
            transient=True,
        )


def _refuse(answer: requests.Response, url: str) -> None:
    if answer.status_code < 400:
        return
    again = answer.status_code >= 500 or answer.status_code == 429
    raise OriginError(
        f"{shown(url)}: the server answers {answer.status_code} {answer.reason}",
        advice=None if again else "look whether the release has moved, and correct `iso.source`",
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


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


@contextmanager
def _alone(target: Path, on_progress: Progress) -> Iterator[None]:
    """One process at a time makes a file of the cache; the others wait, and find it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_suffix(".lock"), thread_local=False)
    while True:
        try:
            lock.acquire(timeout=_LOCK_POLL, poll_interval=0.05)
            break
        except Timeout:
            on_progress("waiting for another run that prepares the same ISO", 0, 0)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _cannot(what: str) -> Iterator[None]:
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
