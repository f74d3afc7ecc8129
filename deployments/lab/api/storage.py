"""``/nodes/N/storage``: status, content, volumes."""

from __future__ import annotations

import asyncio
from typing import Any

from deployments.lab import formats
from deployments.lab.errors import ApiError, bad_parameter, failure
from deployments.lab.images import NotQcow2Error
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import boolean, integer, string
from deployments.lab.storage import FILE_FORMATS, Storage, Volume, require_storage
from deployments.lab.tasks import Task

_SEE = ("Datastore.Audit", "Datastore.AllocateSpace")
_SUBDIRS = (
    *("content", "download-url", "file-restore", "identity", "import-metadata"),
    *("oci-registry-pull", "prunebackups", "rrd", "rrddata", "status", "upload"),
)


def _status_row(call: Call, storage: Storage) -> dict[str, Any]:
    used, total = call.lab.usage(storage, call.node)
    return {
        "active": 1,
        "avail": total - used,
        "content": storage.content_text(),
        "enabled": int(not storage.config.disabled),
        "shared": int(bool(storage.config.shared)),
        "total": total,
        "type": storage.config.type,
        "used": used,
    }


@endpoint(
    "GET",
    "/nodes/{node}/storage",
    {
        "storage": string(formats.storage_id),
        "content": string(formats.content_list),
        "enabled": boolean(),
        "target": string(formats.node_name),
        "format": boolean(),
    },
)
async def storages(call: Call) -> list[dict[str, Any]]:
    """Storages of the node that the caller may see."""
    wanted = set(formats.split_list(call.params.get("content", "")))
    target = call.params.get("target")
    rows = []
    for storage in call.lab.storages:
        if not storage.serves(call.node) or call.params.get("storage") not in (None, storage.id):
            continue
        if wanted and not wanted & set(storage.config.content):
            continue
        if (
            target
            and target != call.node
            and not (storage.serves(target) and storage.config.shared)
        ):
            continue
        if call.params.get("enabled") and storage.config.disabled:
            continue
        if not call.has(f"/storage/{storage.id}", *_SEE, any_of=True):
            continue
        row = _status_row(call, storage) | {"storage": storage.id}
        row["used_fraction"] = row["used"] / row["total"] if row["total"] else 0
        if call.params.get("format"):
            row |= _format_info(storage)
        rows.append(row)
    return rows


def _format_info(storage: Storage) -> dict[str, Any]:
    known = {"raw": 1} if storage.block else FILE_FORMATS
    return {
        "format": [known, "raw"],
        "formats": {"default": "raw", "supported": sorted(known)},
    }


@endpoint(
    "GET", "/nodes/{node}/storage/{storage}", check=on("/storage/{storage}", *_SEE, any_of=True)
)
async def storage_index(_call: Call) -> list[dict[str, str]]:
    """Names below a storage."""
    return [{"subdir": name} for name in _SUBDIRS]


@endpoint(
    "GET",
    "/nodes/{node}/storage/{storage}/status",
    check=on("/storage/{storage}", *_SEE, any_of=True),
)
async def storage_status(call: Call) -> dict[str, Any]:
    """Space and content types."""
    return _status_row(call, require_storage(call.lab.storages, call.uri["storage"], call.node))


@endpoint(
    "GET",
    "/nodes/{node}/storage/{storage}/content",
    {"content": string(formats.content_list), "vmid": string(formats.vmid)},
    check=on("/storage/{storage}", *_SEE, any_of=True),
)
async def content(call: Call) -> list[dict[str, Any]]:
    """Volumes, cut by content type and owner; import volumes stay whoever is asked for."""
    storage = call.lab.storages.get(call.uri["storage"], call.node)
    wanted = formats.split_list(call.params.get("content", "")) or storage.config.content
    rows = []
    for volume in storage.volumes(call.node):
        row = _content_row(call, storage, volume)
        if row["content"] not in wanted or row["content"] not in storage.config.content:
            continue
        foreign = str(volume.vmid) != call.params.get("vmid", str(volume.vmid))
        if foreign and row["content"] != "import":
            continue
        if not _may_see(call, storage, volume):
            continue
        rows.append(row)
    return rows


def _may_see(call: Call, storage: Storage, volume: Volume) -> bool:
    if volume.vmid is None:
        return True
    return call.has(f"/storage/{storage.id}", "Datastore.Allocate") or call.has(
        f"/vms/{volume.vmid}", "VM.Audit"
    )


def _content_row(call: Call, storage: Storage, volume: Volume) -> dict[str, Any]:
    file = storage.file(call.node, volume)
    stat = file.stat()
    ctime: int | str = int(stat.st_ctime)
    row: dict[str, Any] = {
        "content": volume.vtype,
        "ctime": str(ctime) if storage.block else ctime,
        "format": "snippet" if volume.vtype == "snippets" else volume.format,
        "size": stat.st_size,
        "volid": volume.volid,
    }
    if volume.vtype != "images":
        return row
    place = call.lab.guests.locate(volume.vmid or 0)
    if place is not None and place[1] == "lxc":
        row["content"] = "rootdir"
    row["vmid"] = volume.vmid
    info = storage.info(call.node, volume)
    row["size"] = info.size
    if not storage.block:
        row |= {"parent": info.backing, "used": info.used}
    return row


def _named_volume(call: Call) -> tuple[Storage, Volume]:
    storage_id, name = call.uri["storage"], call.uri["volume"]
    prefix, colon, rest = name.partition(":")
    if colon:
        if prefix != storage_id:
            raise bad_parameter(volume=f"storage ID mismatch ({prefix} != {storage_id})\n")
        name = rest
    storage = call.lab.storages.get(storage_id, call.node)
    return storage, storage.parse(name)


@endpoint("GET", "/nodes/{node}/storage/{storage}/content/{volume}")
async def volume_info(call: Call) -> dict[str, Any]:
    """Size, real use and path of one volume."""
    storage, volume = _named_volume(call)
    if not call.has(f"/storage/{storage.id}", *_SEE, any_of=True):
        call.require(f"/storage/{storage.id}", "Datastore.Audit")
    try:
        info = storage.info(call.node, volume)
    except (FileNotFoundError, NotQcow2Error):
        raise failure(f"volume_size_info on '{volume.volid}' failed - no format") from None
    return {
        "format": info.format if volume.vtype != "vztmpl" else volume.format,
        "path": storage.shown_path(volume),
        "size": info.size,
        "used": info.used,
    }


@endpoint("DELETE", "/nodes/{node}/storage/{storage}/content/{volume}", {"delay": integer(1, 30)})
async def volume_delete(call: Call) -> str | None:
    """Remove a volume in a task; with ``delay`` a quick removal answers null."""
    storage, volume = _named_volume(call)
    if volume.vmid is None or not call.has(f"/vms/{volume.vmid}", "VM.Config.Disk"):
        call.require(f"/storage/{storage.id}", "Datastore.Allocate")
    node, lab = call.node, call.lab
    task_id = f"{volume.vmid}@{storage.id}" if volume.vmid else storage.id

    async def work(task: Task) -> None:
        await lab.clock.work("imgdel")
        if volume.is_template_base and linked_clones(storage, node, volume):
            raise failure(f"base volume '{volume.name}' is still in use by linked clones")
        task.log(*storage.free(node, volume))
        task.log(f"Removed volume '{volume.volid}'")

    upid = lab.tasks.start(node, "imgdel", task_id, call.who, work)
    if "delay" not in call.params:
        return upid
    deadline = asyncio.get_running_loop().time() + float(call.params["delay"])
    while asyncio.get_running_loop().time() < deadline:
        done = lab.tasks.all[upid]
        if done.exitstatus is not None:
            if done.failed:
                raise ApiError(500, done.exitstatus)
            return None
        await asyncio.sleep(0.02)
    return upid


def linked_clones(storage: Storage, node: str, base: Volume) -> list[Volume]:
    """Volumes that need ``base``."""
    return [volume for volume in storage.volumes(node) if volume.base == base.name]
