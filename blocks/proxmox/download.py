"""Files that a node fetches itself, and the comparison of a file that is there with a checksum.

Recorded in 04-download-url: an existing file is never overwritten. Given the right checksum for it,
the task ends well without a transfer; given another one, it fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import ProxmoxError, TaskFailed, WrongChecksum
from blocks.proxmox.upload import UploadKind

_TASK_SECONDS: Final = 4 * 3600.0
# Nobody serves HTTP on the port of "discard": the call can compare, and never transfer anything.
_NOWHERE: Final = "http://127.0.0.1:9/"
_PERCENT = re.compile(r"\s(\d{1,3})%")
_MISMATCH = "checksum mismatch"
# Recorded in 04-download-url (step 23) and, for an upload, in 03-uploads (step 35).
_NO_QCOW2 = "is not in qcow2 format"
_UNTRUSTED = ("backing file not allowed", "data file not allowed")


class NoDiskImage(ProxmoxError):
    """What the node fetched is no disk image of that kind, or one that depends on other files."""


def download(
    client: Client,
    node: str,
    storage: str,
    url: str,
    filename: str,
    checksum: str,
    *,
    algorithm: str = "sha256",
    content: UploadKind = "iso",
    on_percent: Callable[[int], None] | None = None,
) -> str:
    """Let the node fetch a file into a storage and return its volume id.

    A file of that name with that checksum is kept as it is. ``checksum`` is in hex, ``algorithm``
    sha256 or sha512. ``on_percent`` gets the progress that the node's log tells. Raises
    WrongChecksum (of what was fetched, or of what is there already), NoDiskImage (content import),
    TaskFailed (the node cannot fetch it, or the disk is full), PermissionDenied (it takes Sys.Audit
    and Sys.Modify on the node), NotSupported.
    """
    params: dict[str, Any] = {
        "content": content,
        "filename": filename,
        "url": url,
        "checksum": checksum.lower(),
        "checksum-algorithm": algorithm,
    }
    upid = client.post(api_path("nodes", node, "storage", storage, "download-url"), **params)
    try:
        # Reading the log costs a call a look: not for a comparison, which tells no progress.
        on_log = None if on_percent is None else _reader(on_percent)
        client.wait(upid, timeout=_TASK_SECONDS, on_log=on_log)
    except TaskFailed as failure:
        if _MISMATCH in failure.exitstatus:
            raise WrongChecksum(failure.exitstatus) from None
        if any(word in failure.exitstatus for word in (_NO_QCOW2, *_UNTRUSTED)):
            raise NoDiskImage(failure.exitstatus) from None
        raise
    return f"{storage}:{content}/{filename}"


def _reader(on_percent: Callable[[int], None]) -> Callable[[str], None]:
    def read(line: str) -> None:
        found = _PERCENT.findall(line)
        if found:
            on_percent(int(found[-1]))

    return read


def has_content(
    client: Client, node: str, volid: str, checksum: str, *, algorithm: str = "sha256"
) -> bool:
    """Whether the file is there with that checksum; the node reads it, which takes its time.

    Raises PermissionDenied, NotSupported.
    """
    storage, _, rest = volid.partition(":")
    folder, _, filename = rest.rpartition("/")
    content: UploadKind = "import" if folder == "import" else "iso"
    try:
        download(
            client,
            node,
            storage,
            _NOWHERE + filename,
            filename,
            checksum,
            algorithm=algorithm,
            content=content,
        )
    except (WrongChecksum, TaskFailed):
        return False
    return True
