"""Small golden templates for tests, compiled as a manifest would be, each in a place of its own.

``Golden`` is to templates what ``Place`` is to environments: names, numbers and addresses that no
other test of the module's lab uses.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from blocks.manifest.cards import derived_mac
from blocks.manifest.environment import Environment
from blocks.manifest.guest import (
    CloneSource,
    CloudInit,
    Disk,
    Guest,
    ImageSource,
    Inet,
    Nic,
)
from blocks.manifest.recipe import TEMPLATE, Alias, Rebuild, Recipe
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.units import GIB
from deployments.lab import images
from tasks.session import Session, adopt, close_session
from tasks.stage import RunRef
from tests.environments import KEY, NODES, RUN, Document, Place


@dataclass(frozen=True)
class Golden:
    """A template and clones of it, in a place of their own."""

    place: Place

    @property
    def name(self) -> str:
        """Name of the template, and of its environment."""
        return f"golden{self.place.number}"

    @property
    def vmid(self) -> int:
        """Number of the template's first generation; its clones and generations follow."""
        return self.place.vmid(0)

    def image_file(self, folder: Path, size: int = GIB) -> Path:
        """A real, empty qcow2 image of that virtual size in bytes, on this machine."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.qcow2"
        images.create_image(path, "qcow2", size)
        return path

    def template(self, **changes: Any) -> Guest:
        """The template: one disk of 4 GiB on local-lvm of pve1, one card, PVE's own fields."""
        guest = Guest(
            label=TEMPLATE,
            node=NODES[0],
            vmid=self.vmid,
            name=self.name,
            cores=1,
            memory=1024,
            disks=(Disk(slot="scsi0", storage="local-lvm", size=4 * GIB),),
            nics=(self.card(self.vmid),),
            boot=("scsi0",),
            source=ImageSource(name="tiny", origin="/nowhere/tiny.qcow2", storage="local"),
            cloud_init=self.cloud_init(self.name),
        )
        return guest.model_copy(update=changes)

    def clone(self, index: int = 1, **changes: Any) -> Guest:
        """The full clone ``c1``, ``c2``, ...: on the template's node, with an address."""
        vmid = self.vmid + index
        name = f"c{index}-{self.place.number}"
        address = ip_interface(f"{self.place.address(index)}/24")
        guest = self.template().model_copy(
            update={
                "label": name,
                "name": name,
                "vmid": vmid,
                "nics": (
                    self.card(
                        vmid,
                        Inet(
                            method="static",
                            addresses=(address,),
                            gateway=ip_address(f"{self.place.subnet}.1"),
                        ),
                    ),
                ),
                "source": CloneSource(template=TEMPLATE),
                "cloud_init": self.cloud_init(name),
                "ssh_addresses": (address.ip,),
            }
        )
        return guest.model_copy(update=changes)

    def card(self, vmid: int, inet: Inet | None = None) -> Nic:
        """``net0`` on vmbr0."""
        mac = derived_mac(self.name, vmid, "net0")
        return Nic(slot="net0", bridge="vmbr0", mac=mac, inet=inet or Inet())

    def cloud_init(self, hostname: str, **changes: Any) -> CloudInit:
        """A user with a key, by the options of Proxmox VE."""
        told = CloudInit(storage="local-lvm", hostname=hostname, user="ops", ssh_keys=(KEY,))
        return told.model_copy(update=changes)

    def recipe(self, *clones: Guest, template: Guest | None = None, **changes: Any) -> Recipe:
        """These clones of the template, rebuilt never."""
        recipe = Recipe(
            template=template or self.template(),
            clones=clones,
            rebuild=Rebuild(vmids=(self.vmid, self.vmid + 9)),
            alias=Alias(),
        )
        return recipe.model_copy(update=changes)

    def document(self, image: Path | str, clones: int = 0, **spec: Any) -> Document:
        """The manifest of the template, with ``clones`` clones named ``c1-...``; ``spec`` wins."""
        made: Document = {
            "node": NODES[0],
            "vm_id": self.vmid,
            "image": {"path": str(image), "storage": "local"},
            "resources": {"memory": 1024},
            "disk": {"size": "4G", "storage": "local-lvm"},
            "nics": [{"bridge": "vmbr0"}],
            "cloud_init": {"user": "ops", "ssh_keys": [KEY], "method": "fields"},
        }
        if clones:
            made["clones"] = [
                {
                    "name": f"c{index}-{self.place.number}",
                    "vm_id": self.vmid + index,
                    "ip": f"{self.place.address(index)}/24",
                    "gateway": f"{self.place.subnet}.1",
                }
                for index in range(1, clones + 1)
            ]
        return {
            "version": "1",
            "kind": "Template",
            "metadata": {"name": self.name, "proxmox_context": "lab"},
            "spec": made | spec,
        }

    def write(self, document: Document) -> Path:
        """Write a manifest, whole at once for those who read it meanwhile; its path."""
        self.place.folder.mkdir(parents=True, exist_ok=True)
        path = self.place.folder / f"{self.name}.yaml"
        draft = path.with_suffix(f".{threading.get_ident()}")
        with draft.open("w") as file:
            YAML(typ="safe").dump(document, file)
        return draft.replace(path)

    def environment(self, recipe: Recipe) -> Environment:
        """As loading the manifest would give it."""
        return Environment(
            name=self.name,
            path=self.place.folder / "template.yaml",
            context="lab",
            guests=(recipe.template, *recipe.clones),
            recipe=recipe,
        )

    @contextmanager
    def opened(self, recipe: Recipe, run_id: str = RUN, **options: Any) -> Iterator[Session]:
        """A run's open session, as the flow opens it."""
        environment = self.environment(recipe)
        connection = lab_connection(self.place.lab.state)
        run = RunRef(
            manifest=str(environment.path), env=environment.name, run_id=run_id, options=options
        )
        here = Session(run, environment, connection, Client(connection), everyone=environment)
        adopt(here)
        try:
            yield here
        finally:
            close_session(run)
