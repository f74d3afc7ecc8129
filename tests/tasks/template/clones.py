"""A template made by plain calls, for tests that are about its clones."""

from __future__ import annotations

from typing import Any

from blocks.manifest.guest import CloneSource, Disk, Guest
from blocks.manifest.mark import marked
from blocks.proxmox.properties import decode, encode_create
from blocks.units import GIB
from tasks.session import Session
from tasks.stage import Outcome
from tasks.template.clone import adjust, clone, start
from tests.environments import NODES
from tests.templates import Golden

STAGES = (clone, adjust, start)
SHARED = "shared"


def make_template(here: Session, *, converted: bool = True, **config: Any) -> Guest:
    """The declared template on the cluster, its disks empty; ``config``: more of its options."""
    guest = here.guest("template")
    asked = guest.model_copy(
        update={"description": marked(here.mark(guest, ready=True), guest.description)}
    )
    drive = {"ide2": f"{guest.disks[0].storage}:cloudinit"}
    path = f"/nodes/{guest.node}/qemu"
    here.client.run("POST", path, **{**encode_create(asked), **drive, **config})
    if converted:
        here.client.run("POST", f"{path}/{guest.vmid}/template")
    return guest


def on_shared(golden: Golden, **changes: Any) -> Guest:
    """The template with its disk and its cloud-init drive on a storage that all nodes share."""
    disk = Disk(slot="scsi0", storage=SHARED, size=GIB, format="qcow2")
    told = golden.cloud_init(golden.name, storage=SHARED)
    return golden.template(disks=(disk,), cloud_init=told, **changes)


def linked(golden: Golden, index: int = 1, **changes: Any) -> Guest:
    """A linked clone."""
    source = CloneSource(template="template", full=False)
    return golden.clone(index, **{"source": source, **changes})


def make(here: Session, label: str) -> list[Outcome]:
    """Every stage of a clone, in order, without Prefect."""
    return [stage.fn(here.run, label) for stage in STAGES]


def config(here: Session, guest: Guest) -> dict[str, Any]:
    """The guest's live configuration."""
    return dict(here.client.get(f"/nodes/{guest.node}/qemu/{guest.vmid}/config"))


def live(here: Session, guest: Guest) -> Guest:
    """The guest as it is on the cluster."""
    return decode(config(here, guest), node=guest.node, vmid=guest.vmid, label=guest.label)


def edit(here: Session, guest: Guest, **values: Any) -> None:
    """Change a guest by hand, as on the web page."""
    here.client.run("PUT", f"/nodes/{guest.node}/qemu/{guest.vmid}/config", **values)


def everything(golden: Golden) -> dict[str, Any]:
    """All guests and volumes of the lab; two that are equal prove that nothing was changed."""
    found = golden.place.lab.snapshot()
    return {key: found[key] for key in ("guests", "volumes", "pools")}


def seeds(golden: Golden) -> list[str]:
    """The seed ISOs of the place's environment."""
    names = golden.place.lab.snapshot()["volumes"]
    return [name for name in names if f"proxflow_{golden.name}_" in name]


__all__ = [
    "NODES",
    "SHARED",
    "STAGES",
    "config",
    "edit",
    "everything",
    "linked",
    "live",
    "make",
    "make_template",
    "on_shared",
    "seeds",
]
