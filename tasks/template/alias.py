"""The alias of a template: a tag and a pool that the newest generation alone has."""

from __future__ import annotations

from dataclasses import dataclass

from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark
from blocks.manifest.recipe import TEMPLATE, Alias
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.inventory import GuestRow, Inventory, guest_config, guest_path, read_inventory
from blocks.proxmox.properties import format_tags, parse_tags
from tasks.live import Live, unless_changed
from tasks.session import Session


@dataclass(frozen=True)
class Moves:
    """What was done about the alias, and what was found on the way."""

    done: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def switch_alias(here: Session, guest: Guest) -> Moves:
    """Give the recipe's alias to ``guest``, then take it from the other generations.

    In this order, so that there is always one that carries it. Other tags are kept. Guests that
    are no generation of this template keep what they have. One call where all is in place, none
    where no alias is declared. Raises ProxmoxError.
    """
    recipe = here.environment.recipe
    alias = recipe.alias if recipe is not None else Alias()
    if alias.tag is None and alias.pool is None:
        return Moves()
    inventory = read_inventory(here.client)
    done: list[str] = []
    warnings: list[str] = []
    for tag in parse_tags(alias.tag or ""):
        moves = _tag(here, guest, inventory, tag)
        done += moves.done
        warnings += moves.warnings
    if alias.pool is not None:
        moves = _pool(here, guest, inventory, alias.pool)
        done += moves.done
        warnings += moves.warnings
    return Moves(tuple(done), tuple(warnings))


def _tag(here: Session, guest: Guest, inventory: Inventory, tag: str) -> Moves:
    row = inventory.guest(guest.vmid)
    done: list[str] = []
    warnings: list[str] = []
    if row is None or tag not in row.tags:
        _write_tags(here, row or guest, here.require(guest), add=tag)
        done.append(f"tag {tag} set")
    for other in inventory.guests:
        if other.vmid == guest.vmid or tag not in other.tags:
            continue
        live = _generation(here, other)
        if live is None:
            warnings.append(
                f"VM {other.vmid} ({other.name}) carries the tag {tag} too, and is not known "
                "to be a generation of this template; it keeps it"
            )
            continue
        _write_tags(here, other, live, remove=tag)
        done.append(f"tag {tag} taken from VM {other.vmid}")
    return Moves(tuple(done), tuple(warnings))


def _write_tags(
    here: Session, row: GuestRow | Guest, live: Live, *, add: str = "", remove: str = ""
) -> None:
    tags = {*parse_tags(str(live.config.get("tags", ""))), *parse_tags(add)} - {remove}
    values = {"tags": format_tags(tags)} if tags else {"delete": "tags"}
    path = guest_path(row.kind, row.node, row.vmid)
    here.client.put(f"{path}/config", **values, **unless_changed(live.config))


def _pool(here: Session, guest: Guest, inventory: Inventory, pool: str) -> Moves:
    row = inventory.guest(guest.vmid)
    done: list[str] = []
    warnings: list[str] = []
    if row is None or row.pool != pool:
        _into(here, pool, guest.vmid)
        done.append(f"put into pool {pool}")
    for other in inventory.guests:
        if other.vmid == guest.vmid or other.pool != pool or not other.template:
            continue
        if _generation(here, other) is None:
            warnings.append(
                f"template {other.vmid} ({other.name}) is in pool {pool} too, and is not known "
                "to be a generation of this one; it stays there"
            )
            continue
        if guest.pool is not None and guest.pool != pool:
            _into(here, guest.pool, other.vmid)
        else:
            here.client.put("/pools", poolid=pool, vms=other.vmid, delete=True)
        done.append(f"VM {other.vmid} taken from pool {pool}")
    return Moves(tuple(done), tuple(warnings))


def _into(here: Session, pool: str, vmid: int) -> None:
    """A guest is in one pool at most: without ``allow-move`` one that is elsewhere is refused."""
    here.client.request("PUT", "/pools", {"poolid": pool, "vms": vmid, "allow-move": True})


def _generation(here: Session, row: GuestRow) -> Live | None:
    """The live guest where it is a generation of this template; None for others'. One call."""
    if row.kind != "qemu":
        return None
    try:
        live = Live(guest_config(here.client, row))
    except ProxmoxError:
        return None
    return live if _ours(here, row, live.mark) else None


def _ours(here: Session, row: GuestRow, mark: Mark | None) -> bool:
    wanted = (here.environment.name, TEMPLATE, row.vmid)
    return mark is not None and (mark.env, mark.guest, mark.vmid) == wanted
