"""Rows of guests, nodes and storages as the cluster-wide lists show them."""

from __future__ import annotations

import time
from typing import Any

from deployments.lab.access import Pool
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig
from deployments.lab.guests import Listed
from deployments.lab.lxc.config import row as container_row
from deployments.lab.qemu.status import qemu_row

_LIST_KEYS = (
    *("cpu", "disk", "diskread", "diskwrite", "maxdisk", "maxmem", "mem", "memhost"),
    *("netin", "netout", "uptime"),
)
_REAL_CYCLE_SECONDS = 10


class Broadcast:
    """Status values as other nodes know them: renewed in a cycle, unknown for new guests.

    A lab whose cycle takes no time renews the row of a guest when something about the guest has
    changed, and all rows as often as a real cluster does.
    """

    def __init__(self) -> None:
        self._stamp = -1.0
        self._guests: list[Listed] = []
        self._version = -1
        self._made: dict[int, tuple[GuestConfig, int, dict[str, Any]]] = {}
        self._seen: dict[int, dict[str, Any]] = {}

    def rows(self, lab: Lab) -> dict[int, dict[str, Any]]:
        """Rows of all guests as of the last cycle; the same object until the next."""
        cycle = lab.clock.seconds("resources")
        age = time.monotonic() - self._stamp
        due = self._stamp < 0 or age >= (cycle or _REAL_CYCLE_SECONDS)
        if cycle and not due:
            return self._seen
        guests = lab.guests.listed()
        if not due and guests is self._guests and lab.life.version == self._version:
            return self._seen
        if due:
            self._made.clear()
            self._stamp = time.monotonic()
        self._seen = {guest.vmid: self._row(lab, guest) for guest in guests}
        self._guests, self._version = guests, lab.life.version
        return self._seen

    def _row(self, lab: Lab, guest: Listed) -> dict[str, Any]:
        changed = lab.life.changed(guest.vmid)
        made = self._made.get(guest.vmid)
        if made is not None and made[0] is guest.config and made[1] == changed:
            return made[2]
        row = live_row(lab, guest)
        self._made[guest.vmid] = (guest.config, lab.life.changed(guest.vmid), row)
        return row


def live_row(lab: Lab, guest: Listed) -> dict[str, Any]:
    """The present state of a guest."""
    values = guest.config.values
    if guest.kind == "lxc":
        return container_row(lab, guest.node, guest.vmid, values)
    return qemu_row(lab, guest.node, guest.vmid, values=values)


def guest_row(lab: Lab, guest: Listed, known: dict[str, Any] | None) -> dict[str, Any]:
    """One guest as ``/cluster/resources`` shows it, without its pool.

    ``known`` is its row of the last broadcast, None when there was none yet.
    """
    config = guest.config.values
    row: dict[str, Any] = {
        "id": f"{guest.kind}/{guest.vmid}",
        "node": guest.node,
        "type": guest.kind,
        "vmid": guest.vmid,
        "status": "unknown",
        "template": int(config.get("template", "0")),
    }
    if config.get("tags", "").strip():
        row["tags"] = config["tags"]
    if config.get("lock"):
        row["lock"] = config["lock"]
    if known is None or not lab.online(guest.node):
        return row
    row["status"] = known["status"]
    row["name"] = known["name"]
    row["maxcpu"] = known["cpus"]
    row |= {key: known.get(key, 0) for key in _LIST_KEYS}
    return row


def pool_members(lab: Lab, pool: Pool) -> list[dict[str, Any]]:
    """Guests and storages of a pool."""
    rows: list[dict[str, Any]] = []
    members = set(pool.vms)
    known = lab.life.broadcast.rows(lab)
    for guest in sorted(lab.guests.listed(), key=lambda guest: guest.vmid):
        if guest.vmid in members:
            row = guest_row(lab, guest, known.get(guest.vmid))
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
                used, total = lab.recent_usage(storage, node)
                row |= {"status": "available", "disk": used, "maxdisk": total}
            rows.append(row)
    return rows
