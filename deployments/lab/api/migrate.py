"""``/nodes/N/{qemu,lxc}/ID/migrate``: preconditions and the move to another node.

Nothing here was recorded; parameters, checks and texts follow the public API documentation and
sources.
"""

from __future__ import annotations

from typing import Any

from deployments.lab import formats
from deployments.lab.api.lxc import start_container, stop_container
from deployments.lab.errors import bad_parameters, failure
from deployments.lab.guests import check_lock
from deployments.lab.lxc import migrate as containers
from deployments.lab.migration import check_map_text, check_target_node, storage_map_of
from deployments.lab.qemu import migrate as machines
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import boolean, enum, integer, number, string
from deployments.lab.tasks import Task

VM = "/nodes/{node}/qemu/{vmid}"
CT = "/nodes/{node}/lxc/{vmid}"
_MIGRATE = on("/vms/{vmid}", "VM.Migrate")
_TARGET = {"target": string(formats.node_name, optional=False)}
_NO_IMAGES = "storage '{}' does not support vm images"
_NO_ROOTDIR = "storage '{}' does not support CT rootdirs"
_ROOT_ONLY = ("force", "migration_type", "migration_network")


@endpoint("GET", f"{VM}/migrate", {"target": string(formats.node_name)}, check=_MIGRATE)
async def vm_preconditions(call: Call) -> dict[str, Any]:
    """Whether and where a machine can go."""
    call.lab.require_quorum()
    config = call.lab.guests.load(call.node, "qemu", call.vmid)
    check_lock(config)
    return machines.preconditions(call.lab, call.node, call.vmid, config)


@endpoint(
    "POST",
    f"{VM}/migrate",
    {
        **_TARGET,
        "online": boolean(),
        "force": boolean(),
        "migration_type": enum("secure", "insecure"),
        "migration_network": string(formats.cidr),
        "with-local-disks": boolean(),
        "targetstorage": string(check_map_text),
        "bwlimit": integer(0),
        "with-conntrack-state": boolean(),
    },
    check=_MIGRATE,
)
async def vm_migrate(call: Call) -> str:
    """Move a machine in a task."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    target = check_target_node(call)
    for name in _ROOT_ONLY:
        if params.get(name) and not call.who.is_root:
            raise bad_parameters({name: "Only root may use this option."})
    config = lab.guests.load(node, "qemu", vmid)
    check_lock(config)
    running = lab.life.running(vmid) is not None
    if running and not params.get("online"):
        raise failure("can't migrate running VM without --online")
    mapped = storage_map_of(call, "targetstorage", "images", target, _NO_IMAGES)
    if mapped.identity or "targetstorage" not in params:
        machines.check_available(lab, node, target, config.values)
    order = machines.Order(
        target,
        running and bool(params.get("online")),
        bool(params.get("with-local-disks")),
        bool(params.get("force")),
        mapped,
    )

    async def work(task: Task) -> None:
        await machines.migrate(lab, node, vmid, order, task)

    return lab.tasks.start(node, "qmigrate", str(vmid), call.who, work)


@endpoint("GET", f"{CT}/migrate", {"target": string(formats.node_name)}, check=_MIGRATE)
async def ct_preconditions(call: Call) -> dict[str, Any]:
    """Where a container can go."""
    call.lab.require_quorum()
    check_lock(call.lab.guests.load(call.node, "lxc", call.vmid), "lxc")
    return containers.preconditions(call.lab, call.node, call.vmid)


@endpoint(
    "POST",
    f"{CT}/migrate",
    {
        **_TARGET,
        "online": boolean(),
        "restart": boolean(),
        "timeout": integer(),
        "target-storage": string(check_map_text),
        "bwlimit": number(0),
    },
    check=_MIGRATE,
)
async def ct_migrate(call: Call) -> str:
    """Move a container in a task; ``restart`` stops a running one and starts it there."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    target = check_target_node(call)
    lab.guests.load(node, "lxc", vmid)
    if lab.life.running(vmid) and not (params.get("online") or params.get("restart")):
        raise failure("can't migrate running container without --online or --restart")
    mapped = storage_map_of(call, "target-storage", "rootdir", target, _NO_ROOTDIR)

    async def work(task: Task) -> None:
        async def stop(where: str) -> None:
            await lab.clock.work("acpi")
            stop_container(lab, where, vmid)

        async def start(where: str) -> None:
            await start_container(lab, where, vmid, task, locked=True)

        order = containers.Order(
            target, stop, start, bool(params.get("online")), bool(params.get("restart")), mapped
        )
        await containers.migrate(lab, node, vmid, order, task)

    return lab.tasks.start(node, "vzmigrate", str(vmid), call.who, work)
