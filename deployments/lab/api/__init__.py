"""The API, one module for each part of the tree; importing a module registers its endpoints."""

from __future__ import annotations

import importlib

from deployments.lab.api import upload

__all__ = ["load", "upload"]

_MODULES = (
    "access",
    "cluster",
    "mappings",
    "resources",
    "nodes",
    "storage",
    "upload",
    "download",
    "tasks",
    "qemu",
    "vmops",
    "agent",
    "agentinfo",
    "agentrun",
    "lxc",
    "ctops",
    "ctmove",
    "migrate",
    "console",
)


def load() -> None:
    """Register every endpoint; a second call does nothing."""
    for name in _MODULES:
        importlib.import_module(f"deployments.lab.api.{name}")
