"""``upload``: multipart bodies streamed straight to disk, then a copy task.

Form fields must come before the file, as on a real server (scenario 03).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import secrets
from pathlib import Path
from typing import Any, BinaryIO

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from deployments.lab.access import Identity
from deployments.lab.cluster import Lab
from deployments.lab.errors import ApiError, bad_parameter, failure
from deployments.lab.images import NotQcow2Error, inspect_image
from deployments.lab.routing import Call, Endpoint, endpoint, on
from deployments.lab.schema import enum, string
from deployments.lab.storage import Storage, Volume
from deployments.lab.tasks import Task

TEMPLATE = "/nodes/{node}/storage/{storage}/upload"
_FIELDS = ("content", "checksum", "checksum-algorithm")
ALGORITHMS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
CONTENT = enum("iso", "vztmpl", "import", optional=False)
_EXTENSIONS = {
    "iso": r".+\.(?:[iI][sS][oO]|[iI][mM][gG])",
    "vztmpl": r".+\.tar\.(?:gz|xz|zst|bz2)",
    "import": r"[A-Za-z0-9].*\.(?:ova|qcow2|raw|vmdk)",
}
_CHUNK = 1 << 20


class _Receiver:
    """Callbacks of the multipart parser: fields into a dict, the file part into a file.

    The file's bytes are gathered and written by a thread, a piece at a time, so that neither
    memory nor a slow disk is a matter of the file's size.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.foreign = False
        self._headers: dict[str, str] = {}
        self._header_name = b""
        self._header_value = b""
        self._name = ""
        self._value = bytearray()
        self._file: BinaryIO | None = None
        self._in_file = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._header,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_done,
            "on_part_data": self._data,
            "on_part_end": self._end,
        }

    def _begin(self) -> None:
        self._headers, self._value, self._in_file = {}, bytearray(), False

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _header(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._header_name.decode("latin-1").lower()] = self._header_value.decode()
        self._header_name = self._header_value = b""

    def _headers_done(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", ""))
        self._name = options.get(b"name", b"").decode()
        raw = options.get(b"filename")
        if raw is not None and self._name == "filename":
            self.filename = raw.decode("utf-8", "replace")
            self._in_file = True
            self._file = self.target.open("wb", buffering=0)

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._waiting.append(data[start:end])
            self._waiting_bytes += end - start
        elif len(self._value) < 4096:
            self._value += data[start:end]

    def _end(self) -> None:
        if self._in_file:
            return
        if self._name not in _FIELDS:
            self.foreign = True
        elif self.filename is None:
            self.fields[self._name] = self._value.decode()

    async def write(self, all_of_it: bool = False) -> None:
        """Put what has been gathered into the file when there is enough of it."""
        if self._file is not None and (all_of_it or self._waiting_bytes >= _CHUNK):
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            await asyncio.to_thread(self._file.write, b"".join(waiting))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


async def receive(
    lab: Lab, identity: Identity | None, request: Request, uri: dict[str, str], route: Endpoint
) -> dict[str, Any] | None:
    """The form of an upload with ``tmpfilename``; None for every other endpoint."""
    if route.template != TEMPLATE:
        return None
    assert identity is not None
    try:
        lab.access.require(identity, f"/storage/{uri['storage']}", "Datastore.AllocateTemplate")
    except ApiError as error:
        error.bare = True
        raise
    target = lab.root / "tmp" / f"pveupload-{secrets.token_hex(16)}"
    receiver = _Receiver(target)
    try:
        await _parse(request, receiver)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    finally:
        receiver.close()
    if receiver.filename is None or receiver.foreign:
        target.unlink(missing_ok=True)
    if receiver.foreign:
        raise ApiError(400, "Bad Request", bare=True)
    if receiver.filename is None:
        text = "upload failed at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 1331."
        raise ApiError(500, text, bare=True, body=text + "\n")
    return {**receiver.fields, "filename": receiver.filename, "tmpfilename": str(target)}


async def _parse(request: Request, receiver: _Receiver) -> None:
    _, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if not boundary:
        raise ApiError(400, "Bad Request", bare=True)
    parser = MultipartParser(boundary, receiver.callbacks())  # type: ignore[arg-type]
    try:
        async for chunk in request.stream():
            parser.write(chunk)
            await receiver.write()
        parser.finalize()
        await receiver.write(all_of_it=True)
    except MultipartParseError:
        raise ApiError(400, "Bad Request", bare=True) from None


def discard(raw: dict[str, Any]) -> None:
    """Remove the received file unless a task has taken it over."""
    if not raw.get("taken"):
        Path(raw["tmpfilename"]).unlink(missing_ok=True)


def clean_name(name: str) -> str:
    """A file name as the server stores it: no path, odd characters as ``_``."""
    return re.sub(r"[^-a-zA-Z0-9_.]", "_", re.sub(r"^.*[/\\]", "", name, flags=re.DOTALL))


def target_volume(storage: Storage, content: str, name: str) -> Volume:
    """The volume for a new file; 400 when the name does not suit the content type."""
    if not re.fullmatch(_EXTENSIONS[content], name):
        text = (
            "invalid filename or wrong extension" if content == "import" else "wrong file extension"
        )
        raise bad_parameter(filename=text)
    return storage.parse(f"{content}/{name}")


def digest_file(file: Path, algorithm: str) -> str:
    """Hex digest of a file, read in pieces."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, algorithm).hexdigest()


def verify_import(file: Path, fmt: str, shown: str) -> tuple[list[str], str | None]:
    """Log lines and the complaint, if any, about an untrusted disk image."""
    if fmt != "qcow2":
        return [], None
    try:
        info = inspect_image(file, "qcow2")
    except NotQcow2Error:
        command = (
            f"command '/usr/bin/qemu-img info '--output=json' {shown} -f qcow2' failed: exit code 1"
        )
        return [command], f"qemu-img: Could not open '{shown}': Image is not in qcow2 format"
    if info.backing is not None:
        return [], f"backing file not allowed for untrusted image '{shown}'!"
    return [], None


@endpoint(
    "POST",
    TEMPLATE,
    {
        "content": CONTENT,
        "filename": string(optional=False),
        "tmpfilename": string(),
        "checksum": string(requires="checksum-algorithm"),
        "checksum-algorithm": enum(*ALGORITHMS, requires="checksum"),
    },
    check=on("/storage/{storage}", "Datastore.AllocateTemplate"),
)
async def upload(call: Call) -> str:
    """Check the name, then copy the received file in a task."""
    lab, node, params = call.lab, call.node, call.params
    storage = lab.storages.get(call.uri["storage"], node)
    kind = params["content"]
    if storage.block:
        raise failure(
            f"can't upload to storage type '{storage.config.type}', not a file based storage!"
        )
    if kind not in storage.config.content:
        raise failure(f"storage '{storage.id}' does not support '{kind}' content")
    volume = target_volume(storage, kind, clean_name(params["filename"]))
    received = Path(params["tmpfilename"])
    shown = f"/var/tmp/{received.name}"  # noqa: S108 - only shown in the log
    call.raw["taken"] = True

    async def work(task: Task) -> None:
        try:
            task.log(f"starting file import from: {shown}")
            await _verify_checksum(task, received, params)
            if kind == "import":
                lines, complaint = verify_import(received, volume.format, shown)
                task.log(*lines)
                if complaint:
                    raise failure(complaint)
            size = received.stat().st_size
            target = storage.shown_path(volume)
            task.log(f"target node: {node}", f"target file: {target}", f"file size is: {size}")
            task.log(f"command: cp -- {shown} {target}")
            await lab.clock.work("imgcopy")
            lab.check_space(storage, node, size, f"cp: error writing '{target}'")
            file = storage.file(node, volume)
            file.parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(received.replace, file)
            task.log("finished file import successfully")
        finally:
            with contextlib.suppress(OSError):
                received.unlink(missing_ok=True)

    return lab.tasks.start(node, "imgcopy", "", call.who, work)


async def _verify_checksum(task: Task, file: Path, params: dict[str, Any]) -> None:
    if "checksum" not in params:
        return
    task.log("calculating checksum...")
    digest = await asyncio.to_thread(digest_file, file, params["checksum-algorithm"])
    if digest != params["checksum"].lower():
        raise failure(f"checksum mismatch: got '{digest}' != expect '{params['checksum']}'")
    task.lines[-1] += "OK, checksum verified"
