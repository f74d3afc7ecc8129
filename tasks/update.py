"""Differences to parameters: how to bring a live guest to what is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.mark import marked, read_mark, unmarked
from blocks.manifest.plans import Change, Update
from blocks.proxmox.properties import (
    Properties,
    disk_options,
    encode_boot,
    encode_disk,
    encode_drive,
    encode_machine,
    encode_nic,
    encode_tpmstate,
    format,
    normal_description,
    parse,
)
from tasks.diff import diff

Config = Mapping[str, Any]

_NIC_KEYS = {"vlan": "tag", "mac": "macaddr"}


def update_params(
    desired: Guest, live_config: Config, *, volumes: Mapping[str, str] | None = None
) -> Update:
    """The parameters that bring a live guest to what is declared, and nothing beyond that.

    Volume ids, MACs that were not declared and every option that is not declared (``iops``,
    ``replicate``, ...) stay as they are in ``live_config``. ``volumes``: slot to volume id of
    shared disks that are to be attached; those not given are listed in ``attach``. Changes that are
    not possible in place are left out: look at ``diff`` first. The config's ``digest`` is not sent.
    """
    known = volumes or {}
    changes = [change for change in diff(desired, live_config) if change.in_place]
    attach = tuple(
        disk.slot
        for change in changes
        if (disk := desired.disk(change.target)) and disk.shared_with and disk.slot not in known
    )
    gone = tuple(c.target for c in changes if c.kind == "remove" and "." not in c.target)
    put: dict[str, str | int] = {}
    for key, group in groupby(changes, key=_key):
        if key not in gone and key not in attach:
            put |= _param(key, list(group), desired, live_config, known)
    if "boot" in put:
        # The server refuses an order that names what is not there yet (12-hardware-edits).
        put["boot"] = encode_boot(slot for slot in desired.boot if slot not in attach)
    sizes = [(_key(c), c.after) for c in changes if c.target.endswith(".size")]
    return Update(
        put=put,
        resizes=tuple((slot, size) for slot, size in sizes if isinstance(size, int)),
        delete=gone,
        attach=attach,
    )


def _key(change: Change) -> str:
    return change.target.partition(".")[0]


def _param(
    key: str,
    changes: Sequence[Change],
    desired: Guest,
    config: Config,
    volumes: Mapping[str, str],
) -> dict[str, str | int]:
    """The config key's new value; empty where no write of the config is needed."""
    fields = {change.target.partition(".")[2] for change in changes}
    live = str(config.get(key, ""))
    if disk := desired.disk(key):
        if "" in fields:
            return {key: encode_disk(disk, volumes.get(key) if disk.shared_with else None)}
        options = fields - {"size"}
        return {key: _merged("disk", live, options, disk_options(disk))} if options else {}
    if nic := next((nic for nic in desired.nics if nic.slot == key), None):
        if "" in fields:
            return {key: encode_nic(nic)}
        names = {_NIC_KEYS.get(field, field) for field in fields}
        return {key: _merged("net", live, names, parse("net", encode_nic(nic)))}
    if key in desired.drives:
        return {key: encode_drive(desired.drives[key])}
    return {key: _plain(key, changes[0], desired, config)}


def _plain(key: str, change: Change, desired: Guest, config: Config) -> str | int:
    live = str(config.get(key, ""))
    match key:
        case "cpu":
            return format("cpu", parse("cpu", live) | parse("cpu", desired.cpu))
        case "agent":
            return format("agent", parse("agent", live) | {"enabled": desired.agent})
        case "machine" | "vga":
            wanted = str(change.after)
            type_ = encode_machine(wanted) or "pc" if key == "machine" else wanted
            return format(key, parse(key, live) | {"type": type_})
        case "tpmstate0":
            return str(encode_tpmstate(desired.firmware))
        case "description":
            mark = read_mark(str(config.get("description", "")))
            mark = mark or read_mark(desired.description)
            text = normal_description(unmarked(desired.description))
            return marked(mark, text) if mark else text
        case _:
            return int(change.after) if isinstance(change.after, bool | int) else str(change.after)


def _merged(kind: str, live: str, keys: set[str], wanted: Properties) -> str:
    """The live string with only these keys set to, or cleared as in, what is wanted."""
    kept = {key: value for key, value in parse(kind, live).items() if key not in keys}
    return format(kind, kept | {key: wanted[key] for key in keys if key in wanted})
