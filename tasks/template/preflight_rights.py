"""Preflight of templates: the privileges that the stages asked for need, and on which paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from blocks.manifest.guest import Guest
from blocks.proxmox.inventory import Permissions
from tasks.findings import Finding, warning
from tasks.iso.source import is_url
from tasks.rights import Wants, lacking_rights
from tasks.template.preflight_scope import Scope, clone_places, disk_places

_MACHINE = (
    "VM.Allocate",
    "VM.Audit",
    "VM.Config.CPU",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
)
_DISKS = ("VM.Audit", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Options")
_CLOUD_INIT = ("VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Config.Network")
_DOWNLOAD = ("Sys.Audit", "Sys.Modify")

_Paths = dict[str, set[str]]


def template_rights(scope: Scope) -> Wants:
    """Path to privileges for what the stages will do, and for taking it back."""
    wants: _Paths = defaultdict(set)
    template = scope.template
    vm = f"/vms/{template.vmid}"
    if (image := scope.image) is not None:
        wants[f"/storage/{image.storage}"].update(("Datastore.Audit", "Datastore.AllocateTemplate"))
        if image.fetch == "node" and is_url(image.origin):
            wants[f"/nodes/{template.node}"].update(_DOWNLOAD)
    if scope.creating:
        wants[vm].update(_MACHINE)
        _cards(wants, template)
        _pool(wants, template)
    if scope.configuring:
        wants[vm].update(_DISKS)
        _devices(wants, template)
        _disks(wants, (storage for _, storage in disk_places(template)))
        _cloud_init(wants, template)
        if template.image is not None:
            wants[f"/storage/{template.image.storage}"].add("Datastore.Audit")
    if scope.converting:
        wants[vm].update(("VM.Allocate", "VM.Audit", "VM.Config.Options", "VM.PowerMgmt"))
        if scope.recipe.alias.pool:
            wants[f"/pool/{scope.recipe.alias.pool}"].update(("Pool.Allocate", "Pool.Audit"))
    if scope.missing:
        wants[vm].update(("VM.Audit", "VM.Clone"))
    for clone in scope.clones:
        _clone(wants, scope, clone)
    return {path: frozenset(privileges) for path, privileges in sorted(wants.items())}


def right_findings(scope: Scope, permissions: Permissions, who: str) -> list[Finding]:
    """What the caller lacks; a warning where there is another way. No call."""
    pools = {
        f"/vms/{guest.vmid}": guest.pool
        for guest in (scope.template, *scope.recipe.clones)
        if guest.pool is not None
    }
    found = lacking_rights(template_rights(scope), permissions, who, pools)
    image = scope.image
    if image is not None and image.fetch == "auto" and is_url(image.origin):
        path = f"/nodes/{scope.template.node}"
        if missing := permissions.missing(path, _DOWNLOAD):
            found.append(
                warning(
                    f"{who} lacks {', '.join(missing)} on {path}: the node cannot be told to "
                    "download, so the image is fetched here and uploaded",
                    "grant it, or write fetch: here to have it so",
                    guest=scope.template.label,
                )
            )
    return found


def _clone(wants: _Paths, scope: Scope, clone: Guest) -> None:
    vm = f"/vms/{clone.vmid}"
    wants[vm].update((*_MACHINE, *_DISKS, "VM.PowerMgmt"))
    _cards(wants, clone)
    _devices(wants, clone)
    _devices(wants, scope.template)  # what a clone inherits it must be allowed to use
    _pool(wants, clone)
    _disks(wants, (storage for _, storage in clone_places(scope, clone)))
    _cloud_init(wants, clone)


def _cards(wants: _Paths, guest: Guest) -> None:
    for nic in guest.nics:
        wants[f"/sdn/zones/localnetwork/{nic.bridge}"].add("SDN.Use")


def _devices(wants: _Paths, guest: Guest) -> None:
    for device in guest.pci:
        if device.mapping:
            wants[f"/mapping/pci/{device.mapping}"].add("Mapping.Use")


def _pool(wants: _Paths, guest: Guest) -> None:
    if guest.pool:
        wants[f"/pool/{guest.pool}"].update(("Pool.Audit", "VM.Allocate"))


def _disks(wants: _Paths, storages: Iterable[str]) -> None:
    for storage in storages:
        wants[f"/storage/{storage}"].add("Datastore.AllocateSpace")


def _cloud_init(wants: _Paths, guest: Guest) -> None:
    told = guest.cloud_init
    if told is None:
        return
    wants[f"/vms/{guest.vmid}"].update(_CLOUD_INIT)
    place = wants[f"/storage/{told.storage}"]
    if told.method == "seed":
        place.update(("Datastore.Audit", "Datastore.AllocateTemplate", "Datastore.Allocate"))
    else:
        place.add("Datastore.AllocateSpace")
    if told.method == "snippets" and told.snippet_storage is not None:
        wants[f"/storage/{told.snippet_storage}"].add("Datastore.Audit")
