"""Which generation of a template a run is about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocks.manifest.guest import Digest, Disk, Guest, ImageSource
from blocks.manifest.recipe import TEMPLATE, Rebuild, Recipe
from blocks.units import GIB
from tasks.errors import StageError
from tasks.template.generations import (
    Decision,
    Generation,
    created,
    decide,
    generation_name,
    newest_first,
    read_name,
)
from tasks.template.retire import superfluous

MONDAY = date(2026, 3, 2)
SUNDAY = date(2026, 3, 8)
NEXT_MONDAY = date(2026, 3, 9)
OLD_IMAGE = Digest(algorithm="sha256", hex="a" * 64)
NEW_IMAGE = Digest(algorithm="sha512", hex="b" * 128)


def _recipe(when: Any, *, keep: int = 2, vmids: tuple[int, int] = (900, 904)) -> Recipe:
    guest = Guest(
        label=TEMPLATE,
        node="pve1",
        vmid=900,
        name="golden",
        disks=(Disk(slot="scsi0", storage="local", size=GIB),),
        source=ImageSource(name="tiny", origin="/tiny.qcow2", storage="local"),
    )
    return Recipe(template=guest, rebuild=Rebuild(when=when, keep=keep, vmids=vmids))


def _made(
    vmid: int,
    made: date = MONDAY,
    image: Digest = OLD_IMAGE,
    *,
    ready: bool = True,
    template: bool = True,
    node: str = "pve1",
    at: int = 0,
) -> Generation:
    name = generation_name("golden", made, image)
    day, prefix = read_name(name)
    return Generation(
        vmid=vmid,
        node=node,
        name=name,
        made=day,
        prefix=prefix,
        created=at,
        ready=ready,
        template=template,
    )


def _decide(
    when: Any,
    generations: Sequence[Generation] = (),
    image: Digest = OLD_IMAGE,
    today: date = MONDAY,
    **options: Any,
) -> Decision:
    return decide(_recipe(when), generations, image, today, **options)


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True),
    st.dates(date(1970, 1, 1)),
    st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
)
def test_a_generations_name_tells_its_date_and_its_image(name: str, made: date, hex_: str) -> None:
    digest = Digest(algorithm="sha256", hex=hex_)

    assert read_name(generation_name(name, made, digest)) == (made, hex_[:8])


@pytest.mark.parametrize(
    "name", ["golden", "golden-20261399-aaaaaaaa", "golden-20260302-xyz", "-20260302-aaaaaaaa", ""]
)
def test_any_other_name_tells_neither(name: str) -> None:
    assert read_name(name) == (None, None)


@pytest.mark.parametrize("when", ["weekly", "on-new-image"])
def test_the_first_generation_takes_the_declared_number_and_a_dated_name(when: str) -> None:
    decision = _decide(when)

    assert decision.build
    assert (decision.guest.vmid, decision.guest.name) == (900, "golden-20260302-aaaaaaaa")


def test_a_template_that_is_never_rebuilt_keeps_its_declared_name() -> None:
    decision = _decide("never", today=NEXT_MONDAY)

    assert decision.build
    assert (decision.guest.vmid, decision.guest.name) == (900, "golden")


def test_a_template_that_is_never_rebuilt_is_not_built_again_whatever_the_image() -> None:
    decision = _decide("never", [_made(900)], NEW_IMAGE, NEXT_MONDAY)

    assert not decision.build
    assert decision.guest.vmid == 900


@pytest.mark.parametrize(("today", "due"), [(MONDAY, False), (SUNDAY, False), (NEXT_MONDAY, True)])
def test_a_weekly_template_is_due_once_a_calendar_week(today: date, due: bool) -> None:
    decision = _decide("weekly", [_made(900)], NEW_IMAGE, today)

    assert decision.build is due
    assert decision.guest.vmid == (901 if due else 900)


def test_the_turn_of_a_year_is_no_end_of_a_week() -> None:
    thursday, friday = date(2026, 12, 31), date(2027, 1, 1)

    assert not _decide("weekly", [_made(900, thursday)], today=friday).build


def test_a_new_image_brings_a_new_generation_beside_the_old_one() -> None:
    decision = _decide("on-new-image", [_made(900)], NEW_IMAGE, SUNDAY)

    assert decision.build
    assert (decision.guest.vmid, decision.guest.name) == (901, "golden-20260308-bbbbbbbb")
    assert "aaaaaaaa" in decision.reason
    assert "bbbbbbbb" in decision.reason


def test_the_same_image_brings_none_however_old_the_template_is() -> None:
    decision = _decide("on-new-image", [_made(900, node="pve2")], today=date(2030, 1, 1))

    assert not decision.build
    assert (decision.guest.name, decision.guest.node) == ("golden-20260302-aaaaaaaa", "pve2")


def test_a_template_whose_name_does_not_tell_its_image_is_rebuilt() -> None:
    plain = Generation(vmid=900, node="pve1", name="golden", ready=True, template=True)

    decision = _decide("on-new-image", [plain])

    assert decision.build
    assert decision.guest.vmid == 901


@pytest.mark.parametrize(
    ("ready", "template", "of"),
    [(False, True, SUNDAY), (False, False, NEXT_MONDAY), (True, False, NEXT_MONDAY)],
)
def test_what_was_begun_is_finished_before_a_third_is_begun(
    ready: bool, template: bool, of: date
) -> None:
    begun = _made(901, SUNDAY, NEW_IMAGE, ready=ready, template=template)
    generations = [_made(900), begun]

    decision = _decide("on-new-image", generations, NEW_IMAGE, NEXT_MONDAY)

    assert decision.build
    assert (decision.guest.vmid, decision.guest.name) == (901, f"golden-{of:%Y%m%d}-bbbbbbbb")
    assert "was begun and not finished" in decision.reason


def test_what_was_begun_in_an_earlier_week_is_of_the_week_that_finishes_it() -> None:
    begun = _made(901, SUNDAY, ready=False, template=False)
    finished = _decide("weekly", [begun], today=NEXT_MONDAY).guest.name

    now = Generation(
        vmid=901,
        node="pve1",
        name=finished,
        made=NEXT_MONDAY,
        prefix="a" * 8,
        ready=True,
        template=True,
    )
    assert finished == f"golden-{NEXT_MONDAY:%Y%m%d}-aaaaaaaa"
    assert not _decide("weekly", [now], today=NEXT_MONDAY).build


def test_what_was_begun_with_another_image_is_finished_with_the_new_one_and_named_so() -> None:
    generations = [_made(900, ready=False, template=False)]

    decision = _decide("on-new-image", generations, NEW_IMAGE, SUNDAY)

    assert (decision.guest.vmid, decision.guest.name) == (900, "golden-20260308-bbbbbbbb")


def test_numbers_of_other_guests_are_passed_over() -> None:
    decision = _decide("weekly", [_made(900)], today=NEXT_MONDAY, taken={901, 902})

    assert decision.guest.vmid == 903


def test_a_clones_number_is_not_taken_even_before_the_clone_exists() -> None:
    recipe = _recipe("weekly")
    clone = recipe.template.model_copy(update={"label": "c1", "vmid": 901})
    recipe = recipe.model_copy(update={"clones": (clone,)})

    assert decide(recipe, [_made(900)], OLD_IMAGE, NEXT_MONDAY).guest.vmid == 902


def test_without_a_free_number_the_advice_says_how_to_get_one() -> None:
    with pytest.raises(StageError) as refused:
        _decide("weekly", [_made(900)], today=NEXT_MONDAY, taken=range(900, 905))

    assert "900 to 904 are all taken" in refused.value.message
    assert "rebuild.vm_ids" in str(refused.value.advice)


def test_a_rebuild_of_a_template_without_a_free_number_is_no_trouble_where_none_is_due() -> None:
    assert not _decide("weekly", [_made(900)], taken=range(900, 905)).build


def test_generations_are_ordered_by_date_and_those_without_one_are_the_oldest() -> None:
    plain = Generation(vmid=950, node="pve1", name="golden", ready=True, template=True)
    old, new = _made(903), _made(901, SUNDAY)

    assert newest_first([plain, old, new]) == (new, old, plain)


@pytest.mark.parametrize(("keep", "gone"), [(1, [902, 901, 900]), (2, [901, 900]), (4, [])])
def test_what_is_beyond_the_kept_ones_is_superfluous_newest_first(
    keep: int, gone: list[int]
) -> None:
    days = [date(2026, 3, day) for day in (2, 3, 4, 5)]
    generations = [_made(900 + number, day) for number, day in enumerate(days)]
    recipe = _recipe("weekly", keep=keep)
    current = recipe.template.model_copy(update={"vmid": 903})

    assert [each.vmid for each in superfluous(recipe, generations, current)] == gone


def test_unfinished_generations_are_never_superfluous() -> None:
    generations = [_made(900, template=False, ready=False), _made(901, SUNDAY)]
    recipe = _recipe("weekly", keep=1)
    current = recipe.template.model_copy(update={"vmid": 901})

    assert superfluous(recipe, generations, current) == ()


@pytest.mark.parametrize("when", ["weekly", "on-new-image"])
def test_a_generation_that_is_asked_for_is_made_although_none_is_due(when: str) -> None:
    decision = _decide(when, [_made(900)], asked=True)

    assert decision.build
    assert decision.guest.vmid == 901
    assert "asked for" in decision.reason
    assert "VM 900" in decision.reason


def test_one_that_is_asked_for_and_due_says_why_it_is_due() -> None:
    decision = _decide("on-new-image", [_made(900)], NEW_IMAGE, asked=True)

    assert "the image changed" in decision.reason


def test_one_that_was_begun_is_finished_where_a_new_one_is_asked_for() -> None:
    begun = _made(901, ready=False, template=False)

    decision = _decide("weekly", [_made(900), begun], asked=True)

    assert decision.guest.vmid == 901
    assert "begun and not finished" in decision.reason
    assert "asked for" in decision.reason


def test_the_second_generation_of_a_day_and_image_has_a_name_of_its_own() -> None:
    first = _made(900)
    second = _decide("weekly", [first], asked=True).guest
    there = [first, _made(second.vmid).model_copy(update={"name": second.name})]

    third = _decide("weekly", there, asked=True).guest

    assert second.name == f"{first.name}-2"
    assert third.name == f"{first.name}-3"
    assert read_name(third.name) == (MONDAY, OLD_IMAGE.hex[:8])


def test_one_that_was_begun_does_not_get_the_name_of_the_one_before_it() -> None:
    begun = _made(901, ready=False, template=False)

    assert _decide("weekly", [_made(900), begun]).guest.name == f"{begun.name}-2"


def test_a_second_name_that_would_be_too_long_is_refused_with_what_to_do() -> None:
    recipe = _recipe("weekly")
    template = recipe.template.model_copy(update={"name": "g" * 45})
    recipe = recipe.model_copy(update={"template": template})
    name = generation_name(template.name, MONDAY, OLD_IMAGE)
    there = _made(900).model_copy(update={"name": name})

    with pytest.raises(StageError, match="longer than the 63 characters"):
        decide(recipe, [there], OLD_IMAGE, MONDAY, asked=True)


def test_a_template_without_generations_gets_no_second_one() -> None:
    assert not _decide("never", [_made(900)], asked=True).build


def test_the_second_generation_of_a_day_takes_a_number_after_the_first() -> None:
    first = _made(902)

    decision = _decide("weekly", [first], asked=True)

    assert decision.guest.vmid == 903


def test_of_one_day_the_machine_that_was_made_last_is_the_newest_whatever_its_number() -> None:
    last, first = _made(900, at=2_000), _made(904, at=1_000)

    assert newest_first([first, last]) == (last, first)


@pytest.mark.parametrize(
    ("meta", "seconds"),
    [("creation-qemu=9.2.0,ctime=1767225600", 1_767_225_600), ("creation-qemu=9.2.0", 0), ("", 0)],
)
def test_when_a_machine_was_made_is_read_from_what_the_server_wrote_down(
    meta: str, seconds: int
) -> None:
    assert created({"meta": meta}) == seconds


def test_what_makes_no_template_is_about_the_newest_finished_one_though_another_is_due() -> None:
    begun = _made(901, ready=False, template=False)

    decision = _decide("weekly", [_made(900), begun], today=NEXT_MONDAY, building=False)

    assert (decision.build, decision.guest.vmid) == (False, 900)


def test_without_a_finished_one_there_is_nothing_to_be_about() -> None:
    assert _decide("weekly", building=False).build
