"""From a guest to the files that install it without a question."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from blocks.manifest.guest import Guest
from tasks.iso import agama, anaconda, autoyast, debian, subiquity
from tasks.iso.checks import RenderError
from tasks.iso.distros import Distro, Family
from tasks.iso.facts import Facts
from tasks.iso.gather import gather

__all__ = ["RenderError", "Rendered", "render"]

_FAMILIES: dict[Family, Callable[[Facts], dict[str, str]]] = {
    "anaconda": anaconda.files,
    "subiquity": subiquity.files,
    "debian-installer": debian.files,
    "autoyast": autoyast.files,
    "agama": agama.files,
}
_UNKNOWN = "0" * 64


@dataclass(frozen=True)
class Rendered:
    """The content of a seed volume. ``files`` may hold crypt hashes, so it is not in the repr.

    ``digest`` is the SHA-256 (hex) of label and files; the marker file of the installed system
    repeats it, and counts as zeros when it is computed.
    """

    distro: Distro
    label: str
    digest: str
    files: Mapping[str, str] = field(repr=False)


def render(guest: Guest, *, env: str) -> Rendered:
    """Renders the installer files of a guest whose source is an ISO.

    The same guest and environment give the same bytes, always. Raises RenderError, which names
    the key of the value that cannot be rendered and says what would be right.
    """
    facts = gather(guest, env=env, content=_UNKNOWN)
    label = facts.distro.label
    digest = _digest(label, _files(facts))
    files = _files(replace(facts, content=digest))
    return Rendered(distro=facts.distro, label=label, digest=digest, files=files)


def _files(facts: Facts) -> dict[str, str]:
    return dict(sorted(_FAMILIES[facts.distro.family](facts).items()))


def _digest(label: str, files: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for part in (label, *(text for item in sorted(files.items()) for text in item)):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
