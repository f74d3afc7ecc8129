"""The clones of an Ansible variable file."""

from __future__ import annotations

import re
from typing import Any

from blocks.manifest.template.ansible_file import Vars, has_jinja
from blocks.manifest.template.ansible_values import (
    address_of,
    flag,
    nic_of,
    number,
    size_of,
    tags_of,
    word,
    words,
)

_NOT_COUNTED = {
    True: "since the clones are listed one by one",
    False: "since no number of clones is given",
}
_STARTED: tuple[str, ...] = ("started", "autostart", "power_on")


def clone_entries(found: Vars, *, template_id: int, static: bool) -> list[dict[str, Any]]:
    """The entries of ``spec.clones``. ``static``: the template has an address of its own.

    What an entry has that has no place stays in ``found`` as ``clones[0].key``.
    """
    make = found.take("make_template", "convert_to_template", "create_template", into=flag)
    if make is False:
        found.notes.append("make_template: is off; a template is made in any case")
    wanted = found.take("create_clones", "clone_vms", "deploy_clones", into=flag)
    full = found.take("full_clone", "clone_full", "full", into=flag)
    number_of = found.take("clone_count", "num_clones", "clones_count", into=number)
    prefix = found.take("clone_prefix", "clone_name_prefix", "clone_name")
    first = found.take("clone_start_id", "clone_id_start", "clone_vmid_start", into=number)
    entries = found.entries("clones", "clone_list", "vm_clones", "clone_vms_list")
    if number_of and not entries:
        counted: dict[str, Any] = {
            "count": number_of,
            "name": f"{_clean(prefix, 'clone', found)}{{n:02}}",
            "vm_id": first or template_id + 100,
        }
        entries_made = [counted if full is not False else {**counted, "mode": "linked"}]
    else:
        entries_made = [
            _clone(found, entry, index, full, template_id) for index, entry in enumerate(entries)
        ]
        counted_only = {"clone_count": number_of, "clone_prefix": prefix, "clone_start_id": first}
        for name, value in counted_only.items():
            if value:
                found.leave(name, str(value), _NOT_COUNTED[bool(entries)])
    if wanted is False and entries_made:
        found.notes.append("create_clones: is off; the clones were left out")
        return []
    if wanted and not entries_made:
        found.notes.append(
            "create_clones: is on, but no clones are listed; add them to spec.clones"
        )
    if static:
        for clone in entries_made:
            if "ip" not in clone:
                clone["ip"] = "dhcp"
                found.notes.append(
                    f"{clone['name']}: has no address; DHCP was put in, not the template's address"
                )
    return entries_made


def _clone(
    found: Vars, entry: dict[Any, Any], index: int, full: bool | None, template_id: int
) -> dict[str, Any]:
    prefix = f"clones[{index}]."
    own = found.inner(entry, prefix)
    name = own.take("hostname", "name", "vm_name", "vm_hostname")
    vmid = own.take("id", "vm_id", "vmid", "newid", "clone_id", into=number)
    if vmid is None or vmid < 100:
        vmid = template_id + 100 + index
        found.notes.append(f"{prefix}id: no number is given; {vmid} was put in")
    clone: dict[str, Any] = {"name": _clean(name, f"clone-{vmid}", own), "vm_id": vmid}
    node = own.take("node", "target", "target_node", "proxmox_node", into=word)
    if node:
        clone["node"] = node
    linked = _is_linked(own, full)
    storage = own.take("storage", "target_storage", "vm_storage", into=word)
    if linked:
        clone["mode"] = "linked"
        if storage:
            found.notes.append(f"{prefix}storage: a linked clone has none of its own; left out")
    elif storage:
        clone["storage"] = storage
    address, gateway = address_of(own)
    if address is not None:
        clone["ip"] = address
    if gateway is not None:
        clone["gateway"] = gateway
    resources = {
        key: value
        for key, names in (
            ("cores", ("cores", "cpus", "vcpus", "cpu_cores")),
            ("sockets", ("sockets",)),
            ("memory", ("memory", "ram", "mem")),
        )
        if (value := own.take(*names, into=number)) is not None
    }
    if resources:
        clone["resources"] = resources
    clone |= _rest(own)
    found.values |= {f"{prefix}{key}": value for key, value in own.values.items()}
    return clone


def _rest(own: Vars) -> dict[str, Any]:
    clone: dict[str, Any] = {}
    size = own.take("disk_size", "size", "disk", into=size_of)
    if size is not None:
        clone["disk"] = size
    nic = nic_of(own, "net0")
    bridge = own.take("bridge", into=word)
    vlan = own.take("vlan", "vlan_id", "vlan_tag", into=number)
    if bridge:
        nic["bridge"] = bridge
    if vlan:
        nic["vlan"] = vlan
    if nic:
        clone["nics"] = [nic]
    tags = own.take("tags", several=True, into=tags_of)
    if tags:
        clone["tags"] = tags
    for key, names in (("pool", ("pool",)), ("description", ("description", "notes"))):
        value = own.take(*names, into=word)
        if value:
            clone[key] = value
    for key, others in (("start", _STARTED), ("onboot", ())):
        switch = own.take(key, *others, into=flag)
        if switch is not None:
            clone[key] = switch
    told = _told(own)
    if told:
        clone["cloud_init"] = told
    return clone


def _told(own: Vars) -> dict[str, Any]:
    told: dict[str, Any] = {}
    dns = own.take("dns", "nameserver", "nameservers", several=True, into=words)
    if dns:
        told["dns"] = dns
    search = own.take("searchdomain", "search_domain", several=True, into=words)
    if search:
        told["search"] = search
    user = own.take("ci_user", "ciuser", "user", into=word)
    if user:
        told["user"] = user
    return told


def _is_linked(own: Vars, full: bool | None) -> bool:
    mode = own.take("mode", "clone_type", "type", "clone_mode", into=_mode)
    if mode is not None:
        return bool(mode == "linked")
    linked: bool | None = own.take("linked", "linked_clone", into=flag)
    own_full: bool | None = own.take("full", "full_clone", into=flag)
    if linked is not None:
        return linked
    return not (own_full if own_full is not None else full if full is not None else True)


def _mode(value: Any) -> str | None:
    mode = str(value).lower()
    return mode if mode in ("full", "linked") else None


def _clean(name: Any, otherwise: str, own: Vars) -> str:
    if not isinstance(name, str) or not name.strip() or has_jinja(name):
        own.notes.append(f"{own.prefix}name: no name is given; {otherwise!r} was put in")
        return otherwise
    clean = re.sub(r"[^A-Za-z0-9.-]+", "-", name.strip()).strip("-.")[:63] or otherwise
    if clean != name:
        own.notes.append(f"{own.prefix}name: {name!r} is no DNS name; it became {clean!r}")
    return clean
