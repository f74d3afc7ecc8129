"""Preflight of templates: storages with their content and room, and where clones may go."""

from __future__ import annotations

from collections.abc import Iterable

from blocks.manifest.guest import CloudInit, Disk, Guest
from blocks.manifest.recipe import TEMPLATE
from blocks.proxmox.inventory import Inventory, StorageRow
from blocks.units import human_size
from tasks.capacity import SEED_ROOM, room_findings, storage_finding
from tasks.findings import Finding, error, warning
from tasks.template.clone_source import drive_storages
from tasks.template.preflight_scope import Scope, clone_places, disk_places, source_of

# Storages of files; a raw file has no snapshots, a qcow2 one has (recorded: 08b-snapshot-errors).
_FILES = frozenset({"dir", "nfs", "cifs", "glusterfs", "cephfs"})
# Neither snapshots nor linked clones, whatever the format.
_PLAIN_BLOCKS = frozenset({"lvm", "iscsi", "iscsidirect"})


def place_findings(scope: Scope, inventory: Inventory) -> list[Finding]:
    """Everything about storages that the bulk read tells. No call."""
    reachable = [
        guest
        for guest in scope.touching
        if (row := inventory.node(guest.node)) is not None and row.online
    ]
    return [
        *(
            finding
            for guest in reachable
            for storage, content, purpose in dict.fromkeys(_wanted(scope, guest))
            if (finding := storage_finding(guest, inventory, storage, content, purpose))
        ),
        *_room(scope, inventory),
        *_seed_room(scope, inventory),
        *_snapshots(scope, inventory),
        *_reach(scope, inventory),
    ]


def _wanted(scope: Scope, guest: Guest) -> list[tuple[str, str, str]]:
    """Storage, content and purpose of everything that a stage puts somewhere."""
    if guest is scope.template:
        if not scope.configuring:
            return []
        places = disk_places(guest)
    else:
        places = clone_places(scope, guest)
    wanted = [(storage, "images", "disks") for _, storage in places]
    if guest.cloud_init is not None:
        wanted += _cloud_init_places(guest.cloud_init)
    return wanted


def _cloud_init_places(told: CloudInit) -> list[tuple[str, str, str]]:
    if told.method == "seed":
        return [(told.storage, "iso", "the seed ISO")]
    wanted = [(told.storage, "images", "the cloud-init drive")]
    if told.method == "snippets" and told.snippet_storage is not None:
        wanted.append((told.snippet_storage, "snippets", "the cloud-init snippets"))
    return wanted


def _room(scope: Scope, inventory: Inventory) -> list[Finding]:
    """What the new disks take, linked clones left out: they begin with nothing of their own."""
    guests = [scope.template] if scope.configuring else []
    for clone in scope.missing:
        if not source_of(clone).full:
            continue
        places = dict(clone_places(scope, clone))
        sizes = {disk.slot: disk for disk in (*scope.template.disks, *clone.disks)}
        disks = tuple(_at(disk, places[slot]) for slot, disk in sizes.items() if slot in places)
        guests.append(clone.model_copy(update={"disks": disks}))
    return room_findings(guests, inventory)


def _at(disk: Disk, storage: str) -> Disk:
    return disk.model_copy(update={"storage": storage})


def _seed_room(scope: Scope, inventory: Inventory) -> list[Finding]:
    found = []
    for guest in scope.touching:
        told = guest.cloud_init
        if told is None or told.method != "seed":
            continue
        row = inventory.storage(guest.node, told.storage)
        if row is not None and row.active and row.total > 0 and row.available < SEED_ROOM:
            found.append(
                error(
                    f"storage {told.storage} on {guest.node} is full: "
                    f"{human_size(row.available)} left",
                    f"the seed ISO needs {human_size(SEED_ROOM)} to be safe",
                    guest=guest.label,
                )
            )
    return found


def _snapshots(scope: Scope, inventory: Inventory) -> list[Finding]:
    """EFI variables and TPM state that make snapshots of every clone impossible."""
    if not scope.configuring:
        return []
    guest = scope.template
    found = []
    for slot, storage, what in (
        ("efidisk0", guest.firmware.efi_storage, "EFI variables"),
        ("tpmstate0", guest.firmware.tpm_storage, "the TPM state"),
    ):
        row = None if storage is None else inventory.storage(guest.node, storage)
        if row is None:
            continue
        if row.plugin in _FILES:
            why = f"{what} ({slot}) will be a raw file on {row.storage} ({row.plugin})"
        elif row.plugin in _PLAIN_BLOCKS:
            why = f"{what} ({slot}) will be a plain volume on {row.storage} ({row.plugin})"
        else:
            continue
        fitting = [
            each.storage
            for each in inventory.storages_of(guest.node)
            if "images" in each.content and each.plugin not in _FILES | _PLAIN_BLOCKS
        ]
        found.append(
            warning(
                f"{why}: guests of this template cannot have snapshots",
                f"put it on {' or '.join(fitting) or 'LVM-thin, ZFS or Ceph'} for snapshots",
                guest=guest.label,
            )
        )
    return found


def _reach(scope: Scope, inventory: Inventory) -> list[Finding]:
    found: list[Finding] = []
    for clone in scope.missing:
        source = source_of(clone)
        if not source.full and source.storage is not None:
            found.append(
                error(
                    f"a linked clone lies on its template's storage, not on {source.storage}",
                    "leave `storage` out, or make it a full clone",
                    guest=clone.label,
                )
            )
        if not source.full:
            found += _linkable(scope, clone, inventory)
        if clone.node != scope.template.node:
            found += _elsewhere(scope, clone, inventory)
    return found


def _linkable(scope: Scope, clone: Guest, inventory: Inventory) -> list[Finding]:
    plain = sorted(
        {
            row.storage
            for _, storage in disk_places(scope.template)
            if (row := inventory.storage(scope.template.node, storage)) is not None
            and row.plugin in _PLAIN_BLOCKS
        }
    )
    return [
        error(
            f"storage {', '.join(plain)} cannot have linked clones",
            "make it a full clone, or put the template on LVM-thin, ZFS, Ceph or a directory",
            guest=clone.label,
        )
        for _ in plain[:1]
    ]


def _elsewhere(scope: Scope, clone: Guest, inventory: Inventory) -> list[Finding]:
    """Proxmox VE clones to another node only from shared storages to shared storages.

    Recorded for one node only; the rule is the server's documented one.
    """
    home = scope.template.node
    disks, media = (
        sorted(
            storage
            for storage in storages
            if (row := inventory.storage(home, storage)) is not None and not row.shared
        )
        for storages in _used(scope)
    )
    what = "full" if source_of(clone).full else "linked"
    problem = f"a {what} clone cannot go to {clone.node}: the template on {home}"
    if disks:
        shared = _shared(inventory, "images", home, clone.node)
        instead = f"on shared storage ({', '.join(shared)})" if shared else "on shared storage"
        return [
            error(
                f"{problem} uses local storage ({', '.join(disks)})",
                f"put the template {instead}, or the clone on {home}",
                guest=clone.label,
            )
        ]
    if media:
        return [
            error(
                f"{problem} has what cloud-init is told on local storage ({', '.join(media)})",
                _instead(scope, clone, inventory),
                guest=clone.label,
            )
        ]
    target = source_of(clone).storage
    row = None if target is None else inventory.storage(clone.node, target)
    if row is None or row.shared:
        return []
    return [
        error(
            f"a clone cannot go from {home} to {clone.node} and to local storage {target} at once",
            "name a shared storage; move the disks afterwards if they are to be local",
            guest=clone.label,
        )
    ]


def _used(scope: Scope) -> tuple[set[str], set[str]]:
    """Storages of the template's disks, and of what is in its CD drives.

    Those of a finished one are what it has, whatever is declared by now.
    """
    template = scope.template
    if not scope.finished:
        told = {template.cloud_init.storage} if template.cloud_init is not None else set[str]()
        return {storage for _, storage in disk_places(template)}, told
    config = scope.ours[TEMPLATE].live.config
    disks, media = set[str](), set[str]()
    for slot, storage in drive_storages(config):
        (media if "media=cdrom" in str(config[slot]) else disks).add(storage)
    return disks, media


def _instead(scope: Scope, clone: Guest, inventory: Inventory) -> str:
    told = scope.template.cloud_init
    seed = told is not None and told.method == "seed"
    shared = _shared(inventory, "iso" if seed else "images", scope.template.node, clone.node)
    names = " or ".join(shared) or f"a shared one with content '{'iso' if seed else 'images'}'"
    fields = ", or 'method: fields' where the image has the guest agent" if seed else ""
    built = " and build the template anew" if scope.finished else ""
    return (
        f"write {names} under cloud_init.storage{fields}{built}; or put the clone on "
        f"{scope.template.node}"
    )


def _shared(inventory: Inventory, content: str, *nodes: str) -> list[str]:
    def fits(row: StorageRow) -> bool:
        return row.shared and row.active and content in row.content

    names: Iterable[set[str]] = (
        {row.storage for row in inventory.storages_of(node) if fits(row)} for node in nodes
    )
    return sorted(set.intersection(*names))
