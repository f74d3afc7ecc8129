"""``/version``, ``/nodes`` (list), ``/cluster`` and ``/storage``."""

from __future__ import annotations

import hashlib
from typing import Any

from deployments.lab import formats
from deployments.lab.api.rows import node_row
from deployments.lab.cluster import RELEASE, REPOID, VERSION
from deployments.lab.errors import bad_parameter
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import enum, string


@endpoint("GET", "/version")
async def version(_call: Call) -> dict[str, str]:
    """Release of the API."""
    return {"release": RELEASE, "repoid": REPOID, "version": VERSION}


@endpoint("GET", "/nodes")
async def nodes(call: Call) -> list[dict[str, Any]]:
    """Nodes; numbers only for those with Sys.Audit."""
    rows = []
    for name in call.lab.nodes:
        full = node_row(call.lab, name)
        full.pop("cgroup-mode", None)
        full["ssl_fingerprint"] = call.lab.web.get("fingerprint", "")
        if call.has(f"/nodes/{name}", "Sys.Audit"):
            rows.append(full)
        else:
            rows.append({key: full[key] for key in ("id", "level", "node", "status", "type")})
    return rows


@endpoint("GET", "/cluster/status", check=on("/", "Sys.Audit"))
async def cluster_status(call: Call) -> list[dict[str, Any]]:
    """Quorum and membership; a stand-alone host has no cluster row."""
    lab = call.lab
    rows: list[dict[str, Any]] = []
    if lab.clustered:
        rows.append(
            {
                "id": "cluster",
                "type": "cluster",
                "name": lab.config.name,
                "nodes": len(lab.nodes),
                "quorate": int(lab.quorate),
                "version": len(lab.nodes),
            }
        )
    for index, node in enumerate(lab.nodes.values()):
        rows.append(
            {
                "id": f"node/{node.name}",
                "type": "node",
                "name": node.name,
                "ip": node.ip,
                "level": "",
                "local": int(node.name == lab.local_node),
                "nodeid": index + 1 if lab.clustered else 0,
                "online": int(lab.online(node.name)),
            }
        )
    return rows


@endpoint("GET", "/cluster/nextid", {"vmid": string(formats.vmid)})
async def nextid(call: Call) -> str:
    """The lowest free guest id, as text; or whether a given one is free."""
    taken = {vmid for _, _, vmid in call.lab.guests.all()}
    if "vmid" in call.params:
        vmid = int(call.params["vmid"])
        if vmid in taken:
            raise bad_parameter(vmid=f"VM {vmid} already exists")
        return str(vmid)
    return str(next(n for n in range(100, 1_000_000) if n not in taken))


@endpoint("GET", "/cluster/tasks")
async def cluster_tasks(call: Call) -> list[dict[str, Any]]:
    """Recent tasks of all nodes: running ones and a few finished ones.

    Those of others take Sys.Audit on ``/``; a token without it does not even see its own.
    """
    rows: list[dict[str, Any]] = []
    all_seen = call.has("/", "Sys.Audit")
    for task in call.lab.tasks.newest_first():
        if not all_seen and task.user != call.who.authid:
            continue
        row: dict[str, Any] = {
            "id": task.id,
            "node": task.node,
            "saved": "1" if task.exitstatus else "0",
            "starttime": task.starttime,
            "type": task.type,
            "upid": task.upid,
        } | task.identity_fields()
        if task.exitstatus is not None:
            row |= {"endtime": task.endtime, "status": task.exitstatus}
        rows.append(row)
    return rows[:25]


@endpoint(
    "GET", "/storage", {"type": enum("dir", "lvmthin", "lvm", "nfs", "zfspool", "rbd", "cifs")}
)
async def storage_list(call: Call) -> list[dict[str, Any]]:
    """Storage definitions the caller may see."""
    return [
        _with_digest(call, storage.public_config())
        for storage in call.lab.storages
        if call.params.get("type") in (None, storage.config.type)
        and call.has(
            f"/storage/{storage.id}", "Datastore.Audit", "Datastore.AllocateSpace", any_of=True
        )
    ]


@endpoint("GET", "/storage/{storage}", check=on("/storage/{storage}", "Datastore.Allocate"))
async def storage_read(call: Call) -> dict[str, Any]:
    """One storage definition."""
    return _with_digest(call, call.lab.storages.get(call.uri["storage"]).public_config())


def _with_digest(call: Call, shown: dict[str, Any]) -> dict[str, Any]:
    text = repr(call.lab.storages.dump())
    return shown | {"digest": hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()}
