"""What is there: a guest's live configuration and the mark that it carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark, read_mark
from blocks.proxmox.client import Client
from blocks.proxmox.errors import NotFound


@dataclass(frozen=True)
class Live:
    """A guest's configuration as the cluster has it, pending changes included."""

    config: Mapping[str, Any]

    @property
    def description(self) -> str:
        """The description, mark and all."""
        return str(self.config.get("description", ""))

    @property
    def mark(self) -> Mark | None:
        """Who made the guest; None for a stranger's."""
        return read_mark(self.description)

    @property
    def ready(self) -> bool:
        """Whether its installation was finished by a run of ours."""
        return self.mark is not None and self.mark.ready


def config_path(guest: Guest) -> str:
    """Path of the guest's configuration."""
    return f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/config"


def unless_changed(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a write carries to be refused (``Conflict``) where somebody wrote since ``config``."""
    return {"digest": config["digest"]} if config.get("digest") else {}


def read_live(client: Client, guest: Guest) -> Live | None:
    """The guest's live configuration, or None where no such guest is on its node."""
    try:
        return Live(client.get(config_path(guest)))
    except NotFound:
        return None


def is_running(client: Client, guest: Guest) -> bool:
    """Whether the guest runs (a paused one does). One call."""
    status = client.get(f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/status/current")
    return bool(status["status"] == "running")
