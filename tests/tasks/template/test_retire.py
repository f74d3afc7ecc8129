"""Old generations of a template are found by their marks and go once nothing needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from blocks.manifest.guest import Disk, Guest
from blocks.manifest.mark import Mark, marked
from blocks.manifest.recipe import Rebuild, Recipe
from blocks.proxmox.inventory import read_inventory
from blocks.units import GIB
from tasks.template.generations import Generation, find_generations
from tasks.template.retire import Retired, depended_on, retire
from tests.environments import RUN, Place
from tests.tasks.template.machines import config, edit, stranger
from tests.templates import Golden

DAYS = ("20260302", "20260309", "20260316", "20260323")


def _generation(
    golden: Golden, index: int, *, storage: str = "local", template: bool = True, **mark: Any
) -> int:
    """A generation of that week, with one disk; its number."""
    vmid = golden.vmid + index
    fields = {"env": golden.name, "guest": "template", "vmid": vmid, "run": RUN, "ready": True}
    stranger(
        golden,
        vmid,
        name=f"{golden.name}-{DAYS[index]}-aaaaaaaa",
        description=marked(Mark(**(fields | mark)), ""),
        scsi0=f"{storage}:1" + (",format=qcow2" if storage == "local" else ""),
    )
    if template:
        _post(golden, f"/nodes/pve1/qemu/{vmid}/template")
    return vmid


def _post(golden: Golden, path: str, **values: Any) -> None:
    with golden.place.client() as client:
        client.run("POST", path, **values)


def _clone(golden: Golden, vmid: int, newid: int, *, full: bool = False) -> None:
    _post(golden, f"/nodes/pve1/qemu/{vmid}/clone", newid=newid, name=f"c{newid}", full=full)


def _recipe(golden: Golden, keep: int) -> Recipe:
    vmids = (golden.vmid, golden.vmid + 3)
    return golden.recipe(rebuild=Rebuild(when="weekly", keep=keep, vmids=vmids))


def _current(golden: Golden, index: int) -> Guest:
    return golden.template(vmid=golden.vmid + index)


def _found(golden: Golden, keep: int = 1) -> tuple[Generation, ...]:
    with golden.opened(_recipe(golden, keep)) as here:
        return find_generations(here.client, read_inventory(here.client), here.environment)


def _retire(golden: Golden, index: int, *, keep: int = 1) -> Retired:
    generations: Sequence[Generation] = _found(golden, keep)
    with golden.opened(_recipe(golden, keep)) as here:
        golden.place.lab.forget_requests()
        return retire(here, generations, _current(golden, index))


def test_generations_are_found_by_their_marks_newest_first(place: Place) -> None:
    golden = Golden(place)
    first, second = _generation(golden, 0), _generation(golden, 1)
    begun = _generation(golden, 2, template=False, ready=False)

    found = _found(golden)

    assert [each.vmid for each in found] == [begun, second, first]
    assert [each.finished for each in found] == [False, True, True]
    assert (found[2].prefix, found[2].node) == ("aaaaaaaa", "pve1")
    assert str(found[2].made) == "2026-03-02"


def test_others_templates_clones_of_ours_and_copies_are_no_generations(place: Place) -> None:
    golden = Golden(place)
    _generation(golden, 0, env="elsewhere")
    _generation(golden, 1, guest="c1")
    _generation(golden, 2, vmid=golden.vmid)
    stranger(golden, golden.vmid + 3, name="payroll")

    assert _found(golden) == ()


def test_a_template_of_ours_outside_the_declared_numbers_is_found_too(place: Place) -> None:
    golden = Golden(place)
    old = golden.vmid + 9
    mark = Mark(env=golden.name, guest="template", vmid=old, run=RUN, ready=True)
    stranger(golden, old, name=golden.name, description=marked(mark, ""), template=1)

    assert [each.vmid for each in _found(golden)] == [old]


def test_only_templates_and_declared_numbers_are_read(place: Place) -> None:
    golden = Golden(place)
    _generation(golden, 0)
    stranger(golden, golden.vmid + 9, name="bystander")
    place.lab.forget_requests()

    _found(golden)

    assert not [row for row in place.lab.requests() if f"/{golden.vmid + 9}/" in row["path"]]


def test_what_is_beyond_the_kept_generations_is_deleted_with_its_disks(place: Place) -> None:
    golden = Golden(place)
    numbers = [_generation(golden, index) for index in range(3)]

    retired = _retire(golden, 2, keep=2)

    assert place.guests() == numbers[1:]
    assert place.volumes(f"-{numbers[0]}-") == []
    assert retired.kept == []
    assert f"VM {numbers[0]}" in retired.removed[0]


def test_few_generations_cost_no_call(place: Place) -> None:
    golden = Golden(place)
    _generation(golden, 0)
    _generation(golden, 1)

    retired = _retire(golden, 1, keep=2)

    assert (retired.removed, retired.kept) == ([], [])
    assert place.lab.requests() == []


def test_a_generation_with_linked_clones_stays_and_they_are_named(place: Place) -> None:
    golden = Golden(place)
    old, new = _generation(golden, 0), _generation(golden, 1)
    clone = golden.vmid + 9
    _clone(golden, old, clone)

    retired = _retire(golden, 1)

    assert place.guests() == [old, new, clone]
    assert retired.removed == []
    assert f"linked clones of it: VM {clone} (c{clone})" in retired.kept[0]
    assert place.changes() == []


def test_a_full_clone_does_not_hold_its_template(place: Place) -> None:
    golden = Golden(place)
    old, new = _generation(golden, 0), _generation(golden, 1)
    _clone(golden, old, golden.vmid + 9, full=True)

    _retire(golden, 1)

    assert place.guests() == [new, golden.vmid + 9]


def test_on_lvm_thin_a_linked_clone_needs_no_template(place: Place) -> None:
    golden = Golden(place)
    old, new = _generation(golden, 0, storage="local-lvm"), _generation(golden, 1)
    _clone(golden, old, golden.vmid + 9)

    retired = _retire(golden, 1)

    assert place.guests() == [new, golden.vmid + 9]
    assert retired.kept == []


def test_a_refusal_of_the_server_keeps_the_generation_and_is_no_failure(place: Place) -> None:
    golden = Golden(place)
    old, new = _generation(golden, 0), _generation(golden, 1)
    text = "base volume 'x' is still in use by linked cloned"
    place.lab.fault(kind="task", type="qmdestroy", id=str(old), exitstatus=text, when="before")

    retired = _retire(golden, 1)

    assert place.guests() == [old, new]
    assert text in retired.kept[0]


def test_a_generation_that_lost_its_mark_since_is_not_touched(place: Place) -> None:
    golden = Golden(place)
    old, _ = _generation(golden, 0), _generation(golden, 1)
    generations = _found(golden)
    edit(golden, old, description="mine now")
    with golden.opened(_recipe(golden, 1)) as here:
        retired = retire(here, generations, _current(golden, 1))

    assert old in place.guests()
    assert "does not carry our mark any more" in retired.kept[0]


def test_what_is_no_template_any_more_is_not_touched(place: Place) -> None:
    golden = Golden(place)
    old, _ = _generation(golden, 0), _generation(golden, 1)
    generations = _found(golden)
    edit(golden, old, template=0)
    with golden.opened(_recipe(golden, 1)) as here:
        retired = retire(here, generations, _current(golden, 1))

    assert old in place.guests()
    assert "is no template any more" in retired.kept[0]


def test_a_generation_that_is_gone_already_needs_no_word(place: Place) -> None:
    golden = Golden(place)
    old, _ = _generation(golden, 0), _generation(golden, 1)
    generations = _found(golden)
    with place.client() as client:
        client.run("DELETE", f"/nodes/pve1/qemu/{old}")
    with golden.opened(_recipe(golden, 1)) as here:
        retired = retire(here, generations, _current(golden, 1))

    assert retired == Retired()


def test_a_template_that_is_never_rebuilt_retires_nothing(place: Place) -> None:
    golden = Golden(place)
    _generation(golden, 0)
    _generation(golden, 1)
    generations = _found(golden)
    with golden.opened(golden.recipe()) as here:
        assert retire(here, generations, _current(golden, 1)) == Retired()


def test_two_disks_on_two_storages_are_both_looked_at(place: Place) -> None:
    golden = Golden(place)
    old = golden.vmid
    fields = {"env": golden.name, "guest": "template", "vmid": old, "run": RUN, "ready": True}
    guest = golden.template(disks=(Disk(slot="scsi0", storage="local-lvm", size=GIB),))
    stranger(
        golden,
        old,
        name=f"{guest.name}-{DAYS[0]}-aaaaaaaa",
        description=marked(Mark(**fields), ""),
        scsi0="local-lvm:1",
        scsi1="local:1,format=qcow2",
    )
    _post(golden, f"/nodes/pve1/qemu/{old}/template")
    _generation(golden, 1)
    _clone(golden, old, golden.vmid + 9)

    assert "linked clones of it" in _retire(golden, 1).kept[0]


@pytest.mark.parametrize(("plugin", "stays"), [("iscsi", True), ("lvm", False), ("nfs", False)])
def test_where_dependence_cannot_be_told_a_generation_stays(
    place: Place, plugin: str, stays: bool
) -> None:
    golden = Golden(place)
    _generation(golden, 0)
    old = _found(golden)[0]
    with golden.opened(_recipe(golden, 1)) as here:
        inventory = read_inventory(here.client)
        storages = tuple(row.model_copy(update={"plugin": plugin}) for row in inventory.storages)
        told = depended_on(
            here,
            inventory.model_copy(update={"storages": storages}),
            old,
            config(golden, old.vmid),
        )

    assert (told is not None) is stays
    assert told is None or "cannot be told on local (iscsi)" in told
