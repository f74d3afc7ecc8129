"""Deep merge: mapping by mapping, the winner's values stand, lists are replaced whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from blocks.manifest.tree import Item, merge, plain

PLACE = Path("x.yaml")


def item(value: Any, file: Path = PLACE) -> Item:
    """A tree of plain data."""
    if isinstance(value, dict):
        return Item({key: item(child, file) for key, child in value.items()}, file, 1, "")
    if isinstance(value, list):
        return Item([item(child, file) for child in value], file, 1, "")
    return Item(value, file, 1, "")


scalars = st.one_of(st.booleans(), st.integers(), st.text(max_size=3))
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=12,
)
mappings = st.dictionaries(st.sampled_from("abcd"), trees, max_size=4)


@given(mappings)
def test_merging_with_nothing_changes_nothing(data: dict[str, Any]) -> None:
    assert plain(merge(item(data), item({}))) == data
    assert plain(merge(item({}), item(data))) == data


@given(mappings)
def test_merging_with_itself_changes_nothing(data: dict[str, Any]) -> None:
    assert plain(merge(item(data), item(data))) == data


@given(mappings, mappings)
def test_everything_of_the_winner_is_in_the_result(
    winner: dict[str, Any], base: dict[str, Any]
) -> None:
    def holds(result: Any, wanted: Any) -> bool:
        if isinstance(wanted, dict):
            return isinstance(result, dict) and all(
                key in result and holds(result[key], child) for key, child in wanted.items()
            )
        return bool(result == wanted)

    assert holds(plain(merge(item(winner), item(base))), winner)


@given(mappings, mappings)
def test_no_key_is_lost_or_invented(winner: dict[str, Any], base: dict[str, Any]) -> None:
    assert plain(merge(item(winner), item(base))).keys() == winner.keys() | base.keys()


@given(mappings, mappings, mappings)
def test_it_does_not_matter_which_two_of_three_are_merged_first(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    # A scalar in the middle cuts off what is below it, in either order only if it wins.
    left = plain(merge(merge(item(one), item(two)), item(three)))
    right = plain(merge(item(one), merge(item(two), item(three))))

    assert left == right or _meets_scalar(one, two, three)


def _meets_scalar(*data: Any) -> bool:
    """Whether one key is a mapping in one document and no mapping in another."""
    dicts = [each for each in data if isinstance(each, dict)]
    if dicts and len(dicts) < len(data):
        return True
    keys = {key for each in dicts for key in each}
    return any(_meets_scalar(*(each[key] for each in dicts if key in each)) for key in keys)


@given(mappings, mappings)
def test_the_arguments_are_left_alone(winner: dict[str, Any], base: dict[str, Any]) -> None:
    one, other = item(winner), item(base)

    merge(one, other)

    assert plain(one) == winner
    assert plain(other) == base


def test_each_part_keeps_its_file_and_the_winner_its_order() -> None:
    merged = merge(item({"b": 1, "a": 2}), item({"a": 3, "c": 4}, Path("base.yaml")))

    assert list(plain(merged)) == ["b", "a", "c"]
    assert [child.file.name for child in merged.entries().values()] == [
        "x.yaml",
        "x.yaml",
        "base.yaml",
    ]


def test_null_takes_a_key_of_the_base_away() -> None:
    assert plain(merge(item({"a": None}), item({"a": {"b": 1}, "c": 2}))) == {"c": 2}
