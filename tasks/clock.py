"""How far this machine's clock is from a node's."""

from __future__ import annotations

import time
from typing import Final

from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import PermissionDenied

_NOISE: Final = 5.0
"""Seconds that the call itself may take; nodes tell whole seconds."""


def ahead_of(client: Client, node: str) -> float:
    """Seconds that are to be added to a time of the node's, to have it as this machine tells it.

    0 where the clocks differ by some seconds only, and where the caller may not ask: that takes
    Sys.Audit on the node. One call. Raises ProxmoxError.
    """
    try:
        there = float(client.get(api_path("nodes", node, "time"))["time"])
    except PermissionDenied:
        return 0.0
    ahead = time.time() - there
    return ahead if abs(ahead) > _NOISE else 0.0
