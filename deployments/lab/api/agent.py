"""``/nodes/N/qemu/ID/agent``, keys and the monitor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from deployments.lab.errors import ApiError, failure, not_implemented
from deployments.lab.qemu import power
from deployments.lab.qemu.status import agent_enabled
from deployments.lab.routing import Call, Check, Handler, endpoint, on
from deployments.lab.schema import Prop, Schema, boolean, integer, string

VM = "/nodes/{node}/qemu/{vmid}"
_ALL = "VM.GuestAgent.Unrestricted"
_READ = on("/vms/{vmid}", "VM.GuestAgent.Audit", _ALL, any_of=True)
_EXEC = on("/vms/{vmid}", _ALL)
_COMMANDS = (
    *("exec", "exec-status", "file-read", "file-write", "fsfreeze-freeze", "fsfreeze-status"),
    *("fsfreeze-thaw", "fstrim", "get-fsinfo", "get-host-name", "get-memory-block-info"),
    *("get-memory-blocks", "get-osinfo", "get-time", "get-timezone", "get-users", "get-vcpus"),
    *("info", "network-get-interfaces", "ping", "set-user-password", "shutdown", "suspend-disk"),
    *("suspend-hybrid", "suspend-ram"),
)
_SILENCE_SECONDS = 3
_KEYS = {
    "ret",
    "esc",
    "spc",
    "tab",
    "up",
    "down",
    "left",
    "right",
    "backspace",
    "delete",
    "home",
    "end",
}


@endpoint("GET", f"{VM}/agent", check=on("/vms/{vmid}", "VM.GuestAgent.Audit"))
async def agent_index(_call: Call) -> list[dict[str, str]]:
    """Names of the agent's commands."""
    return [{"name": name} for name in _COMMANDS]


async def _reach(call: Call) -> None:
    """500 unless an agent is configured and answers; silence takes a while to notice."""
    lab = call.lab
    values = lab.guests.load(call.node, "qemu", call.vmid).values
    if not agent_enabled(values):
        raise failure("No QEMU guest agent configured")
    if not lab.life.running(call.vmid):
        raise failure(f"VM {call.vmid} is not running")
    if not lab.life.agent_answers(call.vmid):
        await asyncio.sleep(_SILENCE_SECONDS * lab.clock.scale)
        raise failure("QEMU guest agent is not running")


def _command(
    method: str, name: str, check: Check, schema: Schema | None = None
) -> Callable[[Handler], Handler]:
    return endpoint(method, f"{VM}/agent/{name}", schema, check=check)


@_command("POST", "ping", _READ)
async def ping(call: Call) -> dict[str, Any]:
    """Whether the agent is there."""
    await _reach(call)
    return {"result": {}}


@_command("GET", "network-get-interfaces", _READ)
async def interfaces(call: Call) -> dict[str, Any]:
    """Interfaces inside the guest, loopback first."""
    await _reach(call)
    return {"result": call.lab.life.agent_interfaces(call.vmid)}


@_command("GET", "get-osinfo", _READ)
async def osinfo(call: Call) -> dict[str, Any]:
    """The installed system."""
    await _reach(call)
    return {"result": call.lab.life.agent_osinfo(call.vmid)}


@_command("GET", "get-host-name", _READ)
async def host_name(call: Call) -> dict[str, Any]:
    """The guest's host name."""
    await _reach(call)
    return {"result": {"host-name": call.lab.life.host_name(call.vmid)}}


_FILE_READ = on("/vms/{vmid}", "VM.GuestAgent.FileRead", _ALL, any_of=True)
_FILE_WRITE = on("/vms/{vmid}", "VM.GuestAgent.FileWrite", _ALL, any_of=True)
_required = string(optional=False)


@_command("GET", "file-read", _FILE_READ, {"file": _required})
async def file_read(call: Call) -> dict[str, Any]:
    """The text of a file in the guest."""
    await _reach(call)
    path = call.params["file"]
    text = call.lab.life.agent_file(call.vmid, path)
    if text is None:
        raise failure(
            f"Agent error: failed to open file '{path}' (mode: 'r'): No such file or directory"
        )
    return {"content": text, "bytes-read": len(text)}


async def _unmodelled(call: Call) -> Any:
    await _reach(call)
    raise not_implemented(call.method, call.path)


for _method, _name, _check, _schema in (
    (
        "POST",
        "exec",
        _EXEC,
        {"command": Prop("array", optional=False), "input-data": string(max_length=65536)},
    ),
    ("GET", "exec-status", _EXEC, {"pid": integer(optional=False)}),
    (
        "POST",
        "file-write",
        _FILE_WRITE,
        {
            "file": _required,
            "content": string(optional=False, max_length=61440),
            "encode": boolean(),
        },
    ),
    (
        "POST",
        "set-user-password",
        _EXEC,
        {
            "username": _required,
            "password": string(optional=False, min_length=5, max_length=1024),
            "crypted": boolean(),
        },
    ),
):
    _command(_method, _name, _check, _schema)(_unmodelled)


@endpoint(
    "PUT",
    f"{VM}/sendkey",
    {"key": _required, "skiplock": boolean()},
    check=on("/vms/{vmid}", "VM.Console"),
)
async def sendkey(call: Call) -> None:
    """Press keys; ctrl-alt-delete restarts a guest that listens."""
    power.require_running(call.lab, call.node, call.vmid)
    keys = call.params["key"].split("-")
    known = all(key in _KEYS or len(key) == 1 or key in ("ctrl", "alt", "shift") for key in keys)
    if not known:
        raise ApiError(400, "Bad Request", bare=True, content_type="application/json;charset=UTF-8")


@endpoint(
    "POST",
    f"{VM}/monitor",
    {"command": _required},
    check=on("/", "Sys.Audit", "Sys.Modify", any_of=True),
)
async def monitor(call: Call) -> str:
    """The one monitor command that the lab models: ``info status``."""
    power.require_running(call.lab, call.node, call.vmid)
    if call.params["command"] != "info status":
        raise not_implemented(call.method, call.path)
    run = call.lab.life.running(call.vmid)
    return f"VM status: {run.qmp_status if run else 'stopped'}\r\n"
