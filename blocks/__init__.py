"""What an operator writes down or connects to.

``prefect block register -m blocks`` registers ``ProxmoxCluster``; it is imported when asked for,
so that ``import blocks`` does not import Prefect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocks.proxmox.cluster import ProxmoxCluster

__all__ = ["ProxmoxCluster"]


def __getattr__(name: str) -> object:
    if name == "ProxmoxCluster":
        from blocks.proxmox.cluster import ProxmoxCluster

        return ProxmoxCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
