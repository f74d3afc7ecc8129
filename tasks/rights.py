"""Preflight: which privileges the run needs, and on which paths.

Measured against a Proxmox VE 9.2 server, call by call; see docs/connecting.md for the role.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from blocks.manifest.guest import Guest
from blocks.proxmox.inventory import Permissions
from tasks.capacity import disk_storages
from tasks.findings import Finding, error

_CREATE = (
    "VM.Allocate",
    "VM.Audit",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
)
AGENT = "VM.GuestAgent.Audit"
# Each of these lets a caller ask the guest agent, too; the last one up to Proxmox VE 8.
_AGENT_TOO = ("VM.GuestAgent.Unrestricted", "VM.Monitor")


Wants = Mapping[str, frozenset[str]]
"""Path to privileges."""


def needed(guests: Iterable[Guest]) -> Wants:
    """Path to privileges, for creating these guests, watching them and removing them again."""
    wants: dict[str, set[str]] = defaultdict(set)
    for guest in guests:
        wants[f"/vms/{guest.vmid}"].update(_CREATE)
        if guest.agent:
            wants[f"/vms/{guest.vmid}"].add(AGENT)
        for storage in disk_storages(guest):
            wants[f"/storage/{storage}"].add("Datastore.AllocateSpace")
        for disk in guest.disks:
            if disk.shared_with is not None:  # a volume of another guest
                wants[f"/storage/{disk.storage}"].add("Datastore.Allocate")
        for nic in guest.nics:
            wants[f"/sdn/zones/localnetwork/{nic.bridge}"].add("SDN.Use")
        if guest.install is not None:
            place = wants[f"/storage/{guest.install.iso.partition(':')[0]}"]
            place.add("Datastore.Audit")
            if guest.install.origin is not None:
                place.add("Datastore.AllocateTemplate")
            wants[f"/storage/{guest.install.seed_storage}"].update(
                ("Datastore.Audit", "Datastore.AllocateTemplate", "Datastore.Allocate")
            )
        for device in guest.pci:
            if device.mapping:
                wants[f"/mapping/pci/{device.mapping}"].add("Mapping.Use")
        if guest.pool:
            wants[f"/pool/{guest.pool}"].update(("Pool.Audit", "VM.Allocate"))
    return {path: frozenset(privileges) for path, privileges in sorted(wants.items())}


def check_rights(guests: Iterable[Guest], permissions: Permissions, who: str) -> list[Finding]:
    """A finding for each path on which something is missing. No call is made."""
    return lacking_rights(needed(guests), permissions, who)


def lacking_rights(
    wants: Wants,
    permissions: Permissions,
    who: str,
    pools: Mapping[str, str] | None = None,
) -> list[Finding]:
    """A finding for each path on which something is missing, the remedy with the last one.

    ``pools``: path of a guest to the pool it is or will be in, which lends its privileges.
    """
    lends = pools or {}
    lacking = {
        path: missing
        for path, privileges in wants.items()
        if (missing := _missing(permissions, path, privileges, lends.get(path)))
    }
    if not lacking:
        return []
    everything = sorted({privilege for missing in lacking.values() for privilege in missing})
    found = [
        error(f"{who} lacks {', '.join(missing)} on {path}") for path, missing in lacking.items()
    ]
    role = f"pveum role add Proxflow --privs '{','.join(everything)}'"
    kind = "--tokens" if "!" in who else "--users"
    grant = f"pveum acl modify {_common(lacking)} {kind} '{who}' --roles Proxflow"
    found[-1] = error(found[-1].problem, f"on a node, as root: {role} && {grant}")
    return found


def _missing(
    permissions: Permissions, path: str, privileges: frozenset[str], pool: str | None
) -> list[str]:
    if permissions.privileges(path).intersection(_AGENT_TOO):
        privileges -= {AGENT}
    return sorted(permissions.missing(path, privileges, pool=pool))


def _common(paths: Iterable[str]) -> str:
    """The path to grant on: the one that is lacking, or the root when there are several."""
    several = list(paths)
    return several[0] if len(several) == 1 else "/"
