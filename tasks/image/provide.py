"""A disk image on its way onto a storage: compared, fetched by the node, or sent from here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from blocks.manifest.guest import Digest, ImageSource
from blocks.paths import cache_dir
from blocks.proxmox import upload as wire
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.download import NoDiskImage, download, has_content
from blocks.proxmox.errors import (
    NotSupported,
    PermissionDenied,
    ProxmoxError,
    TaskFailed,
    WrongChecksum,
)
from blocks.proxmox.inventory import VolumeRow, storage_content
from blocks.units import human_size
from tasks.errors import StageError
from tasks.fetching import OriginError, alone, file_name, is_url, keeping_cache, probe, shown
from tasks.image.formats import Format, Kind, is_packed, kind_by_name
from tasks.image.local import LocalDisk, local_disk, packed_content
from tasks.image.origin import WORDS, kind_here, kind_there, stem, words_of
from tasks.progress import Meter
from tasks.stage import Outcome, done, unchanged

_FORMATS: tuple[Format, ...] = ("qcow2", "raw")


def find_image(client: Client, node: str, source: ImageSource, digest: Digest) -> VolumeRow | None:
    """The image on the node's storage, by its name only. One call."""
    names = {f"{stem(source, digest)}.{ending}" for ending in _FORMATS}
    rows = storage_content(client, node, source.storage, "import")
    return next((row for row in rows if row.name in names), None)


@dataclass(frozen=True)
class Provided:
    """How it went, and the volume id."""

    outcome: Outcome
    volid: str


class _NotFetched(StageError):
    """The node alone may fetch an image, and did not; ``transient``: it may be able to later."""

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(
            message,
            advice="leave `image.fetch` out, so that it is fetched here where the node cannot",
        )
        self.transient = transient


@dataclass(frozen=True)
class Job:
    """One image for the storage of one node; ``digest`` is that of the file as published."""

    client: Client
    node: str
    source: ImageSource
    digest: Digest
    meter: Meter

    def provide(self) -> Provided:
        """Look, and do what is missing. Raises OriginError, StageError or ProxmoxError."""
        with self._alone():
            row = find_image(self.client, self.node, self.source, self.digest)
            if row is not None:
                kept = self._kept(row)
                if kept is not None:
                    return kept
            return self._made(row)

    def _kept(self, row: VolumeRow) -> Provided | None:
        """The image that is there, None where it is not what its name says."""
        content, size = self._content()
        same = self._compared(row, content)
        if same is False and content == self.digest and is_packed(self._kind()):
            disk = self._local()
            content, size = disk.digest, disk.path.stat().st_size
            same = self._compared(row, content)
        if same is None:
            if size is None:
                with suppress(OriginError):
                    size = probe(self.source.origin, WORDS) or None
            return self._there(row, compared=False) if size in {None, row.size} else None
        return self._there(row) if same else None

    def _content(self) -> tuple[Digest, int | None]:
        """Checksum, and size in bytes where it is known, of what the storage is to have.

        Of an image that is packed by its name and was never seen here, by fetching it.
        """
        packed = packed_content(self.digest)
        if packed is not None:
            return Digest(algorithm="sha256", hex=packed.sha256), packed.size
        name = file_name(self.source.origin)
        if is_url(self.source.origin) and not is_packed(kind_by_name(name)):
            return self.digest, None
        disk = self._local()
        return disk.digest, disk.path.stat().st_size

    def _made(self, row: VolumeRow | None) -> Provided:
        if not is_url(self.source.origin) or self.source.fetch == "here":
            return self._sent(self._local())
        kind = self._kind()
        if is_packed(kind):
            if self.source.fetch == "node":
                raise StageError(
                    f"{shown(self.source.origin)} is packed ({kind}), and a node unpacks no disk "
                    "images",
                    advice="leave `image.fetch` out, so that it is unpacked here and uploaded",
                )
            return self._sent(self._local())
        return self._fetched(kind, row)

    def _fetched(self, kind: Kind | None, row: VolumeRow | None) -> Provided:
        """By the node; where it cannot, and may be helped, from here.

        A ``kind`` of None, not known, is tried as both formats: the node refuses what is no qcow2.
        """
        guesses = tuple(known for known in _FORMATS if kind in {known, None})
        try:
            if row is not None:
                # The node keeps a file that is there, whatever is in it (04-download-url).
                self._delete(row)
            return self._downloaded(guesses)
        except WrongChecksum as error:
            raise StageError(
                f"{shown(self.source.origin)}: {error.message}",
                advice=words_of(self.source).mismatch,
            ) from None
        except (PermissionDenied, NotSupported, TaskFailed) as error:
            # The rest of the message is the log of the node's task, which has the whole URL.
            why = error.message.partition("\n")[0]
            if self.source.fetch == "node":
                raise _NotFetched(
                    f"{self.node} did not fetch {shown(self.source.origin)}: {why}",
                    # A server or a network that is down now may be there at the next try.
                    transient=isinstance(error, TaskFailed),
                ) from None
            warning = (
                f"{self.node} did not fetch the image ({why}); it was fetched here and uploaded"
            )
            return self._sent(self._local(), warning)

    def _downloaded(self, guesses: tuple[Format, ...]) -> Provided:
        refused: NoDiskImage | None = None
        for ending in guesses:
            name = f"{stem(self.source, self.digest)}.{ending}"
            job = f"{self.node} fetches {name}"
            try:
                volid = download(
                    self.client,
                    self.node,
                    self.source.storage,
                    self.source.origin,
                    name,
                    self.digest.hex,
                    algorithm=self.digest.algorithm,
                    content="import",
                    on_percent=partial(self.meter.percent, job),
                )
            except NoDiskImage as error:
                refused = error
                continue
            return Provided(done(f"{volid}, fetched by {self.node}"), volid)
        raise StageError(
            f"{shown(self.source.origin)} is no disk image that {self.node} takes: "
            f"{refused.message if refused else ''}",
            advice="`image` takes whole qcow2 and raw disk images",
        )

    def _sent(self, disk: LocalDisk, *warnings: str) -> Provided:
        name, size = f"{stem(self.source, self.digest)}.{disk.format}", disk.path.stat().st_size
        job = f"uploading {name} to {self.source.storage}"
        progress: Callable[[int, int], None] = lambda done, total: self.meter(job, done, total)  # noqa: E731
        sums = {disk.digest.algorithm: disk.digest.hex}
        try:
            volid = wire.upload(
                self.client,
                self.node,
                self.source.storage,
                disk.path,
                content="import",
                filename=name,
                on_progress=progress,
                sha256=sums.get("sha256"),
                sha512=sums.get("sha512"),
            )
        except ProxmoxError as error:
            if error.advice is None:
                error.advice = "what was not sent whole does not count; the next run sends it again"
            raise
        return Provided(done(f"{volid}, {human_size(size)}", warnings=warnings), volid)

    def _local(self) -> LocalDisk:
        return local_disk(self.source, self.digest, self.meter)

    def _kind(self) -> Kind | None:
        """What the image is: by content; where its server does not answer here, by its name."""
        if not is_url(self.source.origin):
            return kind_here(Path(self.source.origin))
        return kind_there(self.source.origin) or kind_by_name(file_name(self.source.origin))

    def _compared(self, row: VolumeRow, content: Digest) -> bool | None:
        """Whether the file on the storage has that checksum; None where we may not ask."""
        self.meter(f"{self.node} compares {row.name}", 0, 0)
        try:
            return has_content(
                self.client, self.node, row.volid, content.hex, algorithm=content.algorithm
            )
        except (PermissionDenied, NotSupported):
            return None

    def _there(self, row: VolumeRow, *, compared: bool = True) -> Provided:
        warnings: tuple[str, ...] = ()
        if not compared:
            warnings = (
                f"the content of {row.volid} could not be compared; that takes Sys.Audit and "
                f"Sys.Modify on node {self.node}",
            )
        return Provided(unchanged(row.volid, warnings=warnings), row.volid)

    def _delete(self, row: VolumeRow) -> None:
        self.client.run("DELETE", volume_path(self.node, row.volid))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One run at a time provides an image, as far as this machine knows."""
        place = f"{self.client.connection.endpoint} {self.source.storage}"
        which = hashlib.sha256(place.encode()).hexdigest()[:12]
        target = cache_dir() / "images" / f"{stem(self.source, self.digest)}-{which}.storage"
        with ExitStack() as stack:
            with keeping_cache("the cache of disk images"):
                stack.enter_context(alone(target, self.meter, "provides the same image"))
            yield


def volume_path(node: str, volid: str) -> str:
    """The path of one volume in the API."""
    return api_path("nodes", node, "storage", volid.partition(":")[0], "content", volid)


def virtual_size(client: Client, node: str, volid: str) -> int:
    """Bytes of the disk in an image on a storage; the list has those of the file (03-uploads)."""
    answer: dict[str, Any] = client.get(volume_path(node, volid))
    return int(answer["size"])
