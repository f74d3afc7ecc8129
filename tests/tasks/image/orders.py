"""Templates whose image comes from somewhere, and what the stage does for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blocks.manifest.guest import Guest, ImageSource
from tasks.image import image, image_volume
from tasks.session import Session
from tasks.stage import Outcome
from tests.environments import NODES, OTHER_RUN, Place
from tests.templates import Golden


def source(place: Place, origin: Path | str, **given: Any) -> ImageSource:
    """An image of the place's own name on the storage ``local``."""
    told: dict[str, Any] = {"name": f"os{place.number}", "storage": "local", **given}
    return ImageSource(origin=str(origin), **told)


@contextmanager
def building(
    place: Place, wanted: ImageSource, run_id: str = OTHER_RUN, node: str = NODES[0]
) -> Iterator[tuple[Session, Guest]]:
    """A run's session, and the template that is made from that image."""
    golden = Golden(place)
    template = golden.template(source=wanted, node=node)
    with golden.opened(golden.recipe(template=template), run_id) as here:
        yield here, template


def provided(place: Place, wanted: ImageSource, node: str = NODES[0]) -> tuple[Outcome, str]:
    """The outcome of the stage in a run of its own, and the volume."""
    with building(place, wanted, node=node) as (here, template):
        outcome = image.fn(here.run, template.label)
        return outcome, image_volume(here, template)


def stored(place: Place, volid: str, node: str = NODES[0]) -> Path:
    """Where the lab keeps a volume."""
    storage, _, rest = volid.partition(":")
    found = sorted(place.lab.state.rglob(f"{storage}/**/{rest.rpartition('/')[2]}"))
    return next((path for path in found if storage == "shared" or node in path.parts), Path())


def images(place: Place) -> list[str]:
    """Every image of the place on any storage, unfinished ones too."""
    return sorted(
        str(path.relative_to(place.lab.state))
        for path in place.lab.state.rglob(f"*proxflow-os{place.number}-*")
    )


def uploads(place: Place) -> list[str]:
    """The uploads since ``lab.forget_requests``."""
    return [call for call in place.changes() if call.endswith("/upload")]


def forbid_download(place: Place) -> None:
    """The node is not to be told to fetch or compare, once."""
    place.lab.fault(
        method="POST",
        path=".*/download-url",
        status=403,
        reason="Permission check failed (/nodes/pve1, Sys.Modify)",
    )
