"""``up`` of nodes that Agama installs, from a medium as it is downloaded to a verified guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.lab.bootmenus import GRUB2, MENUS
from deployments.lab.isos import make_iso
from tests.environments import KEY, Document, Place
from tests.flows.commands import Commands

MEDIUM = "SLES-16.0-Full-x86_64-GM.install.iso"


def document(place: Place, distro: str, source: Path) -> Document:
    made = place.document(count=1)
    hypervisor = made["spec"]["hypervisor"]
    hypervisor["iso"] = {
        "storage": "local",
        "image": f"{place.env}-{MEDIUM}",
        "source": str(source),
    }
    hypervisor["kickstart"] = {
        "distro": distro,
        "ssh_keys": {"root": [KEY]},
        "packages": {"post": ["git"]},
        "selinux": "permissive",
    }
    return made


@pytest.mark.parametrize("distro", ["sles16", "leap16"])
def test_a_medium_as_downloaded_is_rewritten_and_installs_the_node(
    place: Place, run: Commands, tmp_path: Path, distro: str
) -> None:
    source = tmp_path / "download" / MEDIUM
    make_iso(source, "SLES16", {"README": f"{place.env}\n", GRUB2: MENUS["agama"]})
    manifest = place.write(document(place, distro, source))

    first = run("up", manifest, "--yes", "--json")
    place.lab.forget_requests()
    second = run("up", manifest, "--yes", "--json")

    (guest,) = first.json()["guests"]
    stages = {stage["name"]: stage["detail"] for stage in guest["stages"]}
    assert (first.code, guest["state"], guest["address"]) == (0, "done", place.address(1))
    assert stages["render"] == f"autoinst.json for {distro}"
    assert ".proxflow-" in stages["media"]
    assert stages["verify"] == "config, runs, SSH, agent, marker"
    assert (second.code, place.lab.writes()) == (0, [])
