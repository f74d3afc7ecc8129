"""``download-url`` and ``query-url-metadata``: files really fetched over HTTP."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import http.client
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from deployments.lab.api.upload import (
    ALGORITHMS,
    CONTENT,
    clean_name,
    digest_file,
    target_volume,
    verify_import,
)
from deployments.lab.errors import ApiError, failure, not_implemented
from deployments.lab.routing import Call, endpoint, on, one_of
from deployments.lab.schema import boolean, enum, string
from deployments.lab.storage import Storage, Volume
from deployments.lab.tasks import Task

_URL = string(optional=False, pattern=r"https?://.*")
_NETWORK = one_of(on("/", "Sys.Audit", "Sys.Modify"), on("/nodes/{node}", "Sys.AccessNetwork"))
_TIMEOUT_SECONDS = 30


def _open(url: str, method: str, verify: bool) -> Any:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    request = urllib.request.Request(url, method=method)  # noqa: S310 - the schema allows http(s) only
    return opener.open(request, timeout=_TIMEOUT_SECONDS)


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _why(error: OSError) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ConnectionRefusedError):
        return "Connection refused"
    return str(getattr(reason, "strerror", None) or reason)


@endpoint(
    "GET",
    "/nodes/{node}/query-url-metadata",
    {"url": _URL, "verify-certificates": boolean()},
    check=_NETWORK,
)
async def query_url(call: Call) -> dict[str, Any]:
    """Name, type and size of a remote file."""
    url, verify = call.params["url"], bool(call.params.get("verify-certificates", 1))

    def head() -> dict[str, Any]:
        try:
            with _open(url, "HEAD", verify) as response:
                return _metadata(url, response)
        except urllib.error.HTTPError as error:
            raise failure(f"invalid server response: '{error.code} {error.reason}'") from None
        except (OSError, http.client.HTTPException) as error:
            text = f"500 Can't connect to {_host(url)} ({_why(_as_os_error(error))})"
            raise failure(f"invalid server response: '{text}'") from None

    return await asyncio.to_thread(head)


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else OSError(str(error))


def _metadata(url: str, response: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    disposition = response.headers.get("content-disposition", "")
    named = re.search(r'filename="?([^";]+)"?', disposition)
    name = named.group(1) if named else unquote(urlsplit(url).path).rpartition("/")[2]
    if name:
        found["filename"] = clean_name(name)
    if response.headers.get("content-length"):
        found["size"] = int(response.headers["content-length"])
    if response.headers.get("content-type"):
        found["mimetype"] = response.headers["content-type"].partition(";")[0]
    return found


def _check(call: Call) -> None:
    on("/storage/{storage}", "Datastore.AllocateTemplate")(call)
    _NETWORK(call)


@endpoint(
    "POST",
    "/nodes/{node}/storage/{storage}/download-url",
    {
        "content": CONTENT,
        "filename": string(optional=False, max_length=255),
        "url": _URL,
        "checksum": string(requires="checksum-algorithm"),
        "checksum-algorithm": enum(*ALGORITHMS, requires="checksum"),
        "compression": string(),
        "verify-certificates": boolean(),
    },
    check=_check,
)
async def download_url(call: Call) -> str:
    """Fetch a file into a storage in a task; an existing file is kept."""
    storage = call.lab.storages.get(call.uri["storage"], call.node)
    kind = call.params["content"]
    if storage.block:
        raise failure(
            f"can't upload to storage type '{storage.config.type}', not a file based storage!"
        )
    if kind not in storage.config.content:
        raise failure(f"storage '{storage.id}' is not configured for content-type '{kind}'")
    if call.params.get("compression") not in (None, "gz", "bz2"):
        raise not_implemented(call.method, call.path)
    volume = target_volume(storage, kind, clean_name(call.params["filename"]))
    lab, node, params = call.lab, call.node, call.params

    async def work(task: Task) -> None:
        await _download(task, call, storage, volume)

    return lab.tasks.start(node, "download", clean_name(params["filename"]), call.who, work)


async def _download(task: Task, call: Call, storage: Storage, volume: Volume) -> None:
    url, params = call.params["url"], call.params
    target = storage.file(call.node, volume)
    shown = storage.shown_path(volume)
    task.log(f"downloading {url} to {shown}")
    if target.exists():
        await _compare_existing(task, target, shown, params)
        return
    suffix = f".tmp_dwnl.{task.pid}"
    partial = target.with_name("." + target.name + suffix)
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        await call.lab.clock.work("download")
        verify = bool(params.get("verify-certificates", 1))
        await asyncio.to_thread(_fetch, task, url, partial, shown + suffix, verify)
        call.lab.check_space(storage, call.node, partial.stat().st_size, "download failed")
        if "checksum" in params:
            await _check_sum(task, partial, params, "OK, checksum verified", "")
        if "compression" in params:
            await asyncio.to_thread(_unpack, partial, params["compression"])
        if volume.vtype == "import":
            lines, complaint = verify_import(partial, volume.format, shown + suffix)
            task.log(*lines)
            if complaint:
                raise failure(f"failed to verify file: {complaint}")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    task.log(f"download of '{url}' to '{shown}' finished")


async def _compare_existing(task: Task, target: Path, shown: str, params: dict[str, Any]) -> None:
    if "checksum" not in params:
        raise failure(f"refusing to override existing file '{shown}'")
    done = "OK, got correct file already, no need to download"
    await _check_sum(task, target, params, done, ", aborting", "of existing file")


async def _check_sum(
    task: Task, file: Path, params: dict[str, Any], good: str, bad: str, what: str = ""
) -> None:
    task.log(f"calculating checksum{' ' + what if what else ''}...")
    digest = await asyncio.to_thread(digest_file, file, params["checksum-algorithm"])
    if digest != params["checksum"].lower():
        raise failure(f"checksum mismatch: got '{digest}' != expect '{params['checksum']}'{bad}")
    task.lines[-1] += good


def _fetch(task: Task, url: str, partial: Path, shown: str, verify: bool) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    task.log(f"--{now}--  {url}")
    connecting = f"Connecting to {_host(url)}..."
    try:
        response = _open(url, "GET", verify)
    except urllib.error.HTTPError as error:
        task.log(f"{connecting} connected.")
        task.log(f"HTTP request sent, awaiting response... {error.code} {error.reason}")
        task.log(f"{now} ERROR {error.code}: {error.reason}.")
        raise failure("download failed: exit code 8") from None
    except (OSError, http.client.HTTPException) as error:
        raise failure(
            f"download failed: {connecting} failed: {_why(_as_os_error(error))}."
        ) from None
    with response:
        mime = response.headers.get_content_type()
        task.log(f"{connecting} connected.", "HTTP request sent, awaiting response... 200 OK")
        length = response.headers.get("content-length")
        shown_length = f"{length} ({_human(int(length))})" if length else "unspecified"
        task.log(f"Length: {shown_length} [{mime}]", f"Saving to: '{shown}'")
        started = time.monotonic()
        with partial.open("wb") as handle:
            shutil.copyfileobj(response, handle, 1 << 20)
        got = partial.stat().st_size
        rate = got / max(time.monotonic() - started, 1e-3) / (1 << 20)
        task.log(f"     0K .......... 100% {rate:.1f}M=0.01s")
        task.log(f"{now} ({rate:.1f} MB/s) - '{shown}' saved [{got}/{length or got}]")


def _unpack(file: Path, compression: str) -> None:
    opener: Any = gzip.open if compression == "gz" else bz2.open
    unpacked = file.with_name(file.name + ".plain")
    try:
        with opener(file, "rb") as source, unpacked.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (OSError, EOFError) as error:
        unpacked.unlink(missing_ok=True)
        raise ApiError(500, f"decompression failed: {error}") from None
    unpacked.replace(file)


def _human(size: int) -> str:
    value, unit = float(size), ""
    for larger in "KMGT":
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f}{unit}" if unit and value < 10 else f"{round(value)}{unit}"
