"""``/_lab/``: the control interface for tests and rehearsals, guarded by its own token.

GET health, state, requests, faults, time; POST faults, seed, time, storage-full, node-offline,
quorum, acpi, ticket-seconds, settle; DELETE faults, requests. The token travels in the header
``X-Lab-Token``. All of it is described in docs/lab.md.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request

from deployments.lab.cluster import Lab


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
    except TimeoutError:
        return 504, {"error": "tasks still run"}
    except (KeyError, TypeError, ValueError) as error:
        return 400, {"error": f"{type(error).__name__}: {error}"}


async def _dispatch(
    lab: Lab, method: str, name: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    act = ACTS.get((method, name))
    if act is None:
        return 404, {"error": f"no control call {method} {name}"}
    found = act(lab, body)
    return 200, await found if inspect.isawaitable(found) else found


def _health(lab: Lab, _body: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, "nodes": list(lab.nodes)}


def _requests(lab: Lab, _body: dict[str, Any]) -> dict[str, Any]:
    return {"requests": list(lab.faults.requests), "counts": dict(lab.faults.counts)}


def _forget_requests(lab: Lab, _body: dict[str, Any]) -> dict[str, Any]:
    lab.faults.forget()
    return {}


def _order(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    from deployments.lab.faultrules import parse_rule

    lab.faults.add(parse_rule(body))
    return {}


def _peace(lab: Lab, _body: dict[str, Any]) -> dict[str, Any]:
    lab.faults.clear()
    return {}


def _reseed(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    lab.faults.reseed(int(body["seed"]))
    return {"seed": lab.faults.seed}


def _time(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    scale = float(body.get("scale", lab.clock.scale))
    durations = {key: float(value) for key, value in body.get("durations", {}).items()}
    if min(scale, *durations.values(), 0) < 0:
        raise ValueError("time does not run backwards")
    lab.clock.set(scale, durations)
    return {"scale": lab.clock.scale, "durations": lab.clock.durations}


def _storage_full(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    known = [storage.id for storage in lab.storages]
    return _switch(lab, "storage-full", body, known, lab.faults.full)


def _node_offline(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    return _switch(lab, "node-offline", body, list(lab.nodes), lab.faults.offline)


def _switch(
    lab: Lab, what: str, body: dict[str, Any], known: list[str], marked: set[str]
) -> dict[str, Any]:
    """Mark a storage as full or a node as offline, or take the mark away; all marks of the kind."""
    name, on = str(body["name"]), bool(body.get("on", True))
    if name not in known:
        raise ValueError(f"there is no {name}, only {', '.join(known)}")
    (marked.add if on else marked.discard)(name)
    lab.faults.log(what, "on" if on else "off", name=name)
    return {"marked": sorted(marked)}


def _quorum(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    lab.faults.no_quorum = bool(body.get("lost", True))
    lab.faults.log("quorum", "lost" if lab.faults.no_quorum else "back")
    return {"quorate": lab.quorate}


def _acpi(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    from deployments.lab.guestmanners import Manner

    seconds = body.get("seconds")
    manner = Manner(bool(body.get("never", False)), None if seconds is None else float(seconds))
    lab.life.acpi.set(int(body["vmid"]), manner)
    return vars(manner)


def _ticket_seconds(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    lab.access.ticket_seconds = float(body["seconds"])
    lab.faults.log("tickets", f"live {lab.access.ticket_seconds:g} s")
    return {}


async def _settle(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    await asyncio.wait_for(lab.tasks.settled(), float(body.get("timeout", 30)))
    return {}


def troubles(lab: Lab, _body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Orders that still stand, and what came of earlier ones."""
    faults = lab.faults
    return {
        "rules": [rule.model_dump() for rule in faults.rules()],
        "injected": list(faults.injected),
        "seed": faults.seed,
        "offline": sorted(faults.offline),
        "full": sorted(faults.full),
        "no_quorum": faults.no_quorum,
        "ticket_seconds": lab.access.ticket_seconds,
    }


def state(lab: Lab, _body: dict[str, Any] | None = None) -> dict[str, Any]:
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
        "mappings": {name: vars(mapping) for name, mapping in lab.mappings},
        "running": lab.life.describe(),
        "tasks": {
            "running": [task.upid for task in lab.tasks.running()],
            "all": len(lab.tasks.all),
        },
    }


_Act = Callable[[Lab, dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]
ACTS: dict[tuple[str, str], _Act] = {
    ("GET", "health"): _health,
    ("GET", "state"): state,
    ("GET", "requests"): _requests,
    ("DELETE", "requests"): _forget_requests,
    ("GET", "faults"): troubles,
    ("POST", "faults"): _order,
    ("DELETE", "faults"): _peace,
    ("POST", "seed"): _reseed,
    ("GET", "time"): _time,
    ("POST", "time"): _time,
    ("POST", "storage-full"): _storage_full,
    ("POST", "node-offline"): _node_offline,
    ("POST", "quorum"): _quorum,
    ("POST", "acpi"): _acpi,
    ("POST", "ticket-seconds"): _ticket_seconds,
    ("POST", "settle"): _settle,
}
