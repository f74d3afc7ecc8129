"""A template's generations follow each other: begun beside the old one, then in its place."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from blocks.manifest.recipe import Alias, Rebuild
from blocks.proxmox.errors import TaskFailed
from blocks.proxmox.inventory import read_inventory
from blocks.units import GIB, MIB
from tasks.image import image_digest
from tasks.template.alias import switch_alias
from tasks.template.generations import Decision, decide, find_generations
from tasks.template.retire import Retired, retire
from tasks.template.seen import with_template
from tests.environments import Place
from tests.tasks.template.machines import built, config, from_image, opened
from tests.templates import Golden

FIRST, SECOND, THIRD = date(2026, 3, 2), date(2026, 3, 9), date(2026, 3, 16)


def _run(golden: Golden, day: date, size: int = GIB, **changes: Any) -> tuple[Decision, Retired]:
    """What a run of that day does, with an image of that size in bytes."""
    rebuild = Rebuild(when="on-new-image", keep=1, vmids=(golden.vmid, golden.vmid + 2))
    alias = Alias(tag=f"current{golden.place.number}")
    template = from_image(golden, size=size, **changes)
    with opened(golden, template, rebuild=rebuild, alias=alias) as here:
        recipe = here.environment.recipe
        assert recipe is not None
        inventory = read_inventory(here.client)
        generations = find_generations(here.client, inventory, here.environment)
        taken = {row.vmid for row in inventory.guests}
        decision = decide(recipe, generations, image_digest(here, template), day, taken=taken)
        here.environment = with_template(here.environment, decision.guest)
        if decision.build:
            built(here)
        switch_alias(here, decision.guest)
        return decision, retire(here, generations, decision.guest)


def test_a_new_image_replaces_the_template_and_the_alias_follows(place: Place) -> None:
    golden = Golden(place)
    first, _ = _run(golden, FIRST)
    second, retired = _run(golden, SECOND, GIB + MIB)

    live = config(golden, second.guest.vmid)
    assert first.guest.vmid != second.guest.vmid
    assert second.guest.name.startswith(f"{golden.name}-20260309-")
    assert (live["template"], live["name"]) == (1, second.guest.name)
    assert live["tags"] == f"current{place.number}"
    assert place.guests() == [second.guest.vmid]
    assert len(retired.removed) == 1


def test_the_same_image_builds_nothing_and_writes_nothing(place: Place) -> None:
    golden = Golden(place)
    first, _ = _run(golden, FIRST)
    place.lab.forget_requests()

    again, _ = _run(golden, SECOND)

    assert (again.build, again.guest.vmid) == (False, first.guest.vmid)
    assert place.changes() == []


def test_a_generation_that_broke_off_is_taken_up_with_the_image_of_that_day(place: Place) -> None:
    golden = Golden(place)
    first, _ = _run(golden, FIRST)
    place.lab.fault(kind="task", type="qmtemplate", exitstatus="no space left", times=1)
    with pytest.raises(TaskFailed):
        _run(golden, SECOND, GIB + MIB)
    assert config(golden, first.guest.vmid)["tags"] == f"current{place.number}"

    third, _ = _run(golden, THIRD, GIB + 2 * MIB)

    assert third.guest.name.startswith(f"{golden.name}-20260316-")
    assert place.guests() == [third.guest.vmid]
    assert config(golden, third.guest.vmid)["template"] == 1
    assert len(place.volumes("disk")) == 1


def test_a_generation_with_a_linked_clone_stays_until_the_clone_is_gone(place: Place) -> None:
    golden, qemu = Golden(place), "/nodes/pve1/qemu"
    clone = golden.vmid + 9
    files = golden.template().disks[0].model_copy(update={"storage": "local", "format": "qcow2"})
    first, _ = _run(golden, FIRST, disks=(files,))
    with place.client() as client:
        client.run("POST", f"{qemu}/{first.guest.vmid}/clone", newid=clone, name="linked")

    second, held = _run(golden, SECOND, GIB + MIB, disks=(files,))
    with place.client() as client:
        client.run("DELETE", f"{qemu}/{clone}")
    _, free = _run(golden, THIRD, GIB + MIB, disks=(files,))

    assert f"linked clones of it: VM {clone} (linked)" in held.kept[0]
    assert len(free.removed) == 1
    assert place.guests() == [second.guest.vmid]
