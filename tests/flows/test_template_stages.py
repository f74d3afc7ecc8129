"""Which stages of a template a run does."""

from __future__ import annotations

import pytest

from blocks.proxmox.errors import BadSettings
from flows.template_stages import STAGES, select


def test_without_options_every_stage_is_done() -> None:
    assert select() == STAGES


def test_stages_are_done_in_their_own_order_however_they_are_named() -> None:
    assert select(["create,image"]) == ("image", "create")
    assert select(["create", "image"]) == ("image", "create")


def test_a_group_stands_for_its_stages() -> None:
    assert select(["vm"]) == ("create", "configure")
    assert select(["vm", "template"], skip=["create"]) == ("configure", "template")


def test_skip_leaves_stages_out_and_from_those_before() -> None:
    assert select(skip=["clones"]) == STAGES[:-1]
    assert select(start="configure") == ("configure", "template", "clones")
    assert select(start="vm", skip=["preflight,clones"]) == ("create", "configure", "template")


def test_every_word_that_names_no_stage_is_told_with_the_nearest_one() -> None:
    with pytest.raises(BadSettings) as refused:
        select(["imgae", "create"], skip=["clone"], start="configur")

    text = str(refused.value)
    assert "--stages: there is no stage 'imgae'; did you mean 'image'?" in text
    assert "--skip: there is no stage 'clone'; did you mean 'clones'?" in text
    assert "--from: there is no stage 'configur'; did you mean 'configure'?" in text


def test_nothing_left_to_do_is_refused() -> None:
    with pytest.raises(BadSettings) as refused:
        select(["image"], skip=["image"])

    assert "no stage is left to do" in str(refused.value)
