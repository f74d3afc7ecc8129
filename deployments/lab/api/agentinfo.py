"""The guest agent asked: system, time, users, disks, processors, freezing, shutdown.

The refusals without an agent are recorded (scenario 11); nothing of a successful answer is. Keys
follow the public schema of the QEMU guest agent 8.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from deployments.lab.api.agent import ALL, EXEC, READ, VM, command, reach
from deployments.lab.errors import failure, not_implemented
from deployments.lab.guestos import Run
from deployments.lab.programs import KERNEL_RELEASE, KERNEL_VERSION
from deployments.lab.qemu.devices import drives
from deployments.lab.qemu.status import cpu_count, memory_bytes
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import enum

_FREEZE = on("/vms/{vmid}", "VM.GuestAgent.FileSystemMgmt", ALL, any_of=True)
_FREEZE_STATUS = on(
    "/vms/{vmid}", "VM.GuestAgent.Audit", "VM.GuestAgent.FileSystemMgmt", ALL, any_of=True
)
_POWER = on("/vms/{vmid}", "VM.PowerMgmt", ALL, any_of=True)
_VERSION = "8.2.2"
_BLOCK_BYTES = 128 << 20
Answer = Callable[[Call, Run], Any]


def _ping(_call: Call, _run: Run) -> Any:
    return {}


def _interfaces(call: Call, run: Run) -> Any:
    return call.lab.life.agent_interfaces(run.vmid)


def _host_name(call: Call, run: Run) -> Any:
    name = call.lab.life.disks.open(run).read("/etc/hostname").decode(errors="replace").strip()
    return {"host-name": name}


def _os_info(call: Call, run: Run) -> Any:
    text = call.lab.life.disks.open(run).read("/etc/os-release").decode(errors="replace")
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    facts = {key: value.strip('"') for key, _, value in pairs}
    return {
        "id": facts.get("ID", "linux"),
        "name": facts.get("NAME", "Linux"),
        "pretty-name": facts.get("PRETTY_NAME", "Linux"),
        "version": facts.get("VERSION", facts.get("VERSION_ID", "")),
        "version-id": facts.get("VERSION_ID", ""),
        "machine": "x86_64",
        "kernel-release": KERNEL_RELEASE,
        "kernel-version": KERNEL_VERSION,
    }


def _time(_call: Call, _run: Run) -> Any:
    return time.time_ns()


def _time_zone(_call: Call, _run: Run) -> Any:
    return {"zone": "UTC", "offset": 0}


def _users(call: Call, run: Run) -> Any:
    return call.lab.life.logged_in(run.vmid)


def _info(_call: Call, _run: Run) -> Any:
    names = sorted({*_ANSWERS, "exec", "exec-status", "file-open", "file-read", "file-write"})
    return {
        "version": _VERSION,
        "supported_commands": [
            {"name": f"guest-{name}", "enabled": True, "success-response": name != "shutdown"}
            for name in names
        ],
    }


def _file_systems(call: Call, run: Run) -> Any:
    disk = next((d for d in drives(run.values) if d.key == run.device), None)
    if disk is None:
        return []
    storage, volume = call.lab.storages.volume(disk.file, run.node)
    size = storage.info(run.node, volume).size
    unit = int(disk.key.removeprefix(disk.bus))
    return [
        {
            "name": "vda1" if disk.bus == "virtio" else "sda1",
            "mountpoint": "/",
            "type": "xfs" if (run.mark or {}).get("family") == "redhat" else "ext4",
            "total-bytes": size * 19 // 20,
            "used-bytes": min(2 << 30, size // 4),
            "total-bytes-privileged": size,
            "disk": [
                {
                    "bus-type": disk.bus,
                    "bus": 0,
                    "target": 0,
                    "unit": unit,
                    "dev": "/dev/vda1" if disk.bus == "virtio" else "/dev/sda1",
                    "pci-controller": {"domain": 0, "bus": 0, "slot": 5, "function": 0},
                }
            ],
        }
    ]


def _processors(_call: Call, run: Run) -> Any:
    count = cpu_count(run.values)
    return [{"logical-id": n, "online": True, "can-offline": n > 0} for n in range(count)]


def _memory_blocks(_call: Call, run: Run) -> Any:
    count = max(1, memory_bytes(run.values) // _BLOCK_BYTES)
    return [{"phys-index": n, "online": True, "can-offline": True} for n in range(count)]


def _memory_block_size(_call: Call, _run: Run) -> Any:
    return {"size": _BLOCK_BYTES}


def _freeze_status(_call: Call, run: Run) -> Any:
    return "frozen" if run.frozen else "thawed"


def _freeze(call: Call, run: Run) -> Any:
    call.lab.life.freeze(run, on=True)
    return 1


def _thaw(call: Call, run: Run) -> Any:
    was = int(run.frozen)
    call.lab.life.freeze(run, on=False)
    return was


def _trim(_call: Call, _run: Run) -> Any:
    return {"paths": [{"path": "/", "minimum": 0, "trimmed": 0}]}


def _shutdown(call: Call, run: Run) -> Any:
    call.lab.life.power_from_inside(run, "off")


def _suspend(call: Call, _run: Run) -> Any:
    raise not_implemented(call.method, call.path)


_ANSWERS: dict[str, tuple[str, Answer]] = {
    "ping": ("POST", _ping),
    "network-get-interfaces": ("GET", _interfaces),
    "get-host-name": ("GET", _host_name),
    "get-osinfo": ("GET", _os_info),
    "get-time": ("GET", _time),
    "get-timezone": ("GET", _time_zone),
    "get-users": ("GET", _users),
    "info": ("GET", _info),
    "get-fsinfo": ("GET", _file_systems),
    "get-vcpus": ("GET", _processors),
    "get-memory-blocks": ("GET", _memory_blocks),
    "get-memory-block-info": ("GET", _memory_block_size),
    "fsfreeze-status": ("POST", _freeze_status),
    "fsfreeze-freeze": ("POST", _freeze),
    "fsfreeze-thaw": ("POST", _thaw),
    "fstrim": ("POST", _trim),
    "shutdown": ("POST", _shutdown),
    "suspend-disk": ("POST", _suspend),
    "suspend-hybrid": ("POST", _suspend),
    "suspend-ram": ("POST", _suspend),
}
_CHECKS = {
    "fsfreeze-status": _FREEZE_STATUS,
    "fsfreeze-freeze": _FREEZE,
    "fsfreeze-thaw": _FREEZE,
    "fstrim": _FREEZE,
    "shutdown": _POWER,
    "suspend-disk": _POWER,
    "suspend-hybrid": _POWER,
    "suspend-ram": _POWER,
}


def _register(name: str, method: str, answer: Answer) -> None:
    async def handler(call: Call) -> dict[str, Any]:
        run = await reach(call)
        return {"result": answer(call, run)}

    command(method, name, _CHECKS.get(name, READ))(handler)


for _name, (_method, _answer) in _ANSWERS.items():
    _register(_name, _method, _answer)


@endpoint(
    "POST",
    f"{VM}/agent",
    {"command": enum(*sorted(_ANSWERS), optional=False)},
    check=EXEC,
    needs_quorum=False,
)
async def agent_command(call: Call) -> dict[str, Any]:
    """The old form: the command as a parameter."""
    run = await reach(call)
    name = call.params["command"]
    if run.frozen and name not in ("fsfreeze-freeze", "fsfreeze-status", "fsfreeze-thaw"):
        raise failure(
            f"Agent error: Command guest-{name} has been disabled: the agent is in frozen state"
        )
    return {"result": _ANSWERS[name][1](call, run)}
