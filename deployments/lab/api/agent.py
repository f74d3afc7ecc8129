"""``/nodes/N/qemu/ID/agent``, keys and the monitor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from deployments.lab.errors import ApiError, failure, not_implemented
from deployments.lab.guestos import Run
from deployments.lab.qemu import power
from deployments.lab.qemu.status import agent_enabled
from deployments.lab.routing import Call, Check, Handler, endpoint, on
from deployments.lab.schema import Schema, boolean, string

_required = string(optional=False)
VM = "/nodes/{node}/qemu/{vmid}"
ALL = "VM.GuestAgent.Unrestricted"
READ = on("/vms/{vmid}", "VM.GuestAgent.Audit", ALL, any_of=True)
EXEC = on("/vms/{vmid}", ALL)
_COMMANDS = (
    *("exec", "exec-status", "file-read", "file-write", "fsfreeze-freeze", "fsfreeze-status"),
    *("fsfreeze-thaw", "fstrim", "get-fsinfo", "get-host-name", "get-memory-block-info"),
    *("get-memory-blocks", "get-osinfo", "get-time", "get-timezone", "get-users", "get-vcpus"),
    *("info", "network-get-interfaces", "ping", "set-user-password", "shutdown", "suspend-disk"),
    *("suspend-hybrid", "suspend-ram"),
)
_SILENCE_SECONDS = 3
_WHILE_FROZEN = ("fsfreeze-freeze", "fsfreeze-status", "fsfreeze-thaw", "info", "ping")
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


async def reach(call: Call) -> Run:
    """The guest, if an agent is configured and answers; 500 otherwise, after a while of silence."""
    lab = call.lab
    values = lab.guests.load(call.node, "qemu", call.vmid).values
    if not agent_enabled(values):
        raise failure("No QEMU guest agent configured")
    run = lab.life.running(call.vmid)
    if run is None:
        raise failure(f"VM {call.vmid} is not running")
    if not lab.life.agent_answers(call.vmid):
        await asyncio.sleep(_SILENCE_SECONDS * lab.clock.scale)
        raise failure("QEMU guest agent is not running")
    if run.frozen and call.path.rpartition("/")[2] not in _WHILE_FROZEN:
        name = call.path.rpartition("/")[2]
        text = f"Command guest-{name} has been disabled: the agent is in frozen state"
        raise failure(f"Agent error: {text}")
    return run


def command(
    method: str, name: str, check: Check, schema: Schema | None = None
) -> Callable[[Handler], Handler]:
    """Register a command of the agent; none of them writes to the cluster's configuration."""
    return endpoint(method, f"{VM}/agent/{name}", schema, check=check, needs_quorum=False)


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
