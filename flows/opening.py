"""From a manifest's path and a cluster's name to an environment and a client; without Prefect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from blocks.manifest.environment import Environment
from blocks.manifest.faults import Fault, ManifestError, show_path
from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection, resolve
from tasks.masking import open_environment
from tasks.survey import chosen


@dataclass(frozen=True)
class Opened:
    """An environment and the cluster it is for.

    ``environment`` has the guests that were asked for, ``everyone`` all that are declared.
    """

    everyone: Environment
    environment: Environment
    connection: Connection
    client: Client


def open_cluster(
    manifest: str | Path, cluster: str | None, only: Sequence[str] | None = None
) -> Opened:
    """Load the manifest and find its cluster; nothing is called yet.

    Raises ManifestError, UnknownGuest or BadSettings.
    """
    everyone = open_environment(manifest)
    connection = resolve(cluster, context=everyone.context)
    return Opened(everyone, chosen(everyone, only), connection, Client(connection))


@contextmanager
def reading(
    manifest: str | Path, cluster: str | None, only: Sequence[str] | None = None
) -> Iterator[Opened]:
    """The same for a command that reads; the client is closed in the end."""
    opened = open_cluster(manifest, cluster, only)
    try:
        yield opened
    finally:
        opened.client.close()


def templates_only(environment: Environment) -> None:
    """Refuse an environment where a template is asked for. Raises ManifestError."""
    if environment.recipe is None:
        _refuse_kind(environment, "this is an environment (kind: Env)", "bring it up with flows.up")


def environments_only(environment: Environment) -> None:
    """Refuse a template where an environment is asked for. Raises ManifestError."""
    if environment.recipe is not None:
        _refuse_kind(
            environment, "this is a template (kind: Template)", "build it with flows.template build"
        )


def _refuse_kind(environment: Environment, problem: str, remedy: str) -> None:
    file = show_path(environment.path)
    raise ManifestError((Fault(file=file, key="kind", problem=problem, remedy=remedy),))
