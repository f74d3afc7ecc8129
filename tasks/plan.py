"""Plan: what is to be done so that the cluster holds what an environment declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark, read_mark
from blocks.manifest.plans import Action, Change, Creation, GuestPlan, Plan
from blocks.proxmox.properties import UnsupportedGuest, decode
from blocks.units import human_size
from tasks.diff import diff
from tasks.iso.distros import distro
from tasks.iso.source import is_url, shown
from tasks.medium import must_rewrite
from tasks.update import update_params

__all__ = ["diff", "make_plan", "update_params"]


class GuestRow(Protocol):
    """A guest that the cluster has, as its list of resources tells it."""

    @property
    def vmid(self) -> int:
        """Number of the guest, unique in the cluster."""
        ...

    @property
    def name(self) -> str | None:
        """Name of the guest; the server may not know it yet."""
        ...

    @property
    def node(self) -> str:
        """Where it lives."""
        ...

    @property
    def kind(self) -> str:
        """``qemu`` or ``lxc``."""
        ...


class GuestRows(Protocol):
    """Everything that the cluster has."""

    @property
    def guests(self) -> Iterable[GuestRow]:
        """Its guests, in any order."""
        ...


class Declared(Protocol):
    """What an operator declared."""

    @property
    def name(self) -> str:
        """Name of the environment."""
        ...

    @property
    def guests(self) -> Iterable[Guest]:
        """Its guests, in the order of the manifest."""
        ...


def make_plan(
    environment: Declared,
    inventory: GuestRows,
    configs: Mapping[int, Mapping[str, Any]],
    *,
    cluster: str | None = None,
) -> Plan:
    """One GuestPlan for each declared guest, in the order of the manifest.

    ``configs``: vmid to config, of those declared guests that exist; one that is missing there is
    taken for somebody else's, since nothing tells whose it is. Ours is only what carries our mark.
    Never raises for what the cluster holds.
    """
    rows = {row.vmid: row for row in inventory.guests}
    return Plan(
        env=environment.name,
        cluster=cluster,
        guests=tuple(
            _plan(environment.name, guest, rows.get(guest.vmid), configs.get(guest.vmid))
            for guest in environment.guests
        ),
    )


def _plan(
    env: str, guest: Guest, row: GuestRow | None, config: Mapping[str, Any] | None
) -> GuestPlan:
    plan = GuestPlan(
        label=guest.label,
        node=guest.node,
        vmid=guest.vmid,
        name=guest.name,
        action=Action.CREATE,
        creation=_creation(guest),
    )
    if row is None:
        return plan
    mark = read_mark(str(config.get("description", ""))) if config is not None else None
    strange = _strange(env, guest, row, config, mark)
    if strange or config is None or mark is None:
        return _with(plan, Action.FOREIGN, strange)
    try:
        live = decode(config, node=row.node, vmid=guest.vmid, kind=guest.kind, label=guest.label)
    except (ValueError, UnsupportedGuest) as error:
        return _with(plan, Action.IMPOSSIBLE, f"its config cannot be read: {error}", mark)
    if not mark.ready:
        # While it installs, drives and boot order are the installation's.
        guest = guest.model_copy(update={"drives": {}, "boot": ()})
    changes = diff(guest, live)
    if stuck := [change for change in changes if not change.in_place]:
        return _with(plan, Action.IMPOSSIBLE, _why(stuck), mark, changes)
    if not mark.ready:
        reason = f"run {mark.run} did not finish its installation"
        return _with(plan, Action.RESUME, reason, mark, changes)
    return _with(plan, Action.UPDATE if changes else Action.UNCHANGED, "", mark, changes)


def _strange(
    env: str,
    guest: Guest,
    row: GuestRow,
    config: Mapping[str, Any] | None,
    mark: Mark | None,
) -> str:
    """Why a guest with that number is not ours; empty when it is."""
    what = "container" if row.kind == "lxc" else "virtual machine"
    there = f"{guest.vmid} is taken by {what} {row.name or '(no name)'!r} on {row.node}"
    if config is None:
        return f"{there}, whose config cannot be read"
    if mark is None:
        return f"{there}, which carries no mark of ours; choose another vmid"
    if mark.vmid != guest.vmid:
        return f"{there}, which is a copy of VM {mark.vmid}: it carries that one's mark"
    if mark.env != env:
        return f"{there}, which belongs to environment {mark.env!r}"
    if mark.guest != guest.label:
        return f"{there}, which is guest {mark.guest!r} of this environment"
    return "" if row.kind == guest.kind else f"{there}; declared is another kind of guest"


def _with(
    plan: GuestPlan,
    action: Action,
    reason: str,
    mark: Mark | None = None,
    changes: tuple[Change, ...] = (),
) -> GuestPlan:
    return plan.model_copy(
        update={
            "action": action,
            "reason": reason,
            "run": mark.run if mark else None,
            "changes": changes,
            "creation": None,
        }
    )


def _why(stuck: list[Change]) -> str:
    for change in stuck:
        if change.target == "node":
            return f"it lives on {change.before}, declared is {change.after}; {change.note}"
    return "; ".join(f"{change.target}: {change.note}" for change in stuck)


def _creation(guest: Guest) -> Creation:
    firmware = guest.firmware
    tpm = " with TPM" if firmware.tpm_storage else ""
    secure = " with Secure Boot" if firmware.secure_boot and firmware.efi_storage else ""
    return Creation(
        cores=guest.cores * guest.sockets,
        memory=guest.memory,
        firmware=f"{firmware.bios}, {firmware.machine}{secure}{tpm}",
        disks=tuple(
            f"{disk.slot}: {human_size(disk.size)} on {disk.storage}"
            + (f", of guest {disk.shared_with.vmid}" if disk.shared_with else "")
            for disk in guest.disks
        ),
        nics=tuple(
            f"{nic.slot}: {nic.model} on {nic.bridge}" + (f", VLAN {nic.vlan}" if nic.vlan else "")
            for nic in guest.nics
        ),
        iso=guest.install.iso if guest.install else None,
        medium=_medium(guest),
        seed=guest.install.seed_storage if guest.install else None,
    )


def _medium(guest: Guest) -> str | None:
    """What is done about the install ISO before it is used, in words."""
    if guest.install is None or guest.install.origin is None:
        return None
    origin = shown(guest.install.origin)
    if must_rewrite(guest) is None:
        how = "downloaded" if is_url(guest.install.origin) else "uploaded"
        return f"{how} from {origin} if it is not there"
    title = distro(guest.install.installation.distro).title
    return f"rewritten from {origin} so that {title} asks nothing, and uploaded if it is not there"
