"""``/cluster/resources``: the list that everybody polls.

The text of an answer is kept for each caller until something in it changes, and the text of a
guest's row until that guest changes, so that thousands of guests can be polled often.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from deployments.lab.api.rows import guest_row, node_row, storage_rows
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig
from deployments.lab.guests import Listed
from deployments.lab.routing import Call, JsonBody, endpoint
from deployments.lab.schema import enum

_ANSWERS_KEPT = 64
_CYCLE_SECONDS = 10


@dataclass
class _Row:
    """A guest's row as text, and what it was made from."""

    config: GuestConfig
    node: str
    live: dict[str, Any] | None
    pool: str | None
    online: bool
    text: str

    def made_from(
        self, guest: Listed, live: dict[str, Any] | None, pool: str | None, online: bool
    ) -> bool:
        """Whether the text is still right. Configurations and rows are compared by identity."""
        return (
            self.config is guest.config
            and self.live is live
            and self.pool == pool
            and self.online == online
            and self.node == guest.node
        )


@dataclass
class Resources:
    """What is kept between calls."""

    answers: dict[tuple[Any, ...], tuple[tuple[Any, ...], JsonBody]] = field(default_factory=dict)
    guests: dict[int, _Row] = field(default_factory=dict)

    def answer(self, call: Call) -> JsonBody:
        """The whole list for the caller."""
        lab = call.lab
        asked = (call.who.authid, call.params.get("type"))
        made_from = (
            lab.guests.listed(),
            lab.life.broadcast.rows(lab),
            lab.access.version,
            frozenset(lab.faults.offline),
            frozenset(lab.faults.full),
            [lab.recent_usage(storage, node) for storage in lab.storages for node in lab.nodes],
            int(time.time()) // _CYCLE_SECONDS,
        )
        kept = self.answers.get(asked)
        if kept is not None and _same(kept[0], made_from):
            return kept[1]
        if len(self.answers) >= _ANSWERS_KEPT:
            self.answers.clear()
        made = JsonBody(f'{{"data":[{",".join(self._parts(call))}]}}'.encode())
        self.answers[asked] = (made_from, made)
        return made

    def _parts(self, call: Call) -> list[str]:
        wanted = call.params.get("type")
        rows: list[dict[str, Any]] = []
        if wanted is None:
            rows += _pool_rows(call)
        if wanted in (None, "sdn"):
            rows += _sdn_rows(call)
        if wanted in (None, "node"):
            rows += _node_rows(call)
        parts = [json.dumps(row) for row in rows]
        if wanted in (None, "vm"):
            parts += self._guests(call)
        if wanted in (None, "storage"):
            parts += [json.dumps(row) for row in _storage_rows(call)]
        return parts

    def _guests(self, call: Call) -> list[str]:
        lab = call.lab
        listed = lab.guests.listed()
        live = lab.life.broadcast.rows(lab)
        if len(self.guests) > 2 * len(listed):
            self.guests.clear()
        pools = lab.access.pools_of_guests()
        seen = lab.access.sees_guests(call.who)
        return [
            self._guest(lab, guest, live.get(guest.vmid), pools.get(guest.vmid))
            for guest in listed
            if seen(guest.vmid)
        ]

    def _guest(self, lab: Lab, guest: Listed, live: dict[str, Any] | None, pool: str | None) -> str:
        online = lab.online(guest.node)
        kept = self.guests.get(guest.vmid)
        if kept is not None and kept.made_from(guest, live, pool, online):
            return kept.text
        row = guest_row(lab, guest, live)
        if pool is not None:
            row["pool"] = pool
        text = json.dumps(row)
        self.guests[guest.vmid] = _Row(guest.config, guest.node, live, pool, online, text)
        return text


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Guests and live rows by identity, the rest by value."""
    return one[0] is other[0] and one[1] is other[1] and one[2:] == other[2:]


@endpoint("GET", "/cluster/resources", {"type": enum("vm", "storage", "node", "sdn")})
async def resources(call: Call) -> JsonBody:
    """Everything the caller may see; the rest is left out silently."""
    return call.lab.part(Resources).answer(call)


def _pool_rows(call: Call) -> list[dict[str, Any]]:
    return [
        {"id": f"/pool/{name}", "pool": name, "type": "pool"}
        for name in sorted(call.lab.access.pools)
        if call.has(f"/pool/{name}", "Pool.Audit")
    ]


def _sdn_rows(call: Call) -> list[dict[str, Any]]:
    if not call.has("/sdn/zones/localnetwork", "SDN.Audit", "SDN.Use", any_of=True):
        return []
    return [
        {
            "id": f"network/{name}/zone/localnetwork",
            "network": "localnetwork",
            "network-type": "zone",
            "node": name,
            "status": "ok" if call.lab.online(name) else "unknown",
            "type": "network",
        }
        for name in call.lab.nodes
    ]


def _node_rows(call: Call) -> list[dict[str, Any]]:
    rows = []
    for name in call.lab.nodes:
        row = node_row(call.lab, name)
        if not call.has(f"/nodes/{name}", "Sys.Audit"):
            kept = ("cgroup-mode", "id", "level", "node", "status", "type")
            row = {key: row[key] for key in kept if key in row}
        rows.append(row)
    return rows


def _storage_rows(call: Call) -> list[dict[str, Any]]:
    return [
        row
        for row in storage_rows(call.lab)
        if call.has(
            f"/storage/{row['storage']}", "Datastore.Audit", "Datastore.AllocateSpace", any_of=True
        )
    ]
