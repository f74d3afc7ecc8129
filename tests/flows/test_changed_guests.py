"""What is wrong with a change of an existing guest is told before anything is changed."""

from __future__ import annotations

import pytest

from tests.environments import Place, brought_up
from tests.flows.commands import Commands


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"nics": [{"bridge": "vmbr7"}]}, "node pve1 has no bridge vmbr7"),
        ({"disks": [{"storage": "nosuch"}]}, "node pve1 has no storage nosuch"),
        ({"disks": [{"storage": "shared", "size": "900T"}]}, "is larger than storage"),
    ],
)
def test_a_change_that_cannot_work_is_refused(
    place: Place, run: Commands, part: dict[str, list[dict[str, str]]], told: str
) -> None:
    manifest = brought_up(place)
    document = place.document()
    node = document["spec"]["hypervisor"]["nodes"]["n1"]
    for change in part.get("nics", ()):
        node["nics"][0].update(change)
    for change in part.get("disks", ()):
        node["disks"].append({"id": len(node["disks"]), "size": "1G", **change})
    place.write(document)
    before = place.config()
    said = run("up", manifest, "--yes")

    assert said.code == 2
    assert told in said.err
    assert place.config() == before
