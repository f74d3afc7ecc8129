"""A connection that breaks at any write of a build, before or after its effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from blocks.units import GIB, MIB
from tests.environments import OTHER_RUN, RUN, Place
from tests.tasks.template.runs import build, clones, finished, generations, rebuilt, volumes
from tests.templates import Golden

WRITES = (
    ("upload of the image", "POST", "/nodes/pve1/storage/local/upload", 0),
    ("create", "POST", "/nodes/pve1/qemu", 0),
    ("import", "POST", "/nodes/pve1/qemu/{new}/config", 0),
    ("options", "POST", "/nodes/pve1/qemu/{new}/config", 1),
    ("boot order", "POST", "/nodes/pve1/qemu/{new}/config", 2),
    ("resize", "PUT", "/nodes/pve1/qemu/{new}/resize", 0),
    ("conversion", "POST", "/nodes/pve1/qemu/{new}/template", 0),
    ("mark of the template", "PUT", "/nodes/pve1/qemu/{new}/config", 0),
    ("clone", "POST", "/nodes/pve1/qemu/{new}/clone", 0),
    ("second clone", "POST", "/nodes/pve1/qemu/{new}/clone", 1),
    ("options of the clone", "PUT", "/nodes/pve1/qemu/{clone}/config", 0),
    ("start", "POST", "/nodes/pve1/qemu/{clone}/status/start", 0),
    ("mark of the clone", "PUT", "/nodes/pve1/qemu/{clone}/config", 1),
    ("upload of the seed", "POST", "/nodes/pve1/storage/local/upload", 1),
    ("drive with the seed", "PUT", "/nodes/pve1/qemu/{seeded}/config", 0),
    ("boot order of the clone", "PUT", "/nodes/pve1/qemu/{seeded}/config", 1),
    ("published", "PUT", "/nodes/pve1/qemu/{new}/config", 1),
    ("alias set", "PUT", "/nodes/pve1/qemu/{new}/config", 2),
    ("alias taken", "PUT", "/nodes/pve1/qemu/{old}/config", 0),
    ("retirement", "DELETE", "/nodes/pve1/qemu/{old}", 0),
)


@pytest.mark.parametrize(
    ("when", "scale"), [("before", 0.0), ("after", 0.05)], ids=["before", "after"]
)
@pytest.mark.parametrize(
    ("method", "path", "skip"), [row[1:] for row in WRITES], ids=[row[0] for row in WRITES]
)
def test_a_build_ends_well_and_leaves_nothing_twice(
    place: Place, tmp_path: Path, method: str, path: str, skip: int, when: str, scale: float
) -> None:
    """With a time scale the task that the lost call began still runs at the next try."""
    golden = Golden(place)
    document = rebuilt(golden, golden.image_file(tmp_path / "old"))
    declared = document["spec"].pop("clones")
    build(golden, document, OTHER_RUN)
    (old,) = generations(golden)
    document["spec"]["clones"] = declared
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "new", GIB + MIB))
    new, clone, seeded = old + 1, golden.vmid + 1, golden.vmid + 2
    where = path.format(new=new, old=old, clone=clone, seeded=seeded)
    place.lab.set_time(scale=scale)
    place.lab.fault(method=method, path=where, skip=skip, reset=when)
    injected = len(place.lab.injected())

    ended = build(golden, document, RUN)
    place.lab.set_time(scale=0.0)
    place.lab.settle()

    assert len(place.lab.injected()) == injected + 1
    assert (ended.errors, ended.warnings) == ({}, [])
    assert finished(golden) == [clone, seeded, new]
    assert list(generations(golden)) == [new]
    assert sorted(clones(golden)) == [clone, seeded]
    assert len([name for name in volumes(golden) if "proxflow_" in name]) == 1
    tags = generations(golden)[new]["tags"]
    assert f"{golden.name}-current" in tags
    place.lab.forget_requests()
    assert build(golden, document, OTHER_RUN).ok
    assert place.changes() == []
