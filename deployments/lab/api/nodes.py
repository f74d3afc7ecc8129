"""``/nodes/N``: status, version, network, processor models."""

from __future__ import annotations

import time
from typing import Any

from deployments.lab.api.rows import used_memory
from deployments.lab.cluster import RELEASE, REPOID, VERSION, Bridge, Node
from deployments.lab.errors import bad_parameter, not_implemented
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import enum

_NETWORK_TYPES = (
    *("bridge", "bond", "eth", "alias", "vlan", "fabric", "OVSBridge", "OVSBond", "OVSPort"),
    *("OVSIntPort", "vnet", "any_bridge", "any_local_bridge", "include_sdn"),
)
_BRIDGE_FILTERS = ("bridge", "any_bridge", "any_local_bridge", "include_sdn")
_QEMU_RELEASES = (
    *("10.1", "10.0", "9.2", "9.1", "9.0", "8.2", "8.1", "8.0", "7.2", "7.1", "7.0", "6.2", "6.1"),
    *("6.0", "5.2", "5.1", "5.0", "4.2", "4.1", "4.0", "3.1", "3.0", "2.12", "2.11", "2.10"),
)
_PVE_REVISIONS = {"9.2": "+pve1"}
_CPU_MODELS = (
    ("EPYC", "AuthenticAMD"),
    ("EPYC-Milan", "AuthenticAMD"),
    ("EPYC-Rome", "AuthenticAMD"),
    ("EPYC-Genoa", "AuthenticAMD"),
    ("EPYC-IBPB", "AuthenticAMD"),
    ("EPYC-v4", "AuthenticAMD"),
    ("Opteron_G5", "AuthenticAMD"),
    ("Nehalem", "GenuineIntel"),
    ("Westmere", "GenuineIntel"),
    ("SandyBridge", "GenuineIntel"),
    ("IvyBridge", "GenuineIntel"),
    ("Haswell", "GenuineIntel"),
    ("Haswell-noTSX", "GenuineIntel"),
    ("Broadwell", "GenuineIntel"),
    ("Broadwell-noTSX", "GenuineIntel"),
    ("Skylake-Client", "GenuineIntel"),
    ("Skylake-Server", "GenuineIntel"),
    ("Skylake-Server-noTSX-IBRS", "GenuineIntel"),
    ("Cascadelake-Server", "GenuineIntel"),
    ("Cascadelake-Server-noTSX", "GenuineIntel"),
    ("Cooperlake", "GenuineIntel"),
    ("Icelake-Server", "GenuineIntel"),
    ("Icelake-Server-noTSX", "GenuineIntel"),
    ("SapphireRapids", "GenuineIntel"),
    ("GraniteRapids", "GenuineIntel"),
    ("host", "default"),
    ("kvm64", "default"),
    ("max", "default"),
    ("qemu64", "default"),
)
_ABSTRACT_MODELS = ("x86-64-v2", "x86-64-v2-AES", "x86-64-v3", "x86-64-v4")


@endpoint("GET", "/nodes/{node}/version")
async def version(_call: Call) -> dict[str, str]:
    """Release of the node."""
    return {"release": RELEASE, "repoid": REPOID, "version": VERSION}


@endpoint("GET", "/nodes/{node}/time", check=on("/nodes/{node}", "Sys.Audit"))
async def node_time(_call: Call) -> dict[str, Any]:
    """The node's clock, in seconds since 1970."""
    now = int(time.time())
    return {"localtime": now, "time": now, "timezone": "UTC"}


@endpoint("GET", "/nodes/{node}/status", check=on("/nodes/{node}", "Sys.Audit"))
async def status(call: Call) -> dict[str, Any]:
    """Load and resources of the node."""
    node = call.lab.nodes[call.node]
    used = used_memory(call.lab, node.name)
    kernel = "6.17.2-1-pve"
    return {
        "boot-info": {"mode": "legacy-bios"},
        "cpu": 0.01,
        "cpuinfo": {
            "cores": node.cores,
            "cpus": node.cores,
            "family": "25",
            "flags": "fpu vme de pse tsc msr pae mce cx8 apic sep svm aes avx2",
            "hvm": "1",
            "mhz": "2994.372",
            "model": "AMD EPYC 7313 16-Core Processor",
            "sockets": 1,
            "user_hz": 100,
            "vendor": "AuthenticAMD",
        },
        "current-kernel": {
            "machine": "x86_64",
            "release": kernel,
            "sysname": "Linux",
            "version": "#1 SMP PREEMPT_DYNAMIC PMX 6.17.2-1",
        },
        "idle": 0,
        "ksm": {"shared": 0},
        "kversion": f"Linux {kernel} #1 SMP PREEMPT_DYNAMIC PMX 6.17.2-1",
        "loadavg": ["0.10", "0.08", "0.05"],
        "memory": {
            "available": node.memory - used,
            "free": node.memory - used,
            "total": node.memory,
            "used": used,
        },
        "pveversion": f"pve-manager/{VERSION}/{REPOID}",
        "rootfs": {"avail": 82 << 30, "free": 86 << 30, "total": 94 << 30, "used": 8 << 30},
        "swap": {"free": 8 << 30, "total": 8 << 30, "used": 0},
        "uptime": int(time.time() - call.lab.born) + 86400,
        "wait": 0,
    }


def _bridge_row(bridge: Bridge, priority: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "active": 1,
        "autostart": 1,
        "bridge_fd": "0",
        "bridge_ports": "",
        "bridge_stp": "off",
        "families": ["inet"],
        "iface": bridge.name,
        "method": "manual",
        "method6": "manual",
        "priority": priority,
        "type": "bridge",
    }
    if bridge.cidr:
        address, _, mask = bridge.cidr.partition("/")
        row |= {"method": "static", "address": address, "netmask": mask, "cidr": bridge.cidr}
    if bridge.vlan_aware:
        row |= {"bridge_vlan_aware": 1, "bridge_vids": "2-4094"}
    return row


def _interfaces(node: Node) -> list[dict[str, Any]]:
    eth = {
        "active": 1,
        "exists": 1,
        "families": ["inet"],
        "iface": "eth0",
        "method": "manual",
        "method6": "manual",
        "priority": 3,
        "type": "eth",
    }
    return [eth] + [_bridge_row(bridge, 4 + n) for n, bridge in enumerate(node.bridges)]


@endpoint("GET", "/nodes/{node}/network", {"type": enum(*_NETWORK_TYPES)})
async def network(call: Call) -> list[dict[str, Any]]:
    """Network interfaces; bridges only those whose use the caller may see."""
    wanted = call.params.get("type")
    rows = []
    for row in _interfaces(call.lab.nodes[call.node]):
        kept = wanted is None or row["type"] == wanted
        if row["type"] == "bridge":
            kept = wanted is None or wanted in _BRIDGE_FILTERS
        if kept:
            rows.append(row)
    return rows


@endpoint("GET", "/nodes/{node}/network/{iface}", check=on("/nodes/{node}", "Sys.Audit"))
async def interface(call: Call) -> dict[str, Any]:
    """One interface, without its name."""
    for row in _interfaces(call.lab.nodes[call.node]):
        if row["iface"] == call.uri["iface"]:
            return {key: value for key, value in row.items() if key != "iface"}
    raise bad_parameter(iface="interface does not exist")


@endpoint("GET", "/nodes/{node}/capabilities/qemu/cpu")
async def cpu_models(_call: Call) -> list[dict[str, Any]]:
    """Processor models that guests can have."""
    rows: list[dict[str, Any]] = [
        {"custom": 0, "name": name, "vendor": vendor} for name, vendor in _CPU_MODELS
    ]
    rows += [
        {"abstract": 1, "custom": 0, "name": name, "vendor": "default"} for name in _ABSTRACT_MODELS
    ]
    return rows


@endpoint("GET", "/nodes/{node}/capabilities/qemu/machines", {"arch": enum("x86_64", "aarch64")})
async def machine_types(call: Call) -> list[dict[str, Any]]:
    """Versioned machine types, the newest first. Documented, not recorded."""
    if call.params.get("arch") == "aarch64":
        raise not_implemented(call.method, call.path)
    rows: list[dict[str, Any]] = []
    for release in _QEMU_RELEASES:
        if release in _PVE_REVISIONS:
            rows += _machine_rows(release + _PVE_REVISIONS[release])
        rows += _machine_rows(release)
    return rows


def _machine_rows(version: str) -> list[dict[str, Any]]:
    return [
        {"id": f"pc-{kind}-{version}", "type": kind, "version": version}
        for kind in ("q35", "i440fx")
    ]
