"""Guests of the lab that are told by cloud-init, made by plain calls."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import Guest
from blocks.manifest.mark import marked
from blocks.proxmox.properties import encode_create
from tasks.cloudinit.carry import Carried, carry, sweep
from tasks.session import Session
from tests.templates import Golden


def path(guest: Guest) -> str:
    """The guest's place in the API."""
    return f"/nodes/{guest.node}/qemu/{guest.vmid}"


def make(here: Session, label: str, **config: Any) -> Guest:
    """The guest, without a word of cloud-init."""
    guest = here.guest(label)
    asked = guest.model_copy(
        update={"description": marked(here.mark(guest), ""), "boot": ("scsi0",)}
    )
    here.client.run("POST", f"/nodes/{guest.node}/qemu", **{**encode_create(asked), **config})
    return guest


def config(here: Session, guest: Guest) -> dict[str, Any]:
    """Its live configuration."""
    return dict(here.client.get(path(guest) + "/config"))


def apply(here: Session, guest: Guest, carried: Carried) -> None:
    """What the stages do with what they are given."""
    values = dict(carried.values)
    if carried.delete:
        values["delete"] = ",".join(carried.delete)
    if values:
        here.client.run("PUT", path(guest) + "/config", **values)


def told(here: Session, guest: Guest) -> Carried:
    """Carry, set, sweep: what a stage does in a row."""
    carried = carry(here, guest, config(here, guest))
    apply(here, guest, carried)
    sweep(here, guest, carried)
    return carried


def seeds(golden: Golden) -> list[str]:
    """Volume ids of the environment's seed ISOs and snippets on any storage of any node."""
    names = golden.place.lab.snapshot()["volumes"]
    mine = (name.partition("/")[2] for name in names if f"proxflow_{golden.name}_" in name)
    return sorted(mine)
