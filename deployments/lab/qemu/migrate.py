"""Moving machines to another node: what stands in the way, and the task itself.

Nothing here was recorded; it follows the public source of qemu-server 9.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig, Section
from deployments.lab.errors import ApiError, failure
from deployments.lab.formats import parse_size
from deployments.lab.guests import check_lock
from deployments.lab.migration import (
    ProblemsError,
    Progress,
    StorageMap,
    connect,
    enabled_storage,
    migration,
    rename_volumes,
    send_volume,
)
from deployments.lab.qemu.devices import (
    Drive,
    drives,
    is_drive_key,
    is_unused_key,
    nets,
    parse_drive,
)
from deployments.lab.qemu.options import USB_FORMAT
from deployments.lab.qemu.status import memory_bytes
from deployments.lab.schema import parse_property_string
from deployments.lab.storage import Storage, Volume
from deployments.lab.tasks import Task

_LOCAL_KINDS = ("hostpci", "parallel", "serial", "usb")


@dataclass
class Reference:
    """One volume of a configuration and where it is named."""

    volid: str
    cdrom: bool = True
    unused: bool = False
    attached: bool = False
    pending: bool = False
    shared: bool = False
    cloudinit: bool = False
    tpm: bool = False
    snapshots: list[str] = field(default_factory=list)
    drive: str | None = None
    size: int | None = None

    def row(self) -> dict[str, Any]:
        """As the answer about preconditions shows it."""
        row: dict[str, Any] = {
            "volid": self.volid,
            "cdrom": int(self.cdrom),
            "is_attached": int(self.attached),
            "is_cloudinit": int(self.cloudinit),
            "is_tpmstate": int(self.tpm),
            "is_unused": int(self.unused),
            "is_vmstate": 0,
            "replicate": 1,
            "shared": int(self.shared),
        }
        if self.drive:
            row["drivename"] = self.drive
        if self.size is not None:
            row["size"] = self.size
        if self.snapshots:
            row["referenced_in_snapshot"] = dict.fromkeys(self.snapshots, 1)
        if self.pending:
            row["referenced_in_pending"] = 1
        return row


def references(config: GuestConfig) -> list[Reference]:
    """Every volume named by drives and unused disks, pending values and snapshots."""
    found: dict[str, Reference] = {}

    def walk(section: Section, snapshot: str | None = None, pending: bool = False) -> None:
        for key in sorted(section):
            if not (is_drive_key(key) or is_unused_key(key)):
                continue
            drive = parse_drive(key, section[key])
            one = found.setdefault(drive.file, Reference(drive.file))
            _note(one, key, drive)
            one.attached |= not (is_unused_key(key) or snapshot or pending)
            one.pending |= pending
            if snapshot:
                one.snapshots.append(snapshot)

    walk(config.values)
    walk(config.pending, pending=True)
    for name, section in config.snapshots.items():
        walk(section, snapshot=name)
    return list(found.values())


def _note(one: Reference, key: str, drive: Drive) -> None:
    one.cdrom &= drive.is_cdrom
    one.unused |= is_unused_key(key)
    one.shared |= drive.values.get("shared") == 1
    one.cloudinit |= drive.is_cloudinit
    one.tpm |= drive.bus == "tpmstate"
    if is_drive_key(key):
        one.drive = key
    size = parse_size(str(drive.values.get("size", "")))
    one.size = size if size is not None else one.size


def local_references(lab: Lab, config: GuestConfig) -> list[Reference]:
    """Those on storages that the nodes do not share."""
    local = []
    for one in references(config):
        storage = lab.storages.find(one.volid.partition(":")[0])
        if one.volid == "none" or one.shared or (storage is not None and storage.config.shared):
            continue
        local.append(one)
    return local


def local_devices(values: Section) -> list[str]:
    """Options that bind a machine to the hardware of its node."""
    bound = []
    for key in sorted(values):
        kind = key.rstrip("0123456789")
        if kind not in _LOCAL_KINDS or (kind == "serial" and values[key] == "socket"):
            continue
        if kind == "usb":
            given = parse_property_string(values[key], USB_FORMAT)
            if given.get("host") == "spice" or "mapping" in given:
                continue
        if kind == "hostpci" and "mapping=" in values[key]:
            continue
        bound.append(key)
    return bound


def preconditions(lab: Lab, node: str, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """What ``GET migrate`` answers."""
    nodes: dict[str, dict[str, list[str]]] = {name: {} for name in lab.nodes if name != node}
    for drive in drives(config.values):
        storage = lab.storages.find(drive.file.partition(":")[0])
        if storage is None:
            continue
        for name, blockers in nodes.items():
            if storage.config.disabled or not storage.serves(name):
                missing = {*blockers.get("unavailable_storages", []), storage.id}
                blockers["unavailable_storages"] = sorted(missing)
    return {
        "running": int(lab.life.running(vmid) is not None),
        "allowed_nodes": [name for name, blockers in nodes.items() if not blockers],
        "not_allowed_nodes": nodes,
        "local_disks": [one.row() for one in local_references(lab, config)],
        "local_resources": local_devices(config.values),
        "mapped-resources": [],
        "mapped-resource-info": {},
        "has-dbus-vmstate": 1,
    }


def check_available(lab: Lab, node: str, target: str, values: Section) -> None:
    """500 when a storage of a drive is missing on the target."""
    for drive in drives(values):
        if ":" not in drive.file:
            continue
        _, volume = lab.storages.volume(drive.file)
        enabled_storage(lab, volume.storage, node)
        storage = enabled_storage(lab, volume.storage, target)
        _check_content(storage, volume)


def _check_content(storage: Storage, volume: Volume) -> None:
    if volume.vtype not in storage.config.content:
        text = f"content type '{volume.vtype}' is not available on storage '{storage.id}'"
        raise failure(f"{volume.volid}: {text}")


@dataclass(frozen=True)
class Order:
    """What a migration shall do."""

    target: str
    online: bool = False
    with_local_disks: bool = False
    force: bool = False
    storages: StorageMap = field(default_factory=StorageMap)


@dataclass
class _Move:
    reference: Reference
    origin: Storage
    volume: Volume
    target: Storage
    sent: Volume | None = None


async def migrate(lab: Lab, node: str, vmid: int, order: Order, task: Task) -> None:
    """The task: disks are copied, the configuration changes nodes, the machine goes on."""
    with migration(task) as progress:
        async with lab.guests.lock(vmid):
            await _migrate(lab, node, vmid, order, progress)


async def _migrate(lab: Lab, node: str, vmid: int, order: Order, progress: Progress) -> None:
    config = lab.guests.load(node, "qemu", vmid)
    running = _prepare(lab, node, vmid, config, order, progress)
    address = lab.nodes[order.target].ip
    progress.info(f"starting migration of VM {vmid} to node '{order.target}' ({address})")
    config.values["lock"] = "migrate"
    lab.guests.save(node, "qemu", vmid, config)
    moves: list[_Move] = []
    try:
        try:
            moves = _scan(lab, node, vmid, config, order, running, progress)
            _copy_offline(lab, node, vmid, order, moves, running, progress)
        except ApiError as error:
            progress.error(error.as_exit_status())
            progress.info("aborting phase 1 - cleanup resources")
            raise
        if running:
            await _live(lab, node, vmid, config, order, moves, progress)
        else:
            await lab.clock.work("qmigrate")
    except BaseException:
        _take_back(lab, node, vmid, order.target, moves)
        raise
    _hand_over(lab, node, vmid, order.target, moves)


def _prepare(
    lab: Lab, node: str, vmid: int, config: GuestConfig, order: Order, progress: Progress
) -> bool:
    check_lock(config)
    running = lab.life.running(vmid) is not None
    if running and not order.online:
        raise failure("can't migrate running VM without --online")
    devices = local_devices(config.values)
    if devices:
        if running or not order.force:
            raise failure(f"can't migrate VM which uses local devices: {', '.join(devices)}")
        progress.info("migrating VM which uses local devices")
    for one in references(config):
        if one.cdrom and not one.cloudinit:
            continue
        _, volume = lab.storages.volume(one.volid)
        source = enabled_storage(lab, volume.storage, node)
        name = source.id if source.config.shared else order.storages.target(source.id)
        _check_content(enabled_storage(lab, name, order.target), volume)
    connect(lab, order.target, progress)
    return running


def _scan(
    lab: Lab,
    node: str,
    vmid: int,
    config: GuestConfig,
    order: Order,
    running: bool,
    progress: Progress,
) -> list[_Move]:
    moves: list[_Move] = []
    errors: dict[str, str] = {}
    others: list[str] = []
    for one in references(config):
        if one.volid == "none":
            continue
        if one.volid == "cdrom":
            others.append("can't migrate local cdrom drive")
            continue
        try:
            move = _examine(lab, node, vmid, one, order, running)
        except ApiError as error:
            errors[one.volid] = error.reason
            continue
        if move is not None:
            moves.append(move)
    moves.sort(key=lambda move: move.volume.volid)
    _report(moves, errors, others, order, running, progress)
    try:
        if errors or others:
            raise failure("can't migrate VM - check log")
        for move in moves:
            if move.volume.base:
                clone = f"can't migrate '{move.volume.volid}' as it's a clone of"
                raise failure(f"{clone} '{move.volume.base.rpartition('/')[2]}'")
    except ApiError as error:
        raise failure(f"Problem found while scanning volumes - {error.reason}") from None
    return moves


def _report(
    moves: list[_Move],
    errors: dict[str, str],
    others: list[str],
    order: Order,
    running: bool,
    progress: Progress,
) -> None:
    for move in moves:
        one = move.reference
        if one.attached and _kind(one) == "attached" and running and not order.with_local_disks:
            option = "can't live migrate attached local disks without with-local-disks option"
            errors[one.volid] = option
        progress.info(_FOUND[_kind(one)].format(one.volid))
    for volid in sorted(errors):
        progress.info(f"can't migrate local disk '{volid}': {errors[volid]}")
    for text in others:
        progress.info(text)


_FOUND = {
    "attached": "found local disk '{}' (attached)",
    "generated": "found generated disk '{}' (in current VM config)",
    "unused": "found local disk '{}' (unused)",
    "snapshot": "found local disk '{}' (referenced by snapshot(s))",
    "pending": "found local disk '{}' (pending change)",
}


def _kind(one: Reference) -> str:
    if one.tpm or one.cloudinit:
        return "generated"
    if one.attached:
        return "attached"
    if one.unused:
        return "unused"
    return "snapshot" if one.snapshots else "pending"


def _examine(
    lab: Lab, node: str, vmid: int, one: Reference, order: Order, running: bool
) -> _Move | None:
    from deployments.lab.api.storage import linked_clones

    if one.volid.startswith("/"):
        if one.shared:
            return None
        raise failure("local file/device")
    origin, volume = lab.storages.volume(one.volid, node)
    name = origin.id if origin.config.shared else order.storages.target(origin.id)
    target = enabled_storage(lab, name, order.target)
    _check_content(target, volume)
    if origin.config.shared:
        return None
    if one.cdrom and not one.cloudinit:
        raise failure("local cdrom image")
    if volume.vmid != vmid:
        raise failure(f"owned by other VM (owner = VM {volume.vmid or ''})")
    if one.snapshots and running:
        raise failure("online storage migration not possible if non-replicated snapshot exists")
    if one.snapshots and volume.format != "qcow2":
        raise failure("non-migratable snapshot exists")
    if linked_clones(origin, node, volume):
        raise failure("referenced by linked clone(s)")
    return _Move(one, origin, volume, target)


def _copy_offline(
    lab: Lab,
    node: str,
    vmid: int,
    order: Order,
    moves: list[_Move],
    running: bool,
    progress: Progress,
) -> None:
    offline = [move for move in moves if not (running and _kind(move.reference) == "attached")]
    if offline:
        progress.info("copying local disk images")
    for move in offline:
        place, target = (move.origin, node, move.volume), (move.target, order.target)
        try:
            keep = move.reference.cloudinit
            move.sent = send_volume(lab, place, target, vmid, keep_name=keep)
        except ApiError as error:
            what = f"storage migration for '{move.volume.volid}' to storage '{move.target.id}'"
            raise failure(f"{what} failed - {error.reason}") from None
        progress.info(f"[{order.target}] successfully imported '{move.sent.volid}'")
        progress.info(f"volume '{move.volume.volid}' is '{move.sent.volid}' on the target")


async def _live(
    lab: Lab,
    node: str,
    vmid: int,
    config: GuestConfig,
    order: Order,
    moves: list[_Move],
    progress: Progress,
) -> None:
    progress.info(f"starting VM {vmid} on remote node '{order.target}'")
    online = [move for move in moves if move.sent is None]
    try:
        for _, card in nets(config.values):
            if card.get("bridge") and lab.bridge(order.target, str(card["bridge"])) is None:
                progress.info(f"[{order.target}] bridge '{card['bridge']}' does not exist")
                raise failure("remote command failed with exit code 255")
        for move in online:
            place, target = (move.origin, node, move.volume), (move.target, order.target)
            move.sent = send_volume(lab, place, target, vmid, mirror=True)
            progress.info(f"volume '{move.volume.volid}' is '{move.sent.volid}' on the target")
    except ApiError as error:
        progress.error(f"online migrate failure - {error.as_exit_status()}")
        progress.info("aborting phase 2 - cleanup resources")
        progress.info("migrate_cancel")
        raise ProblemsError from None
    socket = f"unix:/run/qemu-server/{vmid}"
    progress.info("start remote tunnel")
    progress.info("ssh tunnel ver 1")
    if online:
        progress.info("starting storage migration")
        for move in online:
            export = f"nbd:{socket}_nbd.migrate:exportname=drive-{move.reference.drive}"
            progress.info(f"{move.reference.drive}: start migration to {export}")
    progress.info(f"starting online/live migration on {socket}.migrate")
    progress.info("set migration capabilities")
    progress.info("migration downtime limit: 100 ms")
    progress.info("set migration parameters")
    progress.info(f"start migrate command to {socket}.migrate")
    await lab.clock.work("qmigrate")
    mebibytes = memory_bytes(config.values) / (1 << 20)
    progress.info(f"average migration speed: {mebibytes / 12:.1f} MiB/s - downtime 42 ms")
    progress.info("migration status: completed")
    if online:
        progress.info("stopping NBD storage migration server on target.")


def _take_back(lab: Lab, node: str, vmid: int, target: str, moves: list[_Move]) -> None:
    config = lab.guests.load(node, "qemu", vmid)
    config.values.pop("lock", None)
    lab.guests.save(node, "qemu", vmid, config)
    for move in moves:
        if move.sent is not None:
            move.target.free(target, move.sent)


def _hand_over(lab: Lab, node: str, vmid: int, target: str, moves: list[_Move]) -> None:
    config = lab.guests.load(node, "qemu", vmid)
    rename_volumes(config, {m.volume.volid: m.sent.volid for m in moves if m.sent is not None})
    lab.guests.save(node, "qemu", vmid, config)
    lab.guests.move(node, "qemu", vmid, target)
    lab.life.moved(vmid, target)
    for move in moves:
        move.origin.free(node, move.volume)
    config.values.pop("lock", None)
    lab.guests.save(target, "qemu", vmid, config)
    lab.life.config_changed(vmid, config.values)
