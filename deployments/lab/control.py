"""``/_lab/``: the control interface for tests and rehearsals, guarded by its own token.

GET state, requests, faults; POST faults, time, storage-full, node-offline, ticket-seconds,
settle; DELETE faults, requests. The token travels in the header ``X-Lab-Token``.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from deployments.lab.cluster import Lab
from deployments.lab.faults import CallFault, TaskFault

_RULE: TypeAdapter[CallFault | TaskFault] = TypeAdapter(CallFault | TaskFault)


async def handle(lab: Lab, token: str, request: Request) -> tuple[int, dict[str, Any]]:
    """Answer one control call: HTTP status and JSON body."""
    given = request.headers.get("x-lab-token", "")
    if not hmac.compare_digest(given.encode(), token.encode()):
        return 403, {"error": "wrong control token"}
    name = request.url.path.removeprefix("/_lab/").strip("/")
    text = await request.body()
    try:
        body = json.loads(text or b"{}")
    except json.JSONDecodeError as error:
        return 400, {"error": f"no JSON: {error}"}
    try:
        return await _dispatch(lab, request.method, name, body)
    except ValidationError as error:
        return 400, {"error": str(error)}
    except (KeyError, TypeError, ValueError) as error:
        return 400, {"error": f"{type(error).__name__}: {error}"}


async def _dispatch(  # noqa: PLR0911 - one line for each call
    lab: Lab, method: str, name: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    faults = lab.faults
    if (method, name) == ("GET", "health"):
        return 200, {"ok": True, "nodes": list(lab.nodes)}
    if (method, name) == ("GET", "state"):
        return 200, state(lab)
    if (method, name) == ("GET", "requests"):
        return 200, {"requests": list(faults.requests), "counts": dict(faults.counts)}
    if (method, name) == ("DELETE", "requests"):
        faults.requests.clear()
        faults.counts.clear()
        return 200, {}
    if (method, name) == ("GET", "faults"):
        return 200, {"rules": [rule.model_dump() for rule in [*faults.calls, *faults.tasks]]}
    if (method, name) == ("POST", "faults"):
        faults.add(_RULE.validate_python(body))
        return 200, {}
    if (method, name) == ("DELETE", "faults"):
        faults.clear()
        return 200, {}
    if (method, name) == ("POST", "time"):
        lab.clock.scale = float(body.get("scale", lab.clock.scale))
        lab.clock.durations.update({k: float(v) for k, v in body.get("durations", {}).items()})
        return 200, {"scale": lab.clock.scale, "durations": lab.clock.durations}
    if (method, name) in (("POST", "storage-full"), ("POST", "node-offline")):
        marked = faults.full if name == "storage-full" else faults.offline
        (marked.add if body.get("on", True) else marked.discard)(str(body["name"]))
        return 200, {"marked": sorted(marked)}
    if (method, name) == ("POST", "quorum"):
        faults.no_quorum = bool(body.get("lost", True))
        return 200, {"quorate": lab.quorate}
    if (method, name) == ("POST", "ticket-seconds"):
        lab.access.ticket_seconds = float(body["seconds"])
        return 200, {}
    if (method, name) == ("POST", "settle"):
        await asyncio.wait_for(lab.tasks.settled(), float(body.get("timeout", 30)))
        return 200, {}
    return 404, {"error": f"no control call {method} {name}"}


def state(lab: Lab) -> dict[str, Any]:
    """Everything that exists, in one document; equal documents mean that nothing was changed."""
    volumes = sorted(
        {
            f"{'shared' if storage.config.shared else node}/{volume.volid}"
            for node in lab.nodes
            for storage in lab.storages
            if storage.serves(node)
            for volume in storage.volumes(node)
        }
    )
    guests = {
        str(vmid): {
            "node": node,
            "kind": kind,
            "config": lab.guests.file(node, kind, vmid).read_text(),
        }
        for node, kind, vmid in lab.guests.all()
    }
    return {
        "guests": guests,
        "volumes": volumes,
        "pools": {p.poolid: sorted(p.vms) for p in lab.access.pools.values()},
        "running": lab.life.describe(),
        "tasks": {
            "running": [task.upid for task in lab.tasks.running()],
            "all": len(lab.tasks.all),
        },
    }
