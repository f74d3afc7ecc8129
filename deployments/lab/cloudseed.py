"""What an image's cloud-init learns at its boot: from a ``cidata`` ISO, or from ``cicustom``.

``ipconfigN`` and the machine's name are read elsewhere; what is told here counts before them. Users
are made and scripts run when the system's files are first looked at, and not again.
"""

from __future__ import annotations

import shlex
from typing import Any

from deployments.lab.cluster import Lab
from deployments.lab.errors import ApiError
from deployments.lab.isos import read_iso
from deployments.lab.qemu.devices import drives
from deployments.lab.qemu.options import CICUSTOM_FORMAT
from deployments.lab.schema import parse_property_string
from deployments.lab.seeds import parse_user_data, read_yaml

_LABEL = "cidata"
_IMAGE_USER = "cloud"


def told_by_cloud_init(lab: Lab, node: str, values: dict[str, str]) -> dict[str, Any]:
    """Host name and interfaces as a disk's mark keeps them; nothing where nothing is told.

    ``told``: users, keys and scripts, in the form of ``guestdisk.set_up``.
    """
    documents = _from_iso(lab, node, values) or _from_snippets(lab, node, values)
    if not documents:
        return {}
    answers = parse_user_data(
        documents.get("user-data", ""),
        documents.get("network-config"),
        documents.get("meta-data"),
    )
    told = {"hostname": answers.hostname, "interfaces": answers.interfaces}
    return {key: value for key, value in told.items() if value} | {"told": _setup(documents)}


def _setup(documents: dict[str, str]) -> dict[str, Any]:
    setup: dict[str, Any] = {"scripts": [], "accounts": {}, "keys": {}}
    if documents.get("vendor-data", "").startswith("#!"):
        setup["scripts"].append(documents["vendor-data"])
    config = read_yaml(documents.get("user-data", ""))
    listed = config.get("users")
    for user in [config.get("user"), *(listed if isinstance(listed, list) else [])]:
        if isinstance(user, dict) and user.get("name"):
            name = str(user["name"])
            setup["accounts"][name] = str(user.get("hashed_passwd") or user.get("passwd") or "!")
            setup["keys"][name] = _lines(user.get("ssh_authorized_keys"))
    if config.get("ssh_authorized_keys") or config.get("password"):
        setup["accounts"].setdefault(_IMAGE_USER, str(config.get("password") or "!"))
        setup["keys"].setdefault(_IMAGE_USER, _lines(config.get("ssh_authorized_keys")))
    commands = config.get("runcmd")
    setup["scripts"] += [
        shlex.join(map(str, one)) if isinstance(one, list) else str(one)
        for one in (commands if isinstance(commands, list) else [])
    ]
    return setup


def _lines(keys: Any) -> str:
    return "\n".join(map(str, keys)) if isinstance(keys, list) else ""


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
    names = {
        "user": "user-data",
        "vendor": "vendor-data",
        "network": "network-config",
        "meta": "meta-data",
    }
    found = {}
    for kind, volid in parse_property_string(values["cicustom"], CICUSTOM_FORMAT).items():
        storage, volume = lab.storages.volume(str(volid), node)
        if kind in names and storage.exists(node, volume):
            found[names[kind]] = storage.file(node, volume).read_text(errors="replace")
    return found
