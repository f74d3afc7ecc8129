"""What an image's cloud-init learns at its boot: from a ``cidata`` ISO, or from ``cicustom``.

``ipconfigN`` and the machine's name are read elsewhere; what is told here counts before them.
"""

from __future__ import annotations

from typing import Any

from deployments.lab.cluster import Lab
from deployments.lab.errors import ApiError
from deployments.lab.isos import read_iso
from deployments.lab.qemu.devices import drives
from deployments.lab.qemu.options import CICUSTOM_FORMAT
from deployments.lab.schema import parse_property_string
from deployments.lab.seeds import parse_user_data

_LABEL = "cidata"


def told_by_cloud_init(lab: Lab, node: str, values: dict[str, str]) -> dict[str, Any]:
    """Host name and interfaces as a disk's mark keeps them; nothing where nothing is told."""
    documents = _from_iso(lab, node, values) or _from_snippets(lab, node, values)
    if not documents:
        return {}
    answers = parse_user_data(
        documents.get("user-data", ""),
        documents.get("network-config"),
        documents.get("meta-data"),
    )
    told = {"hostname": answers.hostname, "interfaces": answers.interfaces}
    return {key: value for key, value in told.items() if value}


def _from_iso(lab: Lab, node: str, values: dict[str, str]) -> dict[str, str]:
    for drive in drives(values):
        if not drive.is_cdrom or ":iso/" not in drive.file:
            continue
        try:
            storage, volume = lab.storages.volume(drive.file, node)
        except ApiError:
            continue
        content = read_iso(storage.file(node, volume))
        if content.label.lower() == _LABEL and "user-data" in content.files:
            return content.files
    return {}


def _from_snippets(lab: Lab, node: str, values: dict[str, str]) -> dict[str, str]:
    if not any(drive.is_cloudinit for drive in drives(values)) or "cicustom" not in values:
        return {}
    names = {"user": "user-data", "network": "network-config", "meta": "meta-data"}
    found = {}
    for kind, volid in parse_property_string(values["cicustom"], CICUSTOM_FORMAT).items():
        storage, volume = lab.storages.volume(str(volid), node)
        if kind in names and storage.exists(node, volume):
            found[names[kind]] = storage.file(node, volume).read_text(errors="replace")
    return found
