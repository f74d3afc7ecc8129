"""Rows of guests, nodes and storages as the cluster-wide lists show them."""

from __future__ import annotations

import time
from typing import Any

from deployments.lab.access import Pool
from deployments.lab.cluster import Lab
from deployments.lab.guests import Kind
from deployments.lab.lxc.config import row as container_row
from deployments.lab.qemu.status import qemu_row

_LIST_KEYS = (
    *("cpu", "disk", "diskread", "diskwrite", "maxdisk", "maxmem", "mem", "memhost"),
    *("netin", "netout", "uptime"),
)


class Broadcast:
    """Status values as other nodes know them: renewed in a cycle, unknown for new guests."""

    def __init__(self) -> None:
        self._stamp = -1.0
        self._seen: dict[int, dict[str, Any]] = {}

    def rows(self, lab: Lab) -> dict[int, dict[str, Any]]:
        """Rows of all guests as of the last cycle."""
        if self._stamp < 0 or time.monotonic() - self._stamp >= lab.clock.seconds("resources"):
            self._seen = {
                vmid: live_row(lab, node, kind, vmid) for node, kind, vmid in lab.guests.all()
            }
            self._stamp = time.monotonic()
        return self._seen


def live_row(lab: Lab, node: str, kind: Kind, vmid: int) -> dict[str, Any]:
    """The present state of a guest."""
    if kind == "lxc":
        return container_row(lab, node, vmid)
    return qemu_row(lab, node, vmid)


def guest_row(lab: Lab, node: str, kind: Kind, vmid: int) -> dict[str, Any]:
    """One guest as ``/cluster/resources`` shows it, without its pool."""
    config = lab.guests.load(node, kind, vmid).values
    row: dict[str, Any] = {
        "id": f"{kind}/{vmid}",
        "node": node,
        "type": kind,
        "vmid": vmid,
        "status": "unknown",
        "template": int(config.get("template", "0")),
    }
    if config.get("tags", "").strip():
        row["tags"] = config["tags"]
    if config.get("lock"):
        row["lock"] = config["lock"]
    known = lab.life.broadcast.rows(lab).get(vmid)
    if known is None or not lab.online(node):
        return row
    row["status"] = known["status"]
    row["name"] = known["name"]
    row["maxcpu"] = known["cpus"]
    row |= {key: known.get(key, 0) for key in _LIST_KEYS}
    return row


def pool_members(lab: Lab, pool: Pool) -> list[dict[str, Any]]:
    """Guests and storages of a pool."""
    rows: list[dict[str, Any]] = []
    for vmid in sorted(pool.vms):
        place = lab.guests.locate(vmid)
        if place is not None:
            row = guest_row(lab, place[0], place[1], vmid)
            row.pop("tags", None)
            rows.append(row)
    for name in pool.storages:
        rows += [row for row in storage_rows(lab) if row["storage"] == name]
    return rows


def node_row(lab: Lab, name: str) -> dict[str, Any]:
    """One node as ``/cluster/resources`` shows it to those who may see numbers."""
    row: dict[str, Any] = {"id": f"node/{name}", "node": name, "type": "node", "level": ""}
    if not lab.online(name):
        return row | {"status": "offline"}
    node = lab.nodes[name]
    return row | {
        "status": "online",
        "cgroup-mode": 2,
        "cpu": 0.01,
        "maxcpu": node.cores,
        "mem": used_memory(lab, name),
        "maxmem": node.memory,
        "disk": 8 << 30,
        "maxdisk": 94 << 30,
        "uptime": int(time.time() - lab.born) + 86400,
    }


def used_memory(lab: Lab, name: str) -> int:
    """Bytes in use on a node: the host's share and what its running guests have."""
    return (2 << 30) + lab.life.memory_in_use(name)


def storage_rows(lab: Lab) -> list[dict[str, Any]]:
    """All storages of all nodes."""
    rows = []
    for node in lab.nodes:
        for storage in lab.storages:
            if not storage.serves(node) or storage.config.disabled:
                continue
            row: dict[str, Any] = {
                "id": f"storage/{node}/{storage.id}",
                "node": node,
                "storage": storage.id,
                "type": "storage",
                "plugintype": storage.config.type,
                "content": storage.content_text(),
                "shared": int(bool(storage.config.shared)),
                "status": "unknown",
            }
            if lab.online(node):
                used, total = lab.usage(storage, node)
                row |= {"status": "available", "disk": used, "maxdisk": total}
            rows.append(row)
    return rows
