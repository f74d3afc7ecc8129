"""``/nodes/N/qemu/ID``: snapshots, templates, clones, moved disks, cloud-init."""

from __future__ import annotations

from typing import Any

from deployments.lab import formats
from deployments.lab.conffile import GuestConfig
from deployments.lab.errors import ApiError, bad_parameters, failure, forbidden, not_implemented
from deployments.lab.guests import check_lock
from deployments.lab.qemu import cloudinit, power, snapshots
from deployments.lab.qemu.clone import (
    CloneOrder,
    check_linked,
    clone_values,
    make_base,
    move_disk,
)
from deployments.lab.qemu.devices import drives, is_drive_key, parse_drive
from deployments.lab.qemu.options import CLOUDINIT_KEYS, DISK_KEYS, UNUSED_KEYS, typed
from deployments.lab.qemu.permissions import check_inherited
from deployments.lab.qemu.volumes import NO_FILE
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import boolean, enum, integer, string
from deployments.lab.tasks import Task

VM = "/nodes/{node}/qemu/{vmid}"
SNAPSHOT = f"{VM}/snapshot/{{snapname}}"
_SNAPNAME = string(formats.config_id, max_length=40, optional=False)
_AUDIT = on("/vms/{vmid}", "VM.Audit")
_SNAP = on("/vms/{vmid}", "VM.Snapshot")
_SNAP_ANY = on("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback", any_of=True)


@endpoint("GET", f"{VM}/snapshot", check=_AUDIT)
async def snapshot_list(call: Call) -> list[dict[str, Any]]:
    """Snapshots, the pseudo entry ``current`` last."""
    config = call.lab.guests.load(call.node, "qemu", call.vmid)
    return snapshots.listing(call.lab, call.vmid, config)


@endpoint(
    "POST",
    f"{VM}/snapshot",
    {"snapname": _SNAPNAME, "description": string(), "vmstate": boolean()},
    check=_SNAP,
)
async def snapshot_create(call: Call) -> str:
    """Take a snapshot in a task; memory of running machines is not modelled."""
    lab, node, vmid = call.lab, call.node, call.vmid
    lab.guests.load(node, "qemu", vmid)
    name = call.params["snapname"]
    if name in snapshots.RESERVED_NAMES:
        raise failure(f"unable to use snapshot name '{name}' (reserved name)")
    if call.params.get("vmstate") and lab.life.running(vmid):
        raise not_implemented(call.method, call.path)

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid):
            config = lab.guests.load(node, "qemu", vmid)
            text = call.params.get("description", "")
            await lab.clock.work("qmsnapshot")
            snapshots.create(lab, node, vmid, config, name, text, task)
            lab.guests.save(node, "qemu", vmid, config)

    return lab.tasks.start(node, "qmsnapshot", str(vmid), call.who, work)


@endpoint("GET", SNAPSHOT, check=_SNAP_ANY)
async def snapshot_index(_call: Call) -> list[dict[str, str]]:
    """Names below a snapshot."""
    return [{"cmd": "rollback"}, {"cmd": "config"}]


@endpoint("GET", f"{SNAPSHOT}/config", check=_SNAP_ANY)
async def snapshot_config(call: Call) -> dict[str, Any]:
    """The configuration kept in a snapshot."""
    config = call.lab.guests.load(call.node, "qemu", call.vmid)
    section = snapshots.require(config, call.uri["snapname"])
    return {key: typed(key, value) for key, value in section.items()}


@endpoint("PUT", f"{SNAPSHOT}/config", {"description": string()}, check=_SNAP)
async def snapshot_update(call: Call) -> None:
    """Change a snapshot's description."""
    async with call.lab.guests.lock(call.vmid):
        config = call.lab.guests.load(call.node, "qemu", call.vmid)
        section = snapshots.require(config, call.uri["snapname"])
        if "description" in call.params:
            section["description"] = call.params["description"]
        call.lab.guests.save(call.node, "qemu", call.vmid, config)


@endpoint("DELETE", SNAPSHOT, {"force": boolean()}, check=_SNAP)
async def snapshot_delete(call: Call) -> str:
    """Delete a snapshot in a task."""
    lab, node, vmid = call.lab, call.node, call.vmid

    async def work(_task: Task) -> None:
        async with lab.guests.lock(vmid):
            config = lab.guests.load(node, "qemu", vmid)
            check_lock(config)
            await lab.clock.work("qmdelsnapshot")
            snapshots.remove(lab, node, config, call.uri["snapname"])
            lab.guests.save(node, "qemu", vmid, config)

    return lab.tasks.start(node, "qmdelsnapshot", str(vmid), call.who, work)


@endpoint("POST", f"{SNAPSHOT}/rollback", {"start": boolean()}, check=_SNAP_ANY)
async def snapshot_rollback(call: Call) -> str:
    """Go back to a snapshot in a task; a running machine is stopped, ``start`` starts it."""
    lab, node, vmid = call.lab, call.node, call.vmid

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid):
            config = lab.guests.load(node, "qemu", vmid)
            snapshots.require(config, call.uri["snapname"])
            check_lock(config)
            if lab.life.running(vmid):
                lab.life.power_off(vmid)
            await lab.clock.work("qmrollback")
            snapshots.rollback(lab, node, vmid, config, call.uri["snapname"])
            lab.guests.save(node, "qemu", vmid, config)
        if call.params.get("start"):
            await power.start(lab, node, vmid, task)

    return lab.tasks.start(node, "qmrollback", str(vmid), call.who, work)


@endpoint(
    "GET",
    f"{VM}/feature",
    {"feature": enum("snapshot", "clone", "copy", optional=False), "snapname": string()},
    check=_AUDIT,
)
async def feature(call: Call) -> dict[str, Any]:
    """Whether the disks can be snapshotted, linked or copied."""
    values = call.lab.guests.load(call.node, "qemu", call.vmid).values
    wanted = call.params["feature"]
    able = True
    if wanted == "snapshot":
        able = snapshots.can_snapshot(call.lab, call.node, values)
    elif wanted == "clone":
        try:
            check_linked(call.lab, call.node, CloneOrder(0, values, full=False))
        except ApiError:
            able = False
    found = [d for d in drives(values) if d.file not in NO_FILE]
    places = [call.lab.storages.volume(d.file, call.node)[0] for d in found]
    everywhere = all(storage.config.shared for storage in places)
    nodes = list(call.lab.nodes) if everywhere else [call.node]
    return {"hasFeature": int(able), "nodes": nodes}


@endpoint(
    "POST",
    f"{VM}/template",
    {"disk": enum(*DISK_KEYS)},
    check=on("/vms/{vmid}", "VM.Allocate"),
)
async def template(call: Call) -> str:
    """Turn a stopped machine into a template in a task."""
    lab, node, vmid = call.lab, call.node, call.vmid
    config = lab.guests.load(node, "qemu", vmid)
    check_lock(config)
    _check_template(call, config)

    async def work(_task: Task) -> None:
        async with lab.guests.lock(vmid):
            now = lab.guests.load(node, "qemu", vmid)
            check_lock(now)
            _check_template(call, now)
            await lab.clock.work("qmtemplate")
            make_base(lab, node, now, call.params.get("disk"))
            lab.guests.save(node, "qemu", vmid, now)

    return lab.tasks.start(node, "qmtemplate", str(vmid), call.who, work)


def _check_template(call: Call, config: GuestConfig) -> None:
    if config.snapshots:
        raise failure("unable to create template, because VM contains snapshots")
    if config.values.get("template") == "1" and "disk" not in call.params:
        raise failure("you can't convert a template to a template")
    if call.lab.life.running(call.vmid):
        raise failure("you can't convert a VM to template if VM is running")


def _check_clone(call: Call) -> None:
    call.require(f"/vms/{call.uri['vmid']}", "VM.Clone")
    pool = call.raw.get("pool")
    newid = call.raw.get("newid")
    if call.has(f"/vms/{newid}", "VM.Allocate"):
        return
    if pool and call.has(f"/pool/{pool}", "VM.Allocate"):
        return
    raise forbidden()


@endpoint(
    "POST",
    f"{VM}/clone",
    {
        "newid": string(formats.vmid, optional=False),
        "name": string(formats.dns_name),
        "description": string(),
        "pool": string(formats.pool_id),
        "snapname": string(formats.config_id, max_length=40),
        "storage": string(formats.storage_id),
        "format": enum("raw", "qcow2", "vmdk"),
        "full": boolean(),
        "target": string(formats.node_name),
        "bwlimit": integer(0),
    },
    check=_check_clone,
)
async def clone(call: Call) -> str:
    """Clone in a task: linked from a template unless ``full``, else full."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    newid, pool, target = int(params["newid"]), params.get("pool"), params.get("target", call.node)
    if pool is not None and pool not in lab.access.pools:
        raise forbidden(f"pool '{pool}' does not exist")
    if target not in lab.nodes:
        raise failure(f"no such cluster node '{target}'")
    if "storage" in params:
        wanted = lab.storages.get(params["storage"], node)
        if target != node and not lab.storages.get(wanted.id, target).config.shared:
            raise failure(f"can't clone to non-shared storage '{wanted.id}'")
    config = power.require_known(lab, node, vmid)
    check_lock(config)
    order = _clone_order(call, config)
    if lab.guests.locate(newid) is not None:
        raise failure(f"unable to create VM {newid}: config file already exists")
    if not order.full:
        for name in ("storage", "format"):
            if name in params:
                raise failure(f"parameter '{name}' not allowed for linked clones")
        check_linked(lab, node, order)
    _check_target(call, order, target)
    check_inherited(call, order.values)
    for drive in drives(order.values):
        if not drive.is_cdrom or drive.is_cloudinit:
            storage = order.storage or drive.file.partition(":")[0]
            call.require(f"/storage/{storage}", "Datastore.AllocateSpace")
    lab.guests.save(target, "qemu", newid, GuestConfig({"lock": "clone"}))

    async def work(task: Task) -> None:
        try:
            shared = not lab.life.running(vmid)
            async with lab.guests.lock(vmid, shared=shared), lab.guests.lock(newid):
                values = await clone_values(lab, node, vmid, order, task.log)
        except BaseException:
            lab.guests.delete(target, "qemu", newid)
            raise
        lab.guests.save(target, "qemu", newid, GuestConfig(values))
        if pool is not None:
            lab.access.pools[pool].vms.append(newid)
            lab.access.save()

    return lab.tasks.start(node, "qmclone", str(vmid), call.who, work)


def _clone_order(call: Call, config: GuestConfig) -> CloneOrder:
    params = call.params
    values, name = config.values, params.get("snapname")
    if name is not None:
        values = snapshots.require(config, name)
    is_template = config.values.get("template") == "1"
    return CloneOrder(
        int(params["newid"]),
        values,
        bool(params.get("full", 0 if is_template else 1)),
        params.get("name"),
        params.get("description"),
        params.get("storage"),
        params.get("format"),
        name,
    )


def _check_target(call: Call, order: CloneOrder, target: str) -> None:
    if target == call.node:
        return
    for drive in drives(order.values):
        if drive.file in NO_FILE:
            continue
        if not call.lab.storages.get(drive.file.partition(":")[0]).config.shared:
            raise failure(f"can't clone VM to node '{target}' (VM uses local storage)")


@endpoint(
    "POST",
    f"{VM}/move_disk",
    {
        "disk": enum(*DISK_KEYS, *UNUSED_KEYS, optional=False),
        "storage": string(formats.storage_id),
        "format": enum("raw", "qcow2", "vmdk"),
        "delete": boolean(),
        "digest": string(max_length=40),
        "bwlimit": integer(0),
        "target-vmid": string(formats.vmid, modelled=False),
        "target-disk": enum(*DISK_KEYS, *UNUSED_KEYS, modelled=False),
        "target-digest": string(max_length=40, modelled=False),
    },
    check=on("/vms/{vmid}", "VM.Config.Disk"),
)
async def move(call: Call) -> str:
    """Move a disk to another storage or format in a task; the source stays unless ``delete``."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    if "storage" not in params:
        missing = "both 'storage' and 'target-vmid' missing, either needs to be set"
        raise bad_parameters({"storage": missing, "target-vmid": missing})
    target = lab.storages.get(params["storage"], node)
    call.require(f"/storage/{target.id}", "Datastore.AllocateSpace")
    key = params["disk"]
    config = lab.guests.load(node, "qemu", vmid)
    digest = params.get("digest")
    if digest and digest != config.digest():
        raise failure("checksum mismatch (file change by other user?)")
    check_lock(config)
    if key not in config.values or not is_drive_key(key):
        raise failure(f"disk '{key}' does not exist")
    drive = parse_drive(key, config.values[key])
    if drive.is_cdrom and not drive.is_cloudinit:
        raise failure("you can't move a cdrom")
    origin, source = lab.storages.volume(drive.file, node)
    if origin.id == target.id and params.get("format") in (None, source.format):
        raise failure("you can't move to the same storage with same format")

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid):
            now = lab.guests.load(node, "qemu", vmid)
            check_lock(now)
            old = parse_drive(key, now.values[key])
            moved, storage, volume = move_disk(
                lab, node, vmid, old, target, params.get("format"), task.log
            )
            await lab.clock.work("qmmove")
            now.values[key] = moved.text()
            if params.get("delete"):
                task.log(f"removing source volume '{volume.volid}' after successful copy")
                storage.free(node, volume)
            else:
                free = next(name for name in UNUSED_KEYS if name not in now.values)
                task.log(f"adding source volume '{volume.volid}' as '{free}' to config")
                now.values[free] = volume.volid
            lab.guests.save(node, "qemu", vmid, now)

    return lab.tasks.start(node, "qmmove", str(vmid), call.who, work)


@endpoint("GET", f"{VM}/cloudinit", check=_AUDIT)
async def cloudinit_list(call: Call) -> list[dict[str, Any]]:
    """Cloud-init options, addresses left out as the real list does."""
    values = call.lab.guests.load(call.node, "qemu", call.vmid).values
    shown = (key for key in sorted(CLOUDINIT_KEYS) if not key.startswith("ipconfig"))
    return [
        {"key": key, "value": "**********" if key == "cipassword" else values[key]}
        for key in shown
        if key in values
    ]


@endpoint("PUT", f"{VM}/cloudinit", check=on("/vms/{vmid}", "VM.Config.Cloudinit"))
async def cloudinit_write(call: Call) -> None:
    """Write the cloud-init drive anew."""
    async with call.lab.guests.lock(call.vmid):
        config = call.lab.guests.load(call.node, "qemu", call.vmid)
        check_lock(config)
        power.check_snippets(call.lab, call.node, config.values)


@endpoint(
    "GET",
    f"{VM}/cloudinit/dump",
    {"type": enum("user", "network", "meta", optional=False)},
    check=_AUDIT,
)
async def cloudinit_dump(call: Call) -> str:
    """One document of the cloud-init drive; ``cicustom`` is ignored."""
    values = call.lab.guests.load(call.node, "qemu", call.vmid).values
    if call.params["type"] == "user":
        return cloudinit.user_data(call.vmid, values)
    if call.params["type"] == "network":
        return cloudinit.network_data(values)
    return cloudinit.meta_data(call.vmid, values)
