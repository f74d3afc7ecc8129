"""Prefect's concurrency limits by tag: made in time, never blocked by the dead, and explained.

One slot a tag. Within one machine, runs queue at a lock of the operating system (``tasks.lanes``),
which the kernel frees when its owner dies; the tag is what keeps runs on other machines apart. A
private API has no other machines: no tag is used there, so no slot can be left taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL

PRIVATE_API = "PROXFLOW_PRIVATE_API"
"""Environment variable: the address of the server that this process started for itself."""

_NOT_IN_A_TAG = re.compile(r"[^A-Za-z0-9._-]+")


def tag(*parts: str) -> str:
    """``proxflow:upload:lab:local`` of its parts; what an address path cannot carry becomes ``-``.

    A tag stands in the path of Prefect's API, so a slash would make its limit unreadable.
    """
    return ":".join(["proxflow", *(_NOT_IN_A_TAG.sub("-", part) for part in parts)])


def _client() -> AbstractContextManager[SyncPrefectClient]:
    return get_client(sync_client=True)


def ensure_limits(tags: Iterable[str]) -> None:
    """Make a limit of one slot for each tag that has none; one that exists is left as it is.

    To be called before the first task with such a tag: Prefect skips a limit that does not exist
    without a word, and remembers that for five seconds.
    """
    wanted = sorted(set(tags))
    if not wanted:
        return
    with _client() as client:
        for name in wanted:
            try:
                client.read_global_concurrency_limit_by_name(f"tag:{name}")
            except ObjectNotFound:
                client.create_concurrency_limit(tag=name, concurrency_limit=1)


def api_is_private() -> bool:
    """Whether the API is a server that only runs of this user on this machine use.

    True for the temporary server beside a local run, as long as its database is the file below
    ``PREFECT_HOME``, where the locks of the lanes are too.
    """
    if os.environ.get("PREFECT_SERVER_DATABASE_CONNECTION_URL"):
        return False
    url = PREFECT_API_URL.value()
    return url is None or url == os.environ.get(PRIVATE_API)


UNRECORDED: Final = "a run that is not on record"


def free_unrecorded_slots(name: str) -> None:
    """Free the slots of a tag for which the server knows no holder.

    A server that keeps leases in memory forgets them when it ends, and their slots stay taken.
    Call it only after such a slot was seen for longer than the server needs to notice an expired
    lease (some 10 s), or it would free that one twice.
    """
    with _client() as client:
        if who_holds(name) == UNRECORDED:
            client.update_global_concurrency_limit(
                f"tag:{name}", GlobalConcurrencyLimitUpdate(active_slots=0)
            )


def who_holds(name: str) -> str | None:
    """Who has the slot of a tag, as ``flow run 'brave-fox' (task 'shop/db1/upload')``.

    None where nobody has it, :data:`UNRECORDED` where the server does not know.
    """
    with _client() as client:
        try:
            holders = client.read_concurrency_limit_by_tag(name).active_slots
            taken = client.read_global_concurrency_limit_by_name(f"tag:{name}").active_slots
        except ObjectNotFound:
            return None
        if holders:
            return _describe(client, UUID(str(holders[0])))
        return UNRECORDED if taken else None


def _describe(client: SyncPrefectClient, task_run_id: UUID) -> str:
    try:
        task_run = client.read_task_run(task_run_id)
        if task_run.flow_run_id is None:
            return f"task run {task_run.name!r}"
        flow_run = client.read_flow_run(task_run.flow_run_id)
    except ObjectNotFound:
        return f"task run {task_run_id}"
    return f"flow run {flow_run.name!r} (task {task_run.name!r})"
