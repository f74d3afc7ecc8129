"""Status of virtual machines: rows of lists and ``status/current``."""

from __future__ import annotations

from typing import Any

from deployments.lab.cluster import Lab
from deployments.lab.formats import parse_size
from deployments.lab.guestio import blockstat
from deployments.lab.qemu.devices import first_boot_disk, nets
from deployments.lab.qemu.options import AGENT_FORMAT, MEMORY_FORMAT
from deployments.lab.schema import parse_property_string

_PRESSURE = ("cpu", "io", "memory")
RUNNING_MACHINE = {"q35": "pc-q35-10.1+pve0"}


def agent_enabled(values: dict[str, str]) -> bool:
    """Whether the configuration expects a guest agent."""
    text = values.get("agent")
    return bool(text and parse_property_string(text, AGENT_FORMAT).get("enabled"))


def memory_bytes(values: dict[str, str]) -> int:
    """Configured memory; 512 MiB when none is set."""
    text = values.get("memory")
    mebibytes = parse_property_string(text, MEMORY_FORMAT)["current"] if text else 512
    return int(mebibytes) << 20


def cpu_count(values: dict[str, str]) -> int:
    """Virtual processors."""
    cores = int(values.get("cores", "1")) * int(values.get("sockets", "1"))
    return int(values.get("vcpus", cores))


def qemu_row(
    lab: Lab, node: str, vmid: int, full: bool = False, values: dict[str, str] | None = None
) -> dict[str, Any]:
    """One machine as ``/nodes/N/qemu`` shows it; ``full`` adds what a monitor would tell.

    ``values`` are those of its configuration where the caller has read it already.
    """
    if values is None:
        values = lab.guests.load(node, "qemu", vmid).values
    run = lab.life.running(vmid)
    boot_disk = first_boot_disk(values)
    size = parse_size(str(boot_disk.values.get("size", "0"))) if boot_disk else 0
    row: dict[str, Any] = {
        "vmid": vmid,
        "name": values.get("name", f"VM {vmid}"),
        "status": "running" if run else "stopped",
        "cpu": 0,
        "cpus": cpu_count(values),
        "disk": 0,
        "maxdisk": size or 0,
        "maxmem": memory_bytes(values),
        "mem": 0,
        "memhost": 0,
        "netin": 0,
        "netout": 0,
        "uptime": 0,
    }
    if values.get("tags"):
        row["tags"] = values["tags"]
    if values.get("lock"):
        row["lock"] = values["lock"]
    if values.get("template") == "1":
        row["template"] = 1
    if any(key.startswith("serial") for key in values):
        row["serial"] = 1
    if full:
        row["qmpstatus"] = run.qmp_status if run else "stopped"
    if run:
        row |= {"pid": run.pid, "uptime": lab.life.uptime(run), "cpu": 0.02}
        row |= {"mem": row["maxmem"] // 2, "memhost": row["maxmem"] // 2}
        for name in _PRESSURE:
            row |= {f"pressure{name}full": 0, f"pressure{name}some": 0}
        if full:
            counters = blockstat(run, lab.clock)
            row["blockstat"] = counters
            row["diskread"] = sum(one["rd_bytes"] for one in counters.values())
            row["diskwrite"] = sum(one["wr_bytes"] for one in counters.values())
            cards = {
                f"tap{vmid}i{index}": {"netin": 0, "netout": 0} for index, _ in nets(run.values)
            }
            if cards:
                row["nics"] = cards
            machine = run.values.get("machine", "")
            row["running-machine"] = (
                "pc-q35-10.1+pve0" if machine.startswith("q35") else "pc-i440fx-10.1+pve0"
            )
            row["running-qemu"] = lab.config.creation_qemu
    return row


def current_status(lab: Lab, node: str, vmid: int) -> dict[str, Any]:
    """``status/current``."""
    values = lab.guests.load(node, "qemu", vmid).values
    row = qemu_row(lab, node, vmid, full=True)
    row["ha"] = {"managed": 0}
    if agent_enabled(values):
        row["agent"] = 1
    return row
