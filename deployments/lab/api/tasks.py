"""``/nodes/N/tasks``: lists, status, logs, interruption."""

from __future__ import annotations

from typing import Any

from deployments.lab import formats
from deployments.lab.errors import bad_parameter, bad_parameters
from deployments.lab.routing import Call, endpoint
from deployments.lab.schema import boolean, enum, integer, string
from deployments.lab.tasks import Task


def _state_word(task: Task) -> str:
    if task.exitstatus is None or task.exitstatus == "unexpected status":
        return "unknown"
    if task.exitstatus == "OK":
        return "ok"
    return "error" if task.failed else "warning"


def _archived(task: Task) -> dict[str, Any]:
    return {
        "endtime": task.endtime,
        "id": task.id,
        "node": task.node,
        "pid": task.pid,
        "pstart": task.pstart,
        "starttime": task.starttime,
        "status": task.exitstatus,
        "type": task.type,
        "upid": task.upid,
    } | task.identity_fields()


def _active(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "node": task.node,
        "pid": task.pid,
        "pstart": task.pstart,
        "saved": "0",
        "starttime": task.starttime,
        "status": "RUNNING",
        "type": task.type,
        "upid": task.upid,
        "user": task.authid,
    }


@endpoint(
    "GET",
    "/nodes/{node}/tasks",
    {
        "start": integer(0),
        "limit": integer(0),
        "userfilter": string(),
        "typefilter": string(),
        "vmid": string(formats.vmid),
        "errors": boolean(),
        "source": enum("archive", "active", "all"),
        "since": integer(),
        "until": integer(),
        "statusfilter": string(formats.task_status_list),
    },
)
async def task_list(call: Call) -> list[dict[str, Any]]:
    """Tasks of the node, newest first; others' tasks need Sys.Audit."""
    source = call.params.get("source", "archive")
    auditor = call.has(f"/nodes/{call.node}", "Sys.Audit")
    rows = []
    for task in call.lab.tasks.newest_first(call.node):
        if not auditor and not task.owned_by(call.who.authid):
            continue
        if not _wanted(task, call.params):
            continue
        if task.exitstatus is None and source in ("active", "all"):
            rows.append(_active(task))
        elif task.exitstatus is not None and source in ("archive", "all"):
            rows.append(_archived(task))
    start, limit = call.params.get("start", 0), call.params.get("limit", 50)
    if rows:
        call.extra["total"] = len(rows)
    return rows[start : start + limit if limit else None]


def _wanted(task: Task, params: dict[str, Any]) -> bool:
    if "vmid" in params and task.id != params["vmid"]:
        return False
    if "typefilter" in params and task.type != params["typefilter"]:
        return False
    if "userfilter" in params and params["userfilter"].lower() not in task.authid.lower():
        return False
    if task.starttime < params.get("since", 0) or task.starttime > params.get("until", 1 << 40):
        return False
    if params.get("errors") and not task.failed:
        return False
    words = formats.split_list(params.get("statusfilter", ""))
    return not words or _state_word(task) in words


def _own_or(call: Call, task: Task | None, privilege: str) -> None:
    if task is None or not task.owned_by(call.who.authid):
        call.require(f"/nodes/{call.node}", privilege)


@endpoint("GET", "/nodes/{node}/tasks/{upid}")
async def task_index(_call: Call) -> list[dict[str, str]]:
    """Names below a task."""
    return [{"name": "log"}, {"name": "status"}]


@endpoint("GET", "/nodes/{node}/tasks/{upid}/status")
async def task_status(call: Call) -> dict[str, Any]:
    """Whether it runs, else how it ended."""
    task = call.lab.tasks.find(call.uri["upid"])
    _own_or(call, task, "Sys.Audit")
    if task is None:
        raise bad_parameter(upid="no such task")
    row: dict[str, Any] = {
        "id": task.id,
        "node": task.node,
        "pid": task.pid,
        "pstart": task.pstart,
        "starttime": task.starttime,
        "status": "running" if task.exitstatus is None else "stopped",
        "type": task.type,
        "upid": task.upid,
    } | task.identity_fields()
    if task.exitstatus is not None:
        row["exitstatus"] = task.exitstatus
    return row


@endpoint(
    "GET",
    "/nodes/{node}/tasks/{upid}/log",
    {"start": integer(0), "limit": integer(0), "download": boolean()},
)
async def task_log(call: Call) -> list[dict[str, Any]]:
    """Lines of the log; an unknown task has one line that says so."""
    task = call.lab.tasks.find(call.uri["upid"])
    _own_or(call, task, "Sys.Audit")
    if call.params.get("download"):
        raise bad_parameters({"download": "the lab does not model downloads of logs"})
    lines = task.full_log() if task else ["unable to open file - No such file or directory"]
    call.extra["total"] = len(lines)
    start, limit = call.params.get("start", 0), call.params.get("limit", 50)
    rows = [{"n": number, "t": text} for number, text in enumerate(lines, 1)]
    return rows[start : start + limit if limit else None]


@endpoint("DELETE", "/nodes/{node}/tasks/{upid}")
async def task_stop(call: Call) -> None:
    """Interrupt; nothing happens to a finished task."""
    task = call.lab.tasks.find(call.uri["upid"])
    _own_or(call, task, "Sys.Modify")
    if task is None:
        raise bad_parameter(upid="no such task")
    await call.lab.tasks.stop(task.upid)
