"""What this process knows of images, kept as long as the connection of a run.

A preflight and the stages of one run share a client; whatever one of them has learnt about an image
the others need not ask again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from blocks.manifest.guest import Digest, ImageSource
from blocks.proxmox.client import Client


@dataclass
class Known:
    """``volid`` once the image is on a node, by node; ``size``: of the disk in it, in bytes."""

    digest: Digest | None = None
    volids: dict[str, str] = field(default_factory=dict)
    size: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_known: Final[WeakKeyDictionary[Client, dict[ImageSource, Known]]] = WeakKeyDictionary()
_guard: Final = threading.Lock()


def known(client: Client, source: ImageSource) -> Known:
    """What is known of an image on a connection; the caller fills it in."""
    with _guard:
        return _known.setdefault(client, {}).setdefault(source, Known())
