"""``/nodes/N/lxc/ID/move_volume`` and ``feature``.

Nothing here was recorded; order and texts follow the public source of pve-container 6.
"""

from __future__ import annotations

from typing import Any

from deployments.lab import formats
from deployments.lab.errors import bad_parameters, failure
from deployments.lab.guests import check_lock
from deployments.lab.lxc.options import MOUNT_KEYS, UNUSED_KEYS
from deployments.lab.lxc.volumes import Mount, copy_volume, mounts
from deployments.lab.qemu import snapshots
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import boolean, enum, number, string
from deployments.lab.tasks import Task

CT = "/nodes/{node}/lxc/{vmid}"
_CHANGED = "detected modified configuration - file changed by other user? Try again."


@endpoint(
    "POST",
    f"{CT}/move_volume",
    {
        "volume": enum(*MOUNT_KEYS, *UNUSED_KEYS, optional=False),
        "storage": string(formats.storage_id),
        "delete": boolean(),
        "digest": string(max_length=40),
        "bwlimit": number(0),
        "target-vmid": string(formats.vmid, modelled=False),
        "target-volume": enum(*MOUNT_KEYS, *UNUSED_KEYS, modelled=False),
        "target-digest": string(max_length=40, modelled=False),
    },
    check=on("/vms/{vmid}", "VM.Config.Disk"),
)
async def move(call: Call) -> str:
    """Move a volume of a stopped container to another storage in a task."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    key = params["volume"]
    if "storage" not in params:
        missing = "both 'storage' and 'target-vmid' missing, either needs to be set"
        raise bad_parameters({"storage": missing, "target-vmid": missing})
    call.require(f"/storage/{params['storage']}", "Datastore.AllocateSpace")
    async with lab.guests.lock(vmid, "lxc"):
        config = lab.guests.load(node, "lxc", vmid)
        check_lock(config, "lxc")
        if lab.life.running(vmid):
            raise failure("cannot move volumes of a running container")
        if key in UNUSED_KEYS:
            why = "only configured volumes can be moved to another storage"
            raise failure(f"cannot move volume '{key}', {why}")
        mount = next((m for m in mounts(config.values) if m.key == key), None)
        if mount is None:
            raise failure(f"unable to parse mountpoint '{key}' - no such volume")
        held = [m.volume for s in config.snapshots.values() for m in mounts(s)]
        if params.get("delete") and mount.volume in held:
            raise failure("you can't move a volume with snapshots and delete the source")
        if params.get("digest") not in (None, config.digest()):
            raise failure(_CHANGED)
        config.values["lock"] = "disk"
        lab.guests.save(node, "lxc", vmid, config)

    async def work(task: Task) -> None:
        try:
            await _move(call, mount, task)
        finally:
            now = lab.guests.load(node, "lxc", vmid)
            now.values.pop("lock", None)
            lab.guests.save(node, "lxc", vmid, now)

    return lab.tasks.start(node, "move_volume", str(vmid), call.who, work)


async def _move(call: Call, mount: Mount, task: Task) -> None:
    lab, node, vmid = call.lab, call.node, call.vmid
    target = lab.storages.get(call.params["storage"], node)
    if "rootdir" not in target.config.content:
        raise failure(f"storage '{target.id}' does not support container directories")
    origin = lab.storages.volume(mount.volume, node)
    made = copy_volume(lab, node, vmid, origin, target, task.log)
    try:
        await lab.clock.work("qmmove")
    except BaseException:
        target.free(node, made)
        raise
    async with lab.guests.lock(vmid, "lxc"):
        now = lab.guests.load(node, "lxc", vmid)
        size = target.info(node, made).size
        now.values[mount.key] = mount.with_volume(made.volid, size).text()
        if call.params.get("delete"):
            task.log(*origin[0].free(node, origin[1]))
        else:
            free = next(name for name in UNUSED_KEYS if name not in now.values)
            now.values[free] = mount.volume
        lab.guests.save(node, "lxc", vmid, now)


@endpoint(
    "GET",
    f"{CT}/feature",
    {"feature": enum("snapshot", "clone", "copy", optional=False), "snapname": string()},
    check=on("/vms/{vmid}", "VM.Audit"),
)
async def feature(call: Call) -> dict[str, Any]:
    """Whether all volumes of a container can be snapshotted, linked or copied."""
    lab = call.lab
    config = lab.guests.load(call.node, "lxc", call.vmid)
    name = call.params.get("snapname")
    values = snapshots.require(config, name) if name else config.values
    found = [lab.storages.volume(mount.volume, call.node) for mount in mounts(values)]
    able = {
        "copy": True,
        "snapshot": all(storage.block for storage, _ in found),
        "clone": all(s.block and (v.is_template_base or bool(name)) for s, v in found),
    }
    return {"hasFeature": int(able[call.params["feature"]])}
