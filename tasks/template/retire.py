"""Old generations of a template: gone once nothing needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from blocks.manifest.guest import Guest
from blocks.manifest.mark import read_mark
from blocks.manifest.recipe import TEMPLATE, Recipe
from blocks.proxmox.errors import NotFound, ProxmoxError
from blocks.proxmox.inventory import Inventory, read_inventory, storage_content
from blocks.proxmox.properties import kind_of, owner_of, storage_of
from tasks.destroy import Target, remove
from tasks.session import Session
from tasks.template.disks import Config, volume_in
from tasks.template.generations import Generation, newest_first

NAMES_BASE = frozenset({"dir", "nfs", "cifs", "cephfs", "btrfs", "glusterfs", "zfspool", "rbd"})
"""Storages on which the volume of a linked clone names the one it is based on (07-clones)."""

NEEDS_NO_BASE = frozenset({"lvm", "lvmthin"})
"""Storages on which no volume needs the one it was made from: LVM-thin shares blocks, not names
(13-lvmthin-vm), LVM makes no linked clones."""


@dataclass
class Retired:
    """What became of old generations, in words; ``kept``: why a generation is still there."""

    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def superfluous(
    recipe: Recipe, generations: Sequence[Generation], current: Guest
) -> tuple[Generation, ...]:
    """The finished generations beyond ``keep``, oldest last; never ``current``."""
    if recipe.rebuild.when == "never":
        return ()
    others = [each for each in newest_first(generations) if each.finished]
    others = [each for each in others if each.vmid != current.vmid]
    return tuple(others[recipe.rebuild.keep - 1 :])


def retire(here: Session, generations: Sequence[Generation], current: Guest) -> Retired:
    """Remove generations beyond ``keep`` that nothing depends on.

    To be called when ``current`` is finished. Each must carry our mark until the last moment, and
    be a template. What a linked clone needs, and what may not be looked at, stays and is told: it
    is no failure. No call where there are few enough; else one, and one a storage and generation.
    Raises a ProxmoxError that may pass next time: a lost answer does not tell what became of it.
    """
    recipe = here.environment.recipe
    old = superfluous(recipe, generations, current) if recipe is not None else ()
    retired = Retired()
    if not old:
        return retired
    inventory = read_inventory(here.client)
    for each in old:
        _retire(here, inventory, each, retired)
    return retired


def _retire(here: Session, inventory: Inventory, old: Generation, retired: Retired) -> None:
    try:
        config: Config = here.client.get(f"/nodes/{old.node}/qemu/{old.vmid}/config")
        mark = read_mark(str(config.get("description", "")))
        wanted = (here.environment.name, TEMPLATE, old.vmid)
        if mark is None or (mark.env, mark.guest, mark.vmid) != wanted:
            retired.kept.append(f"{old} stays: it does not carry our mark any more")
            return
        if not int(config.get("template", 0)):
            retired.kept.append(f"{old} stays: it is no template any more")
            return
        reason = depended_on(here, inventory, old, config)
        if reason is not None:
            retired.kept.append(f"{old} stays: {reason}")
            return
        target = Target(node=old.node, kind="qemu", vmid=old.vmid, mark=mark)
        remove(here.client, target, force=False)
    except NotFound:
        return
    except ProxmoxError as error:
        if error.transient:
            raise
        # Proxmox VE refuses by itself where a linked clone is left (07-clones).
        retired.kept.append(f"{old} stays: {error.message.splitlines()[0]}")
        return
    retired.removed.append(str(old))


def depended_on(here: Session, inventory: Inventory, old: Generation, config: Config) -> str | None:
    """Why the generation has to stay, None where nothing needs it. One call a storage.

    Raises ProxmoxError.
    """
    volumes = {
        volume
        for key in config
        if kind_of(key) in {"disk", "efidisk", "tpmstate", "unused"}
        if owner_of(volume := volume_in(config, key)) == old.vmid
    }
    users: set[int] = set()
    for storage in sorted(map(storage_of, volumes)):
        row = inventory.storage(old.node, storage)
        plugin = row.plugin if row is not None else "unknown"
        if plugin in NEEDS_NO_BASE:
            continue
        if plugin not in NAMES_BASE:
            return f"whether a linked clone needs it cannot be told on {storage} ({plugin})"
        for found in storage_content(here.client, old.node, storage, "images"):
            based = any(found.volid.startswith(f"{base}/") for base in volumes)
            if based and found.vmid is not None:
                users.add(found.vmid)
    if users:
        names = ", ".join(_named(inventory, vmid) for vmid in sorted(users))
        return f"linked clones of it: {names}"
    return None


def _named(inventory: Inventory, vmid: int) -> str:
    row = inventory.guest(vmid)
    return f"VM {vmid} ({row.name})" if row is not None else f"VM {vmid}"
