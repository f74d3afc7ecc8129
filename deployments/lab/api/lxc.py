"""``/nodes/N/lxc``: reading only; what is missing answers 501."""

from __future__ import annotations

from typing import Any

from deployments.lab.routing import Call, endpoint, on


@endpoint("GET", "/nodes/{node}/lxc")
async def ct_list(call: Call) -> list[dict[str, Any]]:
    """Containers of the node that the caller may see."""
    from deployments.lab.api.rows import live_row

    return [
        {"vmid": vmid, "type": "lxc"} | live_row(call.lab, call.node, "lxc", vmid)
        for _, _, vmid in call.lab.guests.all(call.node, "lxc")
        if call.has(f"/vms/{vmid}", "VM.Audit")
    ]


@endpoint("GET", "/nodes/{node}/lxc/{vmid}/config", check=on("/vms/{vmid}", "VM.Audit"))
async def config_read(call: Call) -> dict[str, Any]:
    """The configuration of a container."""
    config = call.lab.guests.load(call.node, "lxc", call.vmid)
    return {**config.values, "digest": config.digest()}
