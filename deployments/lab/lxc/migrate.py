"""Moving containers to another node; a running one is stopped and started again there.

Nothing here was recorded; it follows the public source of pve-container 6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig
from deployments.lab.errors import ApiError, failure
from deployments.lab.guests import check_lock
from deployments.lab.lxc.volumes import mounts
from deployments.lab.migration import (
    Progress,
    StorageMap,
    connect,
    enabled_storage,
    migration,
    rename_volumes,
    send_volume,
)
from deployments.lab.storage import Storage, Volume
from deployments.lab.tasks import Task

Power = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class Order:
    """What a migration shall do. ``stop`` and ``start`` act on the container on a node."""

    target: str
    stop: Power
    start: Power
    online: bool = False
    restart: bool = False
    storages: StorageMap = field(default_factory=StorageMap)


@dataclass
class _Move:
    origin: Storage
    volume: Volume
    target: Storage
    snapshot: bool
    sent: Volume | None = None


def preconditions(lab: Lab, node: str, vmid: int) -> dict[str, Any]:
    """What ``GET migrate`` answers: only HA rules could forbid a node."""
    return {
        "running": int(lab.life.running(vmid) is not None),
        "allowed-nodes": [name for name in lab.nodes if name != node],
        "not-allowed-nodes": {},
    }


async def migrate(lab: Lab, node: str, vmid: int, order: Order, task: Task) -> None:
    """The task: volumes are copied, the configuration changes nodes."""
    with migration(task) as progress:
        async with lab.guests.lock(vmid, "lxc"):
            await _migrate(lab, node, vmid, order, progress)


async def _migrate(lab: Lab, node: str, vmid: int, order: Order, progress: Progress) -> None:
    config = lab.guests.load(node, "lxc", vmid)
    check_lock(config, "lxc")
    running = lab.life.running(vmid) is not None
    if running and order.online:
        raise failure("lxc live migration is currently not implemented")
    if running and not order.restart:
        raise failure("running container can only be migrated in restart mode")
    _check_storages(lab, node, config, order)
    connect(lab, order.target, progress)
    if running:
        progress.info(f"shutdown CT {vmid}")
        await order.stop(node)
        config = lab.guests.load(node, "lxc", vmid)
    address = lab.nodes[order.target].ip
    progress.info(f"starting migration of CT {vmid} to node '{order.target}' ({address})")
    config.values["lock"] = "migrate"
    lab.guests.save(node, "lxc", vmid, config)
    moves: list[_Move] = []
    try:
        moves = _scan(lab, node, vmid, config, order, progress)
        for move in moves:
            _send(lab, node, vmid, order, move, progress)
        await lab.clock.work("vzmigrate")
    except BaseException as error:
        if isinstance(error, ApiError):
            progress.error(error.as_exit_status())
        progress.info("aborting phase 1 - cleanup resources")
        _take_back(lab, node, vmid, order.target, moves)
        progress.info("start final cleanup")
        if running:
            progress.info("start container on source node")
            await order.start(node)
        raise
    _hand_over(lab, node, vmid, order.target, moves)
    progress.info("start final cleanup")
    if running:
        progress.info("start container on target node")
        await order.start(order.target)


def _volumes(config: GuestConfig) -> list[tuple[str, bool]]:
    found = {
        text: True for s in config.snapshots.values() for text in (m.volume for m in mounts(s))
    }
    now = [mount.volume for mount in mounts(config.values)]
    now += [text for key, text in sorted(config.values.items()) if key.startswith("unused")]
    return list((dict.fromkeys(now, False) | found).items())


def _check_storages(lab: Lab, node: str, config: GuestConfig, order: Order) -> None:
    for volid, _ in _volumes(config):
        origin, volume = lab.storages.volume(volid)
        enabled_storage(lab, origin.id, node)
        if "rootdir" not in origin.config.content:
            raise failure(f"content type 'rootdir' is not available on storage '{origin.id}'")
        name = origin.id if origin.config.shared else order.storages.target(origin.id)
        if "rootdir" not in enabled_storage(lab, name, order.target).config.content:
            text = f"content type 'rootdir' is not available on storage '{name}'"
            raise failure(f"{volume.volid}: {text}")


def _scan(
    lab: Lab, node: str, vmid: int, config: GuestConfig, order: Order, progress: Progress
) -> list[_Move]:
    moves: list[_Move] = []
    errors: dict[str, str] = {}
    for volid, in_snapshot in _volumes(config):
        origin, volume = lab.storages.volume(volid, node)
        if origin.config.shared:
            if not in_snapshot:
                progress.info(f"volume '{volid}' is on shared storage '{origin.id}'")
            continue
        target = enabled_storage(lab, order.storages.target(origin.id), order.target)
        moves.append(_Move(origin, volume, target, in_snapshot))
        if volume.vmid != vmid:
            errors[volid] = f"owned by other guest (owner = {volume.vmid or ''})"
        elif in_snapshot:
            errors[volid] = "non-migratable snapshot exists"
        elif volume.base:
            errors[volid] = f"clone of '{volume.base.rpartition('/')[2]}'"
    for move in sorted(moves, key=lambda one: one.volume.volid):
        where = "referenced by snapshot(s)" if move.snapshot else "in current VM config"
        progress.info(f"found local volume '{move.volume.volid}' ({where})")
    for volid in sorted(errors):
        progress.info(f"can't migrate local volume '{volid}': {errors[volid]}")
    if errors:
        raise failure("can't migrate CT - check log")
    return moves


def _send(lab: Lab, node: str, vmid: int, order: Order, move: _Move, progress: Progress) -> None:
    place, target = (move.origin, node, move.volume), (move.target, order.target)
    try:
        move.sent = send_volume(lab, place, target, vmid)
    except ApiError as error:
        what = f"storage migration for '{move.volume.volid}' to storage '{move.target.id}'"
        raise failure(f"{what} failed - {error.reason}") from None
    progress.info(f"[{order.target}] successfully imported '{move.sent.volid}'")
    progress.info(f"volume '{move.volume.volid}' is '{move.sent.volid}' on the target")


def _take_back(lab: Lab, node: str, vmid: int, target: str, moves: list[_Move]) -> None:
    config = lab.guests.load(node, "lxc", vmid)
    config.values.pop("lock", None)
    lab.guests.save(node, "lxc", vmid, config)
    for move in moves:
        if move.sent is not None:
            move.target.free(target, move.sent)


def _hand_over(lab: Lab, node: str, vmid: int, target: str, moves: list[_Move]) -> None:
    config = lab.guests.load(node, "lxc", vmid)
    rename_volumes(config, {m.volume.volid: m.sent.volid for m in moves if m.sent is not None})
    lab.guests.save(node, "lxc", vmid, config)
    lab.guests.move(node, "lxc", vmid, target)
    for move in moves:
        move.origin.free(node, move.volume)
    config.values.pop("lock", None)
    lab.guests.save(target, "lxc", vmid, config)
