"""Stage media: the install ISO, onto the storage that the guest's node reads it from.

Only for guests whose manifest says where the ISO comes from. An installer that must be told by its
boot menu to install unattended gets a rewritten copy, under a name of its own that says what it was
made of: guests that share source and installer share the copy. Such ISOs belong to no environment:
neither a rollback nor `down` deletes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blocks.manifest.guest import Guest
from blocks.proxmox import upload as wire
from blocks.proxmox.download import download, has_content
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
from tasks.iso.distros import Family
from tasks.iso.source import LocalIso, fetched, is_url, local_iso, rewritten, shown
from tasks.medium import Medium, medium_of
from tasks.progress import Meter
from tasks.seed import source_of
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, skipped, stage, unchanged


def install_iso(here: Session, guest: Guest) -> str:
    """Volume id of the ISO that the guest is installed from."""
    known = here.media.get(guest.label)
    if known is None:
        medium = medium_of(guest, Meter())
        known = medium.volid if medium is not None else source_of(guest).iso
        here.media[guest.label] = known
    return known


@stage("media", retries=3)
def media(run: RunRef, node: str) -> Outcome:
    """Put the install ISO onto its storage unless it is there, whole and the right one."""
    here = session(run)
    guest = here.guest(node)
    if guest.install is None:
        return skipped("nothing to install")
    live = here.live(guest)
    if live is not None and live.ready:
        return skipped("installed already")
    return provide(here, guest)


def provide(here: Session, guest: Guest) -> Outcome:
    """Provide the guest's install ISO. Raises OriginError, StageError or ProxmoxError."""
    meter = Meter()
    medium = medium_of(guest, meter)
    if medium is None:
        return skipped(f"{source_of(guest).iso} is to be on its storage")
    here.media[guest.label] = medium.volid
    if (guest.node, medium.volid) in here.provided:
        return unchanged(medium.volid)
    job = _Job(here, guest.node, medium, meter)
    if medium.family is not None:
        outcome = job.rewritten(medium.family)
    elif is_url(medium.origin):
        outcome = job.downloaded()
    else:
        outcome = job.uploaded(local_iso(Path(medium.origin), medium.sha256, meter))
    here.provided.add((guest.node, medium.volid))
    return outcome


@dataclass(frozen=True)
class _Job:
    """One ISO on its way onto a node's storage."""

    here: Session
    node: str
    medium: Medium
    meter: Meter

    def rewritten(self, family: Family) -> Outcome:
        """A copy that is there in another size, or with another content, is replaced: it is ours,
        and its name says what must be in it.
        """
        made = rewritten(self._origin, self.medium.sha256, family, self.meter)
        row = self._row()
        if row is not None and row.size == made.size:
            same = self._compared(made.sha256)
            if same is None or same:
                return self._there(same)
        self._send(made)
        return done(f"{self.medium.volid}, {human_size(made.size)}, rewritten")

    def uploaded(self, local: LocalIso, *, warnings: tuple[str, ...] = ()) -> Outcome:
        """An ISO of that name with another content may be somebody's, and is not touched."""
        row = self._row()
        if row is not None:
            same = self._compared(local.sha256) if row.size == local.size else False
            if same is False:
                raise self._strange(f"{row.size} bytes, the source has {local.size}")
            return self._there(same)
        self._send(local)
        return done(f"{self.medium.volid}, {human_size(local.size)}", warnings=warnings)

    def downloaded(self) -> Outcome:
        """The node fetches it; where it cannot, it is fetched here and uploaded."""
        medium, row = self.medium, self._row()
        job = f"{self.node} fetches {medium.name}"
        try:
            download(
                self.here.client,
                self.node,
                medium.storage,
                medium.origin,
                medium.name,
                medium.sha256,
                on_percent=lambda percent: self.meter.percent(job, percent),
            )
        except WrongChecksum as error:
            if row is not None:
                raise self._strange(error.message) from None
            raise StageError(
                f"{shown(medium.origin)}: {error.message}",
                advice="compare `iso.checksum` with what the publisher says",
            ) from None
        except (PermissionDenied, NotSupported, TaskFailed) as error:
            if row is not None:
                return self._there(None)
            why = error.message.partition("\n")[0]
            local = fetched(medium.origin, medium.sha256, self.meter)
            warning = f"{self.node} did not fetch the ISO ({why}); it was fetched here and uploaded"
            return self.uploaded(local, warnings=(warning,))
        if row is not None:
            return self._there(True)
        return done(f"{medium.volid}, fetched by {self.node}")

    def _origin(self) -> LocalIso:
        if is_url(self.medium.origin):
            return fetched(self.medium.origin, self.medium.sha256, self.meter)
        return local_iso(Path(self.medium.origin), self.medium.sha256, self.meter)

    def _row(self) -> VolumeRow | None:
        rows = storage_content(self.here.client, self.node, self.medium.storage, "iso")
        return next((row for row in rows if row.volid == self.medium.volid), None)

    def _compared(self, sha256: str) -> bool | None:
        """Whether the file on the storage has that checksum; None where we may not ask."""
        self.meter(f"{self.node} compares {self.medium.name}", 0, 0)
        try:
            return has_content(self.here.client, self.node, self.medium.volid, sha256)
        except (PermissionDenied, NotSupported):
            return None

    def _send(self, local: LocalIso) -> None:
        job = f"uploading {self.medium.name} to {self.medium.storage}"
        progress: Callable[[int, int], None] = lambda done, total: self.meter(job, done, total)  # noqa: E731
        try:
            wire.upload(
                self.here.client,
                self.node,
                self.medium.storage,
                local.path,
                filename=self.medium.name,
                sha256=local.sha256,
                on_progress=progress,
            )
        except ProxmoxError as error:
            if error.advice is None:
                error.advice = "what was not sent whole does not count; the next run sends it again"
            raise

    def _there(self, compared: bool | None) -> Outcome:
        if compared is None:
            text = f"the content of {self.medium.volid} could not be compared, only its size"
            why = f"that takes Sys.Audit and Sys.Modify on node {self.node}"
            return unchanged(self.medium.volid, warnings=(f"{text}; {why}",))
        return unchanged(self.medium.volid)

    def _strange(self, difference: str) -> StageError:
        return StageError(
            f"{self.medium.volid} on {self.node} is another ISO than {shown(self.medium.origin)}: "
            f"{difference}",
            advice="give the ISO another name in `iso.image`, or delete the one on the storage",
        )
