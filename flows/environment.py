"""What the flows of an environment share: opening it, naming the run, keeping artifacts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import get_run_logger, runtime
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import State
from prefect.settings import PREFECT_API_URL, get_current_settings
from prefect.states import Failed
from prefect.utilities.urls import url_for

from blocks.manifest.environment import Environment, UnknownGuest
from blocks.manifest.faults import ManifestError
from blocks.manifest.loader import load_environment
from blocks.proxmox.errors import ProxmoxError
from flows.engine_log import quiet_engine
from flows.opening import open_cluster
from flows.progress import BEGUN, notify
from tasks.findings import PreflightFailed
from tasks.hooks import Happening, fire
from tasks.limits import api_is_private
from tasks.session import Session, adopt, close_session
from tasks.stage import Event, RunRef

# What an operator can put right, or the cluster refused: said without a traceback.
SAID = (ManifestError, UnknownGuest, PreflightFailed, ProxmoxError)


REFUSED = "Refused"


def run_id_of(flow_run_id: object) -> str:
    """The eight digits of a flow run's id that stand in marks and file names."""
    return str(flow_run_id)[-8:]


def run_name() -> str:
    """Name of a flow run: what it does and for which environment, such as ``up shop``."""
    manifest = Path(str(runtime.flow_run.parameters.get("manifest", "")))
    try:
        name = load_environment(manifest).name
    except ManifestError:  # the run itself says what is wrong
        name = manifest.stem
    return f"{runtime.flow_run.flow_name} {name}"


def open_session(
    run_id: str,
    manifest: str | Path,
    cluster: str | None,
    only: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Session:
    """Load the manifest and find its cluster. Raises ManifestError, UnknownGuest, BadSettings."""
    opened = open_cluster(manifest, cluster, only)
    ref = RunRef(
        manifest=str(Path(manifest).resolve()),
        env=opened.environment.name,
        cluster=cluster,
        run_id=run_id,
        options=dict(options or {}),
    )
    return Session(
        ref, opened.environment, opened.connection, opened.client, everyone=opened.everyone
    )


@contextmanager
def running(
    manifest: str,
    cluster: str | None,
    only: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Session]:
    """The session of the flow run that this is called in; it is closed in the end."""
    notify(Event(node="", stage=BEGUN, state="started", detail=_found_at(runtime.flow_run.id)))
    here = open_session(run_id_of(runtime.flow_run.id), manifest, cluster, only, options)
    adopt(here)
    try:
        yield here
    finally:
        close_session(here.run)


def _found_at(flow_run_id: str) -> str:
    """Said at the begin: a run that is killed later says nothing in the end."""
    run = f"run {run_id_of(flow_run_id)} is recorded"
    if api_is_private():
        return f"{run} in {get_current_settings().home}"
    return f"{run} at {url_for('flow-run', flow_run_id) or PREFECT_API_URL.value()}"


def _words(error: Exception) -> str:
    """What was wrong, and what to do about it."""
    advice = getattr(error, "advice", None) or "put that right and start the run again"
    return f"{error}\n  next: {advice}"


def told(body: Callable[[], State[Any]]) -> State[Any]:
    """Run a flow's body; faults with words of their own become a failed state, named Refused.

    A run from the command line gets the fault or the result itself back, to show it. A worker's
    engine would raise the one and stumble over the other, and print a traceback for what the
    message says already.
    """
    served = "PREFECT__FLOW_RUN_ID" in os.environ
    if served:
        quiet_engine()
    try:
        ended = body()
        return Failed(message=ended.message) if served and ended.is_failed() else ended
    except SAID as error:
        words = _words(error)
        if served:
            # The logs are all that a shell shows of it, and the engine's line may be cut.
            get_run_logger().error(words)
        return Failed(name=REFUSED, message=words, data=None if served else error)


def happen(happening: Happening, environment: Environment, detail: str = "") -> tuple[str, ...]:
    """Run the manifest's hooks of a happening; troubles come back, a line each."""

    def log(level: int, text: str) -> None:
        get_run_logger().log(level, text)
        notify(Event(node="", stage="hook", state="done", detail=text))

    return fire(happening, environment, detail=detail, log=log)


def keep(
    environment: Environment,
    what: str,
    markdown: str,
    summary: str,
    *,
    flow_run_id: UUID | None = None,
) -> None:
    """Keep a text as an artifact of the run, under a key that its successors share.

    ``flow_run_id``: for a hook, which is no part of its flow run.
    """
    key = re.sub(r"[^a-z0-9]+", "-", f"{environment.name}-{what}".lower())
    if flow_run_id is None:
        create_markdown_artifact(markdown, key=key, description=summary)
        return
    with get_client(sync_client=True) as client:
        client.create_artifact(
            ArtifactCreate(
                key=key,
                type="markdown",
                description=summary,
                data=markdown,
                flow_run_id=flow_run_id,
            )
        )
