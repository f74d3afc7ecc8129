"""What a live guest's cloud-init settings are, against what is declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.mark import read_mark
from blocks.proxmox.properties import (
    cloud_init_drives,
    decode_cloud_init,
    encode_cloud_init,
)
from blocks.proxmox.properties.cloudinit import HIDDEN
from tasks.cloudinit.documents import documents
from tasks.cloudinit.seed import is_current
from tasks.cloudinit.snippets import are_current
from tasks.drives import EMPTY, drive_volume

Difference = tuple[str, str | None, str | None]
_SET = "(set)"


def cloud_init_changes(
    guest: Guest, config: Mapping[str, Any], *, env: str | None = None
) -> list[Difference]:
    """Key, live and wanted value of each difference; no call is made.

    ``env``: name of the environment, by default the one in the guest's mark. Whether a password is
    set is compared, which one cannot be. Documents are compared by the hash in their volume's name.
    Raises UnsupportedCloudInit, RenderError or StageError, as ``carry`` does.
    """
    told = guest.cloud_init
    if told is None:
        return []
    wanted = {key: str(value) for key, value in encode_cloud_init(guest).items()}
    found: list[Difference] = []
    if told.method != "fields":
        mark = read_mark(str(config.get("description", "")))
        name = env or (mark.env if mark else "")
        made = documents(guest, env=name)
        if told.method == "snippets":
            custom = str(config.get("cicustom", ""))
            current = are_current(custom, name, guest, told, made)
            wanted["cicustom"] = custom if current else f"snippets with the hash {made.digest[:12]}"
        elif not is_current(held := drive_volume(config.get(told.slot)), made):
            found.append((told.slot, held, f"a seed ISO with the hash {made.digest[:12]}"))
    if told.method != "seed" and not cloud_init_drives(config):
        held = drive_volume(config.get(told.slot))
        found.append((told.slot, None if held == EMPTY else held, f"{told.storage}:cloudinit"))
    now, after = decode_cloud_init(config), decode_cloud_init(wanted)
    for side in (now, after):
        if HIDDEN in side:
            side[HIDDEN] = _SET
    keys = sorted(now.keys() | after.keys())
    found += [(key, now.get(key), after.get(key)) for key in keys if now.get(key) != after.get(key)]
    return found
