"""What the install drive of a guest is to hold, as far as the manifest and this machine tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from blocks.manifest.guest import Guest
from tasks.iso.distros import Family, distro
from tasks.iso.remaster import is_remastered, remaster_key, remaster_name
from tasks.iso.source import Progress, is_url, local_iso


def _silent(_job: str, _done: int, _total: int) -> None:
    return


@dataclass(frozen=True)
class Medium:
    """What the install drive of a guest is to hold.

    ``sha256`` is that of the origin. ``family`` is set where the ISO must be rewritten. ``size`` in
    bytes, of the origin, where it is known without a call.
    """

    volid: str
    origin: str
    sha256: str
    family: Family | None = None
    size: int | None = None

    @property
    def storage(self) -> str:
        """The storage that has it, or will."""
        return self.volid.partition(":")[0]

    @property
    def name(self) -> str:
        """File name on the storage."""
        return self.volid.rpartition("/")[2]


def must_rewrite(guest: Guest) -> Family | None:
    """The installer for which the origin of the guest's ISO must be rewritten, None for none."""
    source = guest.install
    if source is None:
        return None
    wanted = distro(source.installation.distro)
    rewrite = wanted.remaster and source.origin is not None and not is_remastered(source.iso)
    return wanted.family if rewrite else None


def medium_of(guest: Guest, on_progress: Progress = _silent) -> Medium | None:
    """The medium of a guest whose ISO has an origin; a local one is read, once until it changes.

    Raises OriginError where it is not there or is not what the manifest says.
    """
    source = guest.install
    if source is None or source.origin is None:
        return None
    family = must_rewrite(guest)
    sha256, size = source.sha256 or "", None
    if not is_url(source.origin):
        local = local_iso(Path(source.origin), source.sha256, on_progress)
        sha256, size = local.sha256, local.size
    volid = source.iso
    if family is not None:
        storage = volid.partition(":")[0]
        volid = f"{storage}:iso/{remaster_name(volid, remaster_key(sha256, family))}"
    return Medium(volid=volid, origin=source.origin, sha256=sha256, family=family, size=size)
