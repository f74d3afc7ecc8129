"""Sending a file into a storage: streamed, checked, read back.

Memory stays flat whatever the file's size. An existing volume of that name is overwritten without
a question (recorded in 03-uploads); whether that is wanted is the caller's to decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal

from requests_toolbelt import MultipartEncoder

from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import BadUpload
from blocks.proxmox.inventory import storage_content
from blocks.units import human_size

UploadKind = Literal["iso", "import", "vztmpl"]

_OTHER_CHARACTERS = re.compile(r"[^-a-zA-Z0-9_.]")


class _Watched:
    """A file that tells how far it was read; the encoder asks for ``len`` and ``read``."""

    def __init__(
        self, file: BinaryIO, size: int, on_progress: Callable[[int, int], None] | None
    ) -> None:
        self._file = file
        self._size = size
        self._sent = 0
        self._on_progress = on_progress

    @property
    def len(self) -> int:
        """Bytes still to come."""
        return self._size - self._sent

    def read(self, size: int = -1) -> bytes:
        """The next bytes, never more than were there at the start."""
        wanted = self.len if size < 0 else min(size, self.len)
        data = self._file.read(wanted)
        if len(data) < wanted:
            raise BadUpload("the file became shorter while it was sent")
        self._sent += len(data)
        if self._on_progress is not None and data:
            self._on_progress(self._sent, self._size)
        return data


def upload(
    client: Client,
    node: str,
    storage: str,
    path: Path,
    *,
    content: UploadKind = "iso",
    filename: str | None = None,
    sha256: str | None = None,
    sha512: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    task_timeout: float = 3600.0,
) -> str:
    """Send a file and return its volume id, once the storage has the whole of it.

    ``filename``: the volume's name (default: the file's); characters that the server would
    replace are replaced here. ``sha256`` or ``sha512``: the server compares it before the volume
    appears.
    ``on_progress``: gets bytes sent and bytes in all, about once a MiB, from this thread.
    ``task_timeout``: seconds for the server to move the file into the storage.

    Raises BadUpload (no such file, empty, another size arrived), PermissionDenied, NotFound (no
    such storage), InvalidParameter (extension or content type), TaskFailed (checksum, disk full),
    Unreachable.
    """
    size = _checked(path)
    name = volume_name(filename or path.name)
    fields: dict[str, str] = {"content": content}
    for algorithm, checksum in (("sha256", sha256), ("sha512", sha512)):
        if checksum is not None:
            fields |= {"checksum-algorithm": algorithm, "checksum": checksum.lower()}
    with path.open("rb") as file:

        def body() -> tuple[MultipartEncoder, str]:
            file.seek(0)
            watched = _Watched(file, size, on_progress)
            # The file comes last: the server ignores fields behind it (03-uploads, step 20).
            encoder = MultipartEncoder(
                fields={**fields, "filename": (name, watched, "application/octet-stream")}
            )
            return encoder, encoder.content_type

        upid = client.stream(api_path("nodes", node, "storage", storage, "upload"), body)
    client.wait(upid, timeout=task_timeout)
    volid = f"{storage}:{content}/{name}"
    _read_back(client, node, volid, size)
    return volid


def volume_name(filename: str) -> str:
    """The name that the server gives to an uploaded file: no folders, few characters."""
    return _OTHER_CHARACTERS.sub("_", re.split(r"[/\\]", filename)[-1])


def _checked(path: Path) -> int:
    try:
        with path.open("rb"):
            size = path.stat().st_size
    except FileNotFoundError:
        raise BadUpload(f"{path} does not exist") from None
    except IsADirectoryError:
        raise BadUpload(f"{path} is a folder") from None
    except OSError as error:
        raise BadUpload(f"{path} cannot be read: {error.strerror}") from None
    if size == 0:
        raise BadUpload(f"{path} is empty")
    return size


def _read_back(client: Client, node: str, volid: str, size: int) -> None:
    storage, _, rest = volid.partition(":")
    rows = storage_content(client, node, storage, rest.partition("/")[0])
    row = next((row for row in rows if row.volid == volid), None)
    if row is None:
        raise BadUpload(
            f"{volid} was sent to {node}, but the storage does not list it",
            advice="does the user have Datastore.Audit on the storage?",
        )
    if row.size != size:
        raise BadUpload(
            f"{volid} on {node} has {row.size} bytes, {size} were sent ({human_size(size)})",
            advice="delete the volume and send it again; another upload may have overwritten it",
        )
