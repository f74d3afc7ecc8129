"""The alias of a template goes from one generation to the next."""

from __future__ import annotations

import pytest

from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark, marked
from blocks.manifest.recipe import Alias
from blocks.proxmox.errors import NotFound, PermissionDenied
from tasks.template.alias import Moves, switch_alias
from tests.environments import RUN, Place
from tests.tasks.template.machines import config, edit, opened, stranger
from tests.templates import Golden


def _generation(golden: Golden, index: int, *, tags: str = "", pool: str | None = None) -> Guest:
    """A machine that carries the mark of a generation."""
    guest = golden.template(vmid=golden.vmid + index, name=f"{golden.name}-g{index}")
    mark = Mark(env=golden.name, guest="template", vmid=guest.vmid, run=RUN, ready=True)
    values = {"tags": tags} if tags else {}
    if pool is not None:
        values["pool"] = pool
    stranger(
        golden, guest.vmid, name=guest.name, description=marked(mark, "note"), template=1, **values
    )
    return guest


def _switch(golden: Golden, guest: Guest, alias: Alias) -> Moves:
    with opened(golden, guest, alias=alias) as here:
        golden.place.lab.forget_requests()
        return switch_alias(here, guest)


def _pool(place: Place) -> str:
    name = f"golden{place.number}"
    with place.client() as client:
        client.post("/pools", poolid=name)
    return name


def _members(place: Place, pool: str) -> list[int]:
    with place.client() as client:
        found = client.get("/pools", poolid=pool)
    return sorted(row["vmid"] for row in found[0]["members"])


def test_the_tag_goes_from_the_old_generation_to_the_new_and_other_tags_stay(place: Place) -> None:
    golden, tag = Golden(place), f"current{place.number}"
    old = _generation(golden, 0, tags=f"{tag};a")
    new = _generation(golden, 1, tags="b")

    moves = _switch(golden, new, Alias(tag=tag))

    assert config(golden, new.vmid)["tags"] == f"b;{tag}"
    assert config(golden, old.vmid)["tags"] == "a"
    assert moves.done == (f"tag {tag} set", f"tag {tag} taken from VM {old.vmid}")
    assert moves.warnings == ()


def test_the_new_generation_has_the_tag_before_the_old_one_loses_it(place: Place) -> None:
    golden, tag = Golden(place), f"current{place.number}"
    old = _generation(golden, 0, tags=tag)
    new = _generation(golden, 1)

    _switch(golden, new, Alias(tag=tag))

    assert place.changes() == [f"PUT /nodes/pve1/qemu/{guest.vmid}/config" for guest in (new, old)]


def test_a_switch_that_is_done_is_one_read(place: Place) -> None:
    golden, tag = Golden(place), f"current{place.number}"
    pool = _pool(place)
    new = _generation(golden, 1, tags=tag, pool=pool)

    moves = _switch(golden, new, Alias(tag=tag, pool=pool))

    assert moves == Moves()
    assert len(place.lab.requests()) == 1


def test_without_an_alias_nothing_is_asked(place: Place) -> None:
    golden = Golden(place)
    new = _generation(golden, 1)

    assert _switch(golden, new, Alias()) == Moves()
    assert place.lab.requests() == []


def test_a_stranger_that_carries_the_tag_keeps_it_and_is_told(place: Place) -> None:
    golden, tag = Golden(place), f"current{place.number}"
    new = _generation(golden, 1)
    stranger(golden, golden.vmid + 2, name="payroll", tags=f"{tag};own")

    moves = _switch(golden, new, Alias(tag=tag))

    assert config(golden, golden.vmid + 2)["tags"] == f"{tag};own"
    assert f"VM {golden.vmid + 2} (payroll) carries the tag {tag} too" in moves.warnings[0]


def test_a_copy_of_the_template_is_a_stranger_though_it_carries_its_mark(place: Place) -> None:
    golden, tag = Golden(place), f"current{place.number}"
    new = _generation(golden, 1)
    mark = Mark(env=golden.name, guest="template", vmid=new.vmid, run=RUN, ready=True)
    stranger(golden, golden.vmid + 2, name="copy", tags=tag, description=marked(mark, ""))

    moves = _switch(golden, new, Alias(tag=tag))

    assert config(golden, golden.vmid + 2)["tags"] == tag
    assert len(moves.warnings) == 1


def test_the_pool_has_the_new_generation_and_no_longer_the_old_one(place: Place) -> None:
    golden, pool = Golden(place), _pool(place)
    _generation(golden, 0, pool=pool)
    new = _generation(golden, 1)
    stranger(golden, golden.vmid + 2, name="guest", pool=pool)

    moves = _switch(golden, new, Alias(pool=pool))

    assert _members(place, pool) == [new.vmid, golden.vmid + 2]
    assert len(moves.done) == 2


def test_a_generation_in_its_own_pool_is_moved_and_the_old_one_moves_back(place: Place) -> None:
    golden, pool = Golden(place), _pool(place)
    home = f"home{place.number}"
    with place.client() as client:
        client.post("/pools", poolid=home)
    old = _generation(golden, 0, pool=pool)
    new = _generation(golden, 1, pool=home).model_copy(update={"pool": home})

    _switch(golden, new, Alias(pool=pool))

    assert _members(place, pool) == [new.vmid]
    assert _members(place, home) == [old.vmid]


def test_a_pool_that_is_missing_is_told_in_the_servers_words(place: Place) -> None:
    golden = Golden(place)
    new = _generation(golden, 1)

    with pytest.raises((NotFound, PermissionDenied), match="nosuch"):
        _switch(golden, new, Alias(pool="nosuch"))


def test_tags_that_were_set_by_hand_since_the_last_read_are_kept(place: Place) -> None:
    golden, tag = Golden(place), f"current{place.number}"
    new = _generation(golden, 1, tags="a")
    with opened(golden, new, alias=Alias(tag=tag)) as here:
        here.require(new)
        edit(golden, new.vmid, tags="a;mine")
        switch_alias(here, new)

    assert config(golden, new.vmid)["tags"] == f"a;{tag};mine"
