"""How what cloud-init is told gets to a guest: options, snippets or a seed ISO.

For a template and for its clones alike. A clone begins with what its template was told, so what is
not declared for it is taken away again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from blocks.manifest.guest import CloudInit, Guest
from blocks.proxmox.client import api_path
from blocks.proxmox.errors import PermissionDenied, ProxmoxError
from blocks.proxmox.inventory import guest_path, read_inventory
from blocks.proxmox.properties import (
    cloud_init_drives,
    decode_cloud_init,
    encode_cicustom,
    encode_cloud_init,
    encode_drive,
)
from blocks.proxmox.properties.cloudinit import HIDDEN
from tasks.cloudinit.documents import Documents, documents
from tasks.cloudinit.seed import place_seed, seed_of
from tasks.cloudinit.snippets import place_snippets
from tasks.destroy import drives_with
from tasks.drives import EMPTY, drive_volume
from tasks.errors import StageError
from tasks.found import look
from tasks.iso.checks import RenderError
from tasks.session import Session

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Carried:
    """What the caller is to set and to delete in the guest's config; nothing where all is done.

    ``values`` may hold a password hash, so they are not in the repr. ``older``: volume ids of the
    guest's seeds and snippets with other content, which ``sweep`` removes once the config is set.
    """

    values: dict[str, Any] = field(default_factory=dict, repr=False)
    delete: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    older: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether there is anything to set or to delete."""
        return bool(self.values or self.delete)


def carry(here: Session, guest: Guest, config: Config | None = None) -> Carried:
    """Put what cloud-init is told where the guest finds it, and say what its config needs then.

    Seed ISO and snippets are written unless they are there with that content. ``config``: the
    guest's, as it is now; by default as it was last read in this run. Drives are among the values:
    a boot order that is set with them goes into a call of its own (``tasks.drives.in_turn``).
    The values hold for the next start. Raises StageError or ProxmoxError.
    """
    told = guest.cloud_init
    if told is None:
        return Carried()
    live = _config(here, guest) if config is None else config
    if told.method == "fields":
        return _by_fields(here, guest, told, live)
    try:
        made = documents(guest, env=here.environment.name)
    except RenderError as error:
        raise StageError(
            f"{guest.label}: {error.key} {error.problem}", advice="correct it in the manifest"
        ) from None
    if told.method == "snippets":
        return _by_snippets(here, guest, told, made, live)
    return _by_seed(here, guest, told, made, live)


def sweep(here: Session, guest: Guest, carried: Carried) -> tuple[str, ...]:
    """Delete the guest's older seeds and snippets that no guest uses. Returns warnings.

    To be called once the config is set. No call where there is nothing older; else every guest of
    the cluster is looked at, since a clone holds its template's seed until it has its own.
    """
    if not carried.older:
        return ()
    looked = look(here.client, read_inventory(here.client))
    if looked.hidden:
        return ()
    kept: list[str] = []
    for volid in carried.older:
        in_cicustom = any(volid in str(one.live.config.get("cicustom")) for one in looked.guests)
        if in_cicustom or drives_with(volid, looked.guests):
            continue
        storage = volid.partition(":")[0]
        path = api_path("nodes", guest.node, "storage", storage, "content", volid)
        try:
            here.client.run("DELETE", path)
        except PermissionDenied:
            kept.append(volid)
    if not kept:
        return ()
    return (f"{', '.join(kept)} is not used any more; this user may not delete it",)


def _config(here: Session, guest: Guest) -> Config:
    live = here.live(guest)
    return {} if live is None else live.config


def _by_fields(here: Session, guest: Guest, told: CloudInit, live: Config) -> Carried:
    wanted = {key: str(value) for key, value in encode_cloud_init(guest).items()}
    if _password_is(here, guest, wanted.get(HIDDEN), live):
        wanted.pop(HIDDEN)
        known = {HIDDEN}
    else:
        known = set[str]()
    drive, gone = _drive(guest, told, live)
    values, delete = _settle(live, wanted, known)
    warnings: tuple[str, ...] = ()
    if guest.clone is not None and told.hostname != guest.name.partition(".")[0]:
        warnings = (
            f"{guest.label} will be called {guest.name}, not {told.hostname}: the options of "
            "Proxmox VE take the guest's name; method seed or snippets would set it",
        )
    return Carried({**values, **drive}, (*delete, *gone), warnings)


def _by_snippets(
    here: Session, guest: Guest, told: CloudInit, made: Documents, live: Config
) -> Carried:
    written = place_snippets(here, guest, told, made)
    wanted = {key: str(value) for key, value in encode_cloud_init(guest).items()}
    wanted["cicustom"] = encode_cicustom(written.volumes)
    drive, gone = _drive(guest, told, live)
    values, delete = _settle(live, wanted)
    return Carried({**values, **drive}, (*delete, *gone), older=written.older)


def _by_seed(
    here: Session, guest: Guest, told: CloudInit, made: Documents, live: Config
) -> Carried:
    _refuse_taken(guest, told, live)
    placed = place_seed(here, guest, told.storage, made)
    values, delete = _settle(live, {})
    held = drive_volume(live.get(told.slot))
    # One of the same content serves, whichever run has uploaded it.
    if held != placed.volid:
        values[told.slot] = encode_drive(placed.volid)
    gone = [slot for slot in (*cloud_init_drives(live), *_seeds(live)) if slot != told.slot]
    return Carried(values, (*delete, *gone), older=placed.older)


def _settle(
    live: Config, wanted: Mapping[str, str], known: set[str] | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options to set, and those to delete. ``known``: those that are right as they are."""
    right = known or set()
    now = decode_cloud_init(live)
    after = decode_cloud_init(wanted)
    values = {key: wanted[key] for key, value in after.items() if now.get(key) != value}
    delete = sorted(now.keys() - after.keys() - right)
    return values, tuple(delete)


def _drive(guest: Guest, told: CloudInit, live: Config) -> tuple[dict[str, str], tuple[str, ...]]:
    """The server's own drive where there is none yet, and the seeds that it takes the place of."""
    seeds = _seeds(live)
    if cloud_init_drives(live):
        return {}, tuple(seeds)
    _refuse_taken(guest, told, live)
    wanted = {told.slot: encode_drive(f"{told.storage}:cloudinit")}
    return wanted, tuple(slot for slot in seeds if slot != told.slot)


def _seeds(live: Config) -> dict[str, str]:
    """Slot to volume id of our seed ISOs in its drives."""
    found = {slot: drive_volume(line) for slot, line in live.items() if isinstance(line, str)}
    return {slot: volid for slot, volid in found.items() if ":iso/" in volid and seed_of(volid)}


def _refuse_taken(guest: Guest, told: CloudInit, live: Config) -> None:
    held = drive_volume(live.get(told.slot))
    ours = {EMPTY, *cloud_init_drives(live).values(), *_seeds(live).values()}
    if held not in ours:
        raise StageError(
            f"slot {told.slot} of VM {guest.vmid} is taken by {held}",
            advice="set cloud_init.slot to a free one, such as ide0",
        )


def _password_is(here: Session, guest: Guest, wanted: str | None, live: Config) -> bool:
    """Whether the password is set as wanted. The config hides it, the document does not.

    One call, and only where there is a password on both sides.
    """
    if wanted is None or HIDDEN not in live:
        return False
    path = guest_path("qemu", guest.node, guest.vmid) + "/cloudinit/dump"
    try:
        text = here.client.get(path, type="user")
    except ProxmoxError:
        return False
    with suppress(YAMLError):
        document = YAML(typ="safe", pure=True).load(str(text))
        return isinstance(document, dict) and document.get("password") == wanted
    return False
