"""``/cluster/mapping/pci``: resource mappings of PCI devices. Documented, not recorded."""

from __future__ import annotations

from typing import Any

from deployments.lab import formats
from deployments.lab.errors import ApiError, bad_parameters, failure
from deployments.lab.mappings import (
    MAP_FORMAT,
    PciMapping,
    check_entry,
)
from deployments.lab.routing import Call, endpoint, on, one_of
from deployments.lab.schema import FormatError, Prop, boolean, check_value, string

ONE = "/cluster/mapping/pci/{id}"
_PRIVILEGES = ("Mapping.Modify", "Mapping.Use", "Mapping.Audit")
_FIELDS = {
    "description": string(max_length=4096),
    "mdev": boolean(),
    "live-migration-capable": boolean(modelled=False),
}


@endpoint("GET", "/cluster/mapping")
async def kinds(_call: Call) -> list[dict[str, str]]:
    """Kinds of mappings; only those of PCI devices are modelled."""
    return [{"name": "dir"}, {"name": "pci"}, {"name": "usb"}]


@endpoint("GET", "/cluster/mapping/pci", {"check-node": string(formats.node_name)})
async def pci_list(call: Call) -> list[dict[str, Any]]:
    """Mappings that the caller may see; with ``check-node`` whether they fit that node."""
    lab, node = call.lab, call.params.get("check-node")
    if node is not None:
        lab.require_node(node)
        if not lab.online(node):
            raise ApiError(
                595, "Errors during connection establishment, proxy handshake: No route to host"
            )
    digest = lab.mappings.digest()
    rows = []
    for name, mapping in lab.mappings:
        if not call.has(f"/mapping/pci/{name}", *_PRIVILEGES, any_of=True):
            continue
        row = mapping.shown(name, digest)
        if node is not None:
            row["checks"] = _checks(call, node, name, mapping)
        rows.append(row)
    return rows


def _checks(call: Call, node: str, name: str, mapping: PciMapping) -> list[dict[str, str]]:
    entries = mapping.entries(node)
    if not entries:
        return [{"severity": "warning", "message": f"No mapping for node {node}."}]
    devices = call.lab.nodes[node].devices
    faults = [check_entry(name, entry, devices) for entry in entries]
    return [
        {"severity": "error", "message": f"Invalid configuration: {fault}\n"}
        for fault in faults
        if fault is not None
    ]


@endpoint("GET", ONE, check=one_of(*(on("/mapping/pci/{id}", name) for name in _PRIVILEGES)))
async def pci_read(call: Call) -> dict[str, Any]:
    """One mapping."""
    name = call.uri["id"]
    mapping = call.lab.mappings.found.get(name)
    if mapping is None:
        raise failure(f"mapping '{name}' not found")
    shown = mapping.shown(name, call.lab.mappings.digest())
    del shown["id"]
    return shown


@endpoint(
    "POST",
    "/cluster/mapping/pci",
    {
        "id": string(formats.config_id, optional=False),
        "map": Prop("array", optional=False),
        **_FIELDS,
    },
    check=on("/mapping/pci", "Mapping.Modify"),
)
async def pci_create(call: Call) -> None:
    """Make a mapping; whether the devices are there is not asked."""
    entries = _entries(call)
    name, mappings = call.params["id"], call.lab.mappings
    if name in mappings.found:
        raise failure(f"create hardware mapping failed: pci ID '{name}' already defined")
    mdev = bool(call.params.get("mdev", 0))
    mappings.found[name] = PciMapping(entries, call.params.get("description"), mdev)
    mappings.save()


@endpoint(
    "PUT",
    ONE,
    {
        "map": Prop("array"),
        "delete": string(formats.config_key_list),
        "digest": string(max_length=64),
        **_FIELDS,
    },
    check=on("/mapping/pci/{id}", "Mapping.Modify"),
)
async def pci_update(call: Call) -> None:
    """Change a mapping."""
    failed = "update hardware mapping failed: "
    entries = _entries(call)
    name, mappings = call.uri["id"], call.lab.mappings
    if call.params.get("digest", mappings.digest()) != mappings.digest():
        raise failure(f"{failed}detected modified configuration - file changed by other user?")
    mapping = mappings.found.get(name)
    if mapping is None:
        raise failure(f"{failed}pci ID '{name}' does not exist")
    for key in formats.split_list(call.params.get("delete", "")):
        if key == "map":
            raise failure(f"{failed}unable to delete required option '{key}'")
        if key not in ("description", "mdev"):
            raise failure(f"{failed}no such option '{key}'")
        if key == "mdev":
            mapping.mdev = False
        else:
            mapping.description = None
    mapping.map = entries or mapping.map
    mapping.description = call.params.get("description", mapping.description)
    mapping.mdev = bool(call.params.get("mdev", mapping.mdev))
    mappings.save()


@endpoint("DELETE", ONE, check=on("/mapping/pci", "Mapping.Modify"))
async def pci_delete(call: Call) -> None:
    """Remove a mapping, whether guests name it or not; one that is not there is no trouble."""
    if call.lab.mappings.found.pop(call.uri["id"], None) is not None:
        call.lab.mappings.save()


def _entries(call: Call) -> list[str]:
    """The map entries as they are kept; 400 with each one that is refused."""
    errors = {}
    given = call.params.get("map", [])
    for number, entry in enumerate(given):
        key = f"map[{number}]"
        try:
            check_value(key, entry, string(MAP_FORMAT))
        except FormatError as error:
            errors[key] = str(error)
    if errors:
        raise bad_parameters(errors)
    return [str(entry) for entry in given]
