"""``/nodes/N/lxc/ID``: snapshots, clones and templates of containers."""

from __future__ import annotations

import time
from typing import Any

from deployments.lab import formats, images
from deployments.lab.api.lxc import start_container, stop_container
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig, Section
from deployments.lab.errors import failure, forbidden
from deployments.lab.guests import check_lock
from deployments.lab.lxc.config import complete_net
from deployments.lab.lxc.options import NET_KEYS, UNUSED_KEYS, shown
from deployments.lab.lxc.volumes import copy_volume, mounts, owned
from deployments.lab.qemu import snapshots
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import boolean, number, string
from deployments.lab.storage import Storage, Volume
from deployments.lab.tasks import Task

CT = "/nodes/{node}/lxc/{vmid}"
SNAPSHOT = f"{CT}/snapshot/{{snapname}}"
_RESERVED = (*snapshots.RESERVED_NAMES, "vzdump")
_SNAP = on("/vms/{vmid}", "VM.Snapshot")
_SNAP_ANY = on("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback", any_of=True)
_NETS = frozenset(NET_KEYS)


def _disks(lab: Lab, node: str, values: Section) -> list[tuple[Storage, Volume]]:
    return [lab.storages.volume(mount.volume, node) for mount in mounts(values)]


@endpoint("GET", f"{CT}/snapshot", check=on("/vms/{vmid}", "VM.Audit"))
async def snapshot_list(call: Call) -> list[dict[str, Any]]:
    """Snapshots, the pseudo entry ``current`` last."""
    config = call.lab.guests.load(call.node, "lxc", call.vmid)
    rows = snapshots.listing(call.lab, call.vmid, config)
    for row in rows[:-1]:
        row.pop("vmstate")
        row["description"] = shown("description", row["description"])
    return rows


@endpoint(
    "POST",
    f"{CT}/snapshot",
    {"snapname": string(formats.config_id, max_length=40, optional=False), "description": string()},
    check=_SNAP,
)
async def snapshot_create(call: Call) -> str:
    """Take a snapshot in a task."""
    lab, node, vmid, name = call.lab, call.node, call.vmid, call.params["snapname"]
    lab.guests.load(node, "lxc", vmid)
    if name in _RESERVED:
        raise failure(f"unable to use snapshot name '{name}' (reserved name)")

    async def work(_task: Task) -> None:
        async with lab.guests.lock(vmid, "lxc"):
            config = lab.guests.load(node, "lxc", vmid)
            if config.values.get("template") == "1":
                raise failure("you can't take a snapshot if it's a template")
            check_lock(config, "lxc")
            if name in config.snapshots:
                raise failure(f"snapshot name '{name}' already used")
            disks = _disks(lab, node, config.values)
            if not all(storage.block for storage, _ in disks):
                raise failure("snapshot feature is not available")
            await lab.clock.work("qmsnapshot")
            for storage, volume in disks:
                snapshots.save_state(storage, node, volume, name)
            section = {
                key: value
                for key, value in config.values.items()
                if key not in ("lock", "description") and not key.startswith("unused")
            }
            section["snaptime"] = str(int(time.time()))
            if call.params.get("description"):
                section["description"] = call.params["description"].rstrip("\n")
            config.snapshots[name] = section
            config.values["parent"] = name
            lab.guests.save(node, "lxc", vmid, config)

    return lab.tasks.start(node, "vzsnapshot", str(vmid), call.who, work)


@endpoint("GET", f"{SNAPSHOT}/config", check=_SNAP_ANY)
async def snapshot_config(call: Call) -> dict[str, Any]:
    """The configuration kept in a snapshot."""
    config = call.lab.guests.load(call.node, "lxc", call.vmid)
    section = snapshots.require(config, call.uri["snapname"])
    return {key: shown(key, value) for key, value in section.items()}


@endpoint("PUT", f"{SNAPSHOT}/config", {"description": string()}, check=_SNAP)
async def snapshot_update(call: Call) -> None:
    """Change a snapshot's description."""
    async with call.lab.guests.lock(call.vmid, "lxc"):
        config = call.lab.guests.load(call.node, "lxc", call.vmid)
        section = snapshots.require(config, call.uri["snapname"])
        if "description" in call.params:
            section["description"] = call.params["description"].rstrip("\n")
        call.lab.guests.save(call.node, "lxc", call.vmid, config)


@endpoint("DELETE", SNAPSHOT, {"force": boolean()}, check=_SNAP)
async def snapshot_delete(call: Call) -> str:
    """Delete a snapshot in a task."""
    lab, node, vmid, name = call.lab, call.node, call.vmid, call.uri["snapname"]

    async def work(_task: Task) -> None:
        async with lab.guests.lock(vmid, "lxc"):
            config = lab.guests.load(node, "lxc", vmid)
            check_lock(config, "lxc")
            section = snapshots.require(config, name)
            await lab.clock.work("qmdelsnapshot")
            for storage, volume in _disks(lab, node, section):
                snapshots.drop_state(storage, node, volume, name)
            snapshots.unhook(config, name)
            lab.guests.save(node, "lxc", vmid, config)

    return lab.tasks.start(node, "vzdelsnapshot", str(vmid), call.who, work)


@endpoint("POST", f"{SNAPSHOT}/rollback", {"start": boolean()}, check=_SNAP_ANY)
async def snapshot_rollback(call: Call) -> str:
    """Go back to a snapshot in a task; a running container is stopped."""
    lab, node, vmid, name = call.lab, call.node, call.vmid, call.uri["snapname"]

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid, "lxc"):
            config = lab.guests.load(node, "lxc", vmid)
            section = snapshots.require(config, name)
            check_lock(config, "lxc")
            if lab.life.running(vmid):
                stop_container(lab, node, vmid)
            await lab.clock.work("qmrollback")
            for storage, volume in _disks(lab, node, section):
                snapshots.restore_state(storage, node, volume, name)
            _restore(lab, node, vmid, config, section, name)
            lab.guests.save(node, "lxc", vmid, config)
        if call.params.get("start"):
            await start_container(lab, node, vmid, task)

    return lab.tasks.start(node, "vzrollback", str(vmid), call.who, work)


def _restore(
    lab: Lab, node: str, vmid: int, config: GuestConfig, section: Section, name: str
) -> None:
    before = owned(lab, node, vmid, config.values)
    values = {k: v for k, v in section.items() if k not in ("snaptime", "description")}
    values["parent"] = name
    if "description" in config.values:
        values["description"] = config.values["description"]
    kept = {volume.volid for _, volume in owned(lab, node, vmid, values)}
    for _, volume in before:
        if volume.volid not in kept:
            values[next(key for key in UNUSED_KEYS if key not in values)] = volume.volid
    config.values = values
    config.pending.clear()
    config.pending_delete.clear()


@endpoint("POST", f"{CT}/template", check=on("/vms/{vmid}", "VM.Allocate"))
async def template(call: Call) -> None:
    """Turn a stopped container into a template; a task runs, but the answer is null."""
    lab, node, vmid = call.lab, call.node, call.vmid
    config = lab.guests.load(node, "lxc", vmid)
    check_lock(config, "lxc")
    if config.snapshots:
        raise failure("unable to create template, because CT contains snapshots")
    if config.values.get("template") == "1":
        raise failure("you can't convert a template to a template")
    if lab.life.running(vmid):
        raise failure("you can't convert a CT to template if the CT is running")

    async def work(_task: Task) -> None:
        async with lab.guests.lock(vmid, "lxc"):
            now = lab.guests.load(node, "lxc", vmid)
            for mount in mounts(now.values):
                storage, volume = lab.storages.volume(mount.volume, node)
                head, slash, last = volume.name.rpartition("/")
                base = storage.parse(f"{head}{slash}{last.replace('vm-', 'base-', 1)}")
                storage.file(node, volume).rename(storage.file(node, base))
                size = storage.info(node, base).size
                now.values[mount.key] = mount.with_volume(base.volid, size).text()
            now.values["template"] = "1"
            lab.guests.save(node, "lxc", vmid, now)

    lab.tasks.start(node, "vztemplate", str(vmid), call.who, work)


def _check_clone(call: Call) -> None:
    call.require(f"/vms/{call.uri['vmid']}", "VM.Clone")
    newid, pool = call.raw.get("newid"), call.raw.get("pool")
    if call.has(f"/vms/{newid}", "VM.Allocate"):
        return
    if not (pool and call.has(f"/pool/{pool}", "VM.Allocate")):
        raise forbidden()


@endpoint(
    "POST",
    f"{CT}/clone",
    {
        "newid": string(formats.vmid, optional=False),
        "hostname": string(formats.dns_name),
        "description": string(),
        "pool": string(formats.pool_id),
        "snapname": string(formats.config_id, max_length=40),
        "storage": string(formats.storage_id),
        "full": boolean(),
        "target": string(formats.node_name),
        "bwlimit": number(0),
    },
    check=_check_clone,
)
async def clone(call: Call) -> str:
    """Clone in a task: linked from a template unless ``full``, else full."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    newid, pool = int(params["newid"]), params.get("pool")
    goal = str(params.get("target", node))
    if goal not in lab.nodes:
        raise failure(f"no such cluster node '{goal}'")
    if pool is not None and pool not in lab.access.pools:
        raise forbidden(f"pool '{pool}' does not exist")
    config = lab.guests.load(node, "lxc", vmid)
    check_lock(config, "lxc")
    name = params.get("snapname")
    values = snapshots.require(config, name) if name else config.values
    is_template = config.values.get("template") == "1"
    full = bool(params.get("full", 0 if is_template else 1))
    place = lab.guests.locate(newid)
    if place is not None:
        kind = "CT" if place[1] == "lxc" else "VM"
        raise failure(f"{kind} {newid} already exists on node '{place[0]}'")
    if not full:
        if "storage" in params:
            raise failure("parameter 'storage' not allowed for linked clones")
        for storage, volume in _disks(lab, node, values):
            if not storage.block or not (volume.is_template_base or name):
                text = f"Linked clone feature for '{volume.volid}' is not available"
                raise failure(text)
    target = lab.storages.get(params["storage"], node) if "storage" in params else None
    if goal != node:
        _check_goal(lab, goal, target, _disks(lab, node, values))
    for storage, _ in _disks(lab, node, values):
        call.require(f"/storage/{(target or storage).id}", "Datastore.AllocateSpace")
    lab.guests.save(goal, "lxc", newid, GuestConfig({"lock": "create"}))

    async def work(task: Task) -> None:
        task.log(f"creating a clone of container {vmid} with ID {newid}")
        try:
            async with lab.guests.lock(vmid, "lxc"):
                made = _clone_values(call, newid, values, full, target, task)
                await lab.clock.work("qmclone")
        except BaseException:
            lab.guests.delete(goal, "lxc", newid)
            raise
        lab.guests.save(goal, "lxc", newid, GuestConfig(made))
        if pool is not None:
            lab.access.pools[pool].vms.append(newid)
            lab.access.save()

    return lab.tasks.start(node, "vzclone", str(vmid), call.who, work)


def _check_goal(
    lab: Lab, goal: str, target: Storage | None, disks: list[tuple[Storage, Volume]]
) -> None:
    """Another node is allowed on shared storage only (not recorded, from the public source)."""
    if target is not None:
        lab.storages.get(target.id, goal)
        if not target.config.shared:
            raise failure(f"can't clone to non-shared storage '{target.id}'")
    if not all((target or storage).config.shared for storage, _ in disks):
        raise failure(f"can't clone CT to node '{goal}' (CT uses local storage)")


def _clone_values(
    call: Call, newid: int, values: Section, full: bool, target: Storage | None, task: Task
) -> Section:
    lab, node = call.lab, call.node
    dropped = ("template", "parent", "lock", "snaptime")
    made = {
        key: complete_net(text, fresh=True) if key in _NETS else text
        for key, text in values.items()
        if key not in dropped and not key.startswith("unused")
    }
    for mount in mounts(values):
        storage, volume = lab.storages.volume(mount.volume, node)
        if full:
            task.log(f"create full clone of mountpoint {mount.key} ({volume.volid})")
            place = target or storage
            copied = copy_volume(lab, node, newid, (storage, volume), place, task.log)
            size = place.info(node, copied).size
        else:
            task.log(f"create linked clone of mount point {mount.key} ({volume.volid})")
            copied = storage.next_name(node, newid, "raw")
            size = storage.info(node, volume).size
            storage.allocate(node, copied, size)
            mark = images.read_mark(storage.file(node, volume))
            images.replace_mark(storage.file(node, copied), mark)
        made[mount.key] = mount.with_volume(copied.volid, size).text()
    made["hostname"] = call.params.get("hostname", f"CT{newid}")
    if "description" in call.params:
        made["description"] = call.params["description"].rstrip("\n")
    return made
