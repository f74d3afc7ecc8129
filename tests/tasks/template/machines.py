"""Templates as these stages make them, on a test's part of the lab."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from blocks.manifest.guest import Guest, ImageSource
from blocks.units import GIB
from tasks.image import image
from tasks.session import Session
from tasks.stage import Outcome
from tasks.template.configure import configure
from tasks.template.convert import convert
from tasks.template.create import create
from tests.environments import RUN
from tests.templates import Golden

STAGES = (image, create, configure, convert)
ALL = frozenset({"image", "create", "configure", "template", "clones"})


def from_image(golden: Golden, *, size: int = GIB, **changes: Any) -> Guest:
    """The template, made from a small image on this machine of that virtual size in bytes."""
    origin = golden.image_file(golden.place.folder, size)
    source = ImageSource(name="tiny", origin=str(origin), storage="local")
    return golden.template(**{"source": source, **changes})


@contextmanager
def opened(golden: Golden, template: Guest, run_id: str = RUN, **recipe: Any) -> Iterator[Session]:
    """A run's open session about that template."""
    with golden.opened(golden.recipe(template=template, **recipe), run_id) as here:
        yield here


def imaged(here: Session) -> None:
    """The image is on its storage, and the machine is made."""
    built(here, through="create")


def built(here: Session, *, through: str = "template") -> list[Outcome]:
    """The stages of the template in order, up to the one of that name, without Prefect."""
    names = [stage.name for stage in STAGES]
    return [stage.fn(here.run, "template") for stage in STAGES[: names.index(through) + 1]]


def config(golden: Golden, vmid: int | None = None, node: str = "pve1") -> dict[str, Any]:
    """Live configuration of a machine, the template's if no other is named."""
    with golden.place.client() as client:
        return dict(client.get(f"/nodes/{node}/qemu/{vmid or golden.vmid}/config"))


def stranger(golden: Golden, vmid: int | None = None, **values: Any) -> None:
    """Somebody else's machine on pve1, under the template's number if no other is named."""
    with golden.place.client() as client:
        client.run("POST", "/nodes/pve1/qemu", vmid=vmid or golden.vmid, **values)


def edit(golden: Golden, vmid: int | None = None, **values: Any) -> None:
    """Change a machine on pve1 by hand, as on the web page."""
    with golden.place.client() as client:
        client.run("PUT", f"/nodes/pve1/qemu/{vmid or golden.vmid}/config", **values)
