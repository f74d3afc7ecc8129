"""Builds that are broken off, whose guests become others', or that meet another build."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from blocks.manifest.mark import Mark, marked, read_mark
from blocks.units import GIB, MIB
from tasks.errors import StageError
from tasks.session import Session
from tasks.template import stages
from tests.environments import OTHER_RUN, RUN, opened
from tests.tasks.template.runs import (
    TODAY,
    Ended,
    build,
    clones,
    finished,
    generations,
    rebuilt,
    undo,
    volumes,
)
from tests.templates import Golden

THIRD_RUN = "0000000c"
STOPS = (
    ("template", "image"),
    ("template", "create"),
    ("template", "configure"),
    ("template", "template"),
    ("c1", "clone"),
    ("c1", "adjust"),
    ("c1", "start"),
    ("c2", "start"),
    ("template", "publish"),
)


class Killed(BaseException):
    """The end of the process, as far as the code under test can tell."""


def older(golden: Golden, tmp_path: Path, **rebuild: Any) -> dict[str, Any]:
    """A manifest with one generation that is there, without clones, and a new image."""
    document = rebuilt(golden, golden.image_file(tmp_path / "old"), **rebuild)
    declared = document["spec"].pop("clones")
    assert build(golden, document, OTHER_RUN).ok
    document["spec"]["clones"] = declared
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "new", GIB + MIB))
    return document


def before(golden: Golden, label: str, stage: str, act: Callable[[Session], None]) -> Any:
    """Something that happens once, before that stage of that guest."""
    wanted = label if label == "template" else f"{label}-{golden.place.number}"

    def between(here: Session, guest: str, name: str) -> None:
        if (guest, name) == (wanted, stage):
            act(here)

    return between


def kill(_: Session) -> None:
    raise Killed


@pytest.mark.parametrize(("label", "stage"), STOPS)
def test_a_killed_build_is_finished_by_the_next_one(
    golden: Golden, tmp_path: Path, label: str, stage: str
) -> None:
    document = older(golden, tmp_path)
    with pytest.raises(Killed):
        build(golden, document, RUN, between=before(golden, label, stage, kill))

    ended = build(golden, document, THIRD_RUN)

    new = golden.vmid + 11
    assert ended.errors == {}
    assert finished(golden) == [golden.vmid + 1, golden.vmid + 2, new]
    assert list(generations(golden)) == [new]
    assert len([name for name in volumes(golden) if "proxflow_" in name]) == 1


@pytest.mark.parametrize(("label", "stage"), STOPS)
def test_a_rollback_after_a_kill_leaves_the_older_generation_and_nothing_else(
    golden: Golden, tmp_path: Path, label: str, stage: str
) -> None:
    document = older(golden, tmp_path)
    kept = volumes(golden)
    (old,) = generations(golden)
    with pytest.raises(Killed):
        build(golden, document, RUN, between=before(golden, label, stage, kill))

    with opened(golden.write(document), THIRD_RUN) as here:
        done = undo(here, RUN)

    assert done.errors == ()
    assert (list(generations(golden)), clones(golden)) == ([old], {})
    assert volumes(golden) == kept
    assert f"{golden.name}-current" in generations(golden)[old]["tags"]


@pytest.mark.parametrize("step", ["switch_alias", "retire"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_dies_while_it_publishes_never_leaves_less_than_a_whole_generation(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    document = older(golden, tmp_path)
    new = golden.vmid + 11
    real = getattr(stages, step)

    def dies(*arguments: Any) -> None:
        if when == "after":
            real(*arguments)
        raise Killed

    monkeypatch.setattr(stages, step, dies)
    with pytest.raises(Killed):
        build(golden, document, RUN)
    monkeypatch.setattr(stages, step, real)
    with opened(golden.write(document), THIRD_RUN) as here:
        done = undo(here, RUN)
    left = finished(golden)
    again = build(golden, document, THIRD_RUN)

    assert done.kept == (f"VM {new} ({generations(golden)[new]['name']}) on pve1",)
    assert new in left
    assert again.errors == {}
    assert finished(golden) == [golden.vmid + 1, golden.vmid + 2, new]
    assert f"{golden.name}-current" in generations(golden)[new]["tags"]


@pytest.mark.parametrize("stage", ["clone", "adjust", "start"])
@pytest.mark.parametrize("which", [(1,), (2,), (1, 2)], ids=str)
def test_clones_that_fail_go_alone_and_the_next_run_makes_them(
    golden: Golden, tmp_path: Path, stage: str, which: tuple[int, ...]
) -> None:
    document = older(golden, tmp_path)
    for index in reversed(which):
        _break(golden, stage, golden.vmid + index)

    ended = build(golden, document, RUN)
    left = clones(golden)
    golden.place.lab.clear_faults()
    seeds = [name for name in volumes(golden) if "proxflow_" in name]
    again = build(golden, document, THIRD_RUN)

    assert {label for label, _ in ended.errors} <= {f"c{n}-{golden.place.number}" for n in which}
    assert ended.errors
    assert sorted(left) == [golden.vmid + n for n in (1, 2) if n not in which]
    assert len(seeds) == (0 if 2 in which else 1)
    assert list(generations(golden)) == [golden.vmid + 11]
    assert again.errors == {}
    assert finished(golden) == [golden.vmid + 1, golden.vmid + 2, golden.vmid + 11]


def test_a_clone_that_failed_and_was_kept_is_finished_by_the_next_run(
    golden: Golden, tmp_path: Path
) -> None:
    document = older(golden, tmp_path)
    _break(golden, "start", golden.vmid + 2)

    ended = build(golden, document, RUN, rollback=False)
    left = dict(clones(golden))
    golden.place.lab.clear_faults()
    again = build(golden, document, THIRD_RUN)

    assert not ended.ok
    assert sorted(left) == [golden.vmid + 1, golden.vmid + 2]
    assert again.errors == {}
    mark = read_mark(clones(golden)[golden.vmid + 2]["description"])
    assert mark is not None
    assert (mark.run, mark.ready) == (RUN, True)


def _break(golden: Golden, stage: str, vmid: int) -> None:
    lab = golden.place.lab
    if stage == "clone":
        # The call does not name the clone: the first ones pass.
        path, skip = f"/nodes/pve1/qemu/{golden.vmid + 11}/clone", vmid - golden.vmid - 1
        lab.fault(method="POST", path=path, status=500, reason="no space", skip=skip)
    elif stage == "adjust":
        path = f"/nodes/pve1/qemu/{vmid}/config"
        lab.fault(method="PUT", path=path, status=500, reason="no such luck")
    else:
        lab.fault(kind="task", type="qmstart", id=str(vmid), exitstatus="no memory")


def becomes_anothers(golden: Golden, vmid: int, how: str) -> Callable[[Session], None]:
    """Deletes a guest and makes somebody else's of its number, or edits its mark by hand."""

    def act(here: Session) -> None:
        path = f"/nodes/pve1/qemu/{vmid}"
        there = str(vmid) in golden.place.lab.snapshot()["guests"]
        if how == "replaced":
            if there:
                here.client.run("DELETE", path)
            here.client.run("POST", "/nodes/pve1/qemu", vmid=vmid, name="stranger")
        elif there:
            mark = Mark(env="elsewhere", guest="x", vmid=vmid, run=OTHER_RUN, ready=True)
            text = marked(mark, "") if how == "of another environment" else "mine now"
            here.client.put(f"{path}/config", description=text)

    return act


@pytest.mark.parametrize(
    ("label", "stage", "index", "how"),
    [
        ("template", "create", 11, "replaced"),
        ("template", "configure", 11, "mine now"),
        ("template", "template", 11, "of another environment"),
        ("c1", "clone", 11, "replaced"),
        ("c1", "clone", 1, "replaced"),
        ("c1", "adjust", 1, "replaced"),
        ("c1", "adjust", 1, "mine now"),
        ("c1", "start", 1, "of another environment"),
        ("template", "publish", 11, "mine now"),
        ("template", "publish", 10, "mine now"),
        ("template", "publish", 10, "replaced"),
    ],
)
def test_a_guest_that_becomes_anothers_between_two_stages_is_left_as_it_is(
    golden: Golden, tmp_path: Path, label: str, stage: str, index: int, how: str
) -> None:
    document = older(golden, tmp_path)
    vmid = golden.vmid + index
    found: dict[str, Any] = {}
    act = becomes_anothers(golden, vmid, how)

    def happens(here: Session) -> None:
        act(here)
        found.update(here.client.get(f"/nodes/pve1/qemu/{vmid}/config"))

    ended = build(golden, document, RUN, between=before(golden, label, stage, happens))
    with opened(golden.write(document), THIRD_RUN) as here:
        undo(here, RUN)

    assert {**generations(golden), **clones(golden)}[vmid] == found
    assert ended.ok is (index == 10)


def test_a_hand_made_clone_of_a_generation_is_nobodys_and_stays(
    golden: Golden, tmp_path: Path
) -> None:
    document = older(golden, tmp_path)
    (old,) = generations(golden)
    copy = golden.vmid + 5
    with golden.place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{old}/clone", newid=copy, full=1)
    theirs = clones(golden)[copy]

    ended = build(golden, document, RUN)
    with opened(golden.write(document), THIRD_RUN) as here:
        for run in (OTHER_RUN, RUN):
            undo(here, run)

    assert ended.errors == {}
    assert clones(golden) == {copy: theirs}


@pytest.mark.parametrize(("storage", "stays"), [("local", True), ("local-lvm", False)])
def test_an_older_generation_that_a_strangers_linked_clone_needs_stays(
    golden: Golden, tmp_path: Path, storage: str, stays: bool
) -> None:
    document = rebuilt(golden, golden.image_file(tmp_path / "old"), clones=0)
    document["spec"]["disk"]["storage"] = storage
    build(golden, document, OTHER_RUN)
    (old,) = generations(golden)
    copy = golden.vmid + 5
    with golden.place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{old}/clone", newid=copy, full=0)
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "new", GIB + MIB))

    ended = build(golden, document, RUN)

    assert ended.errors == {}
    assert list(generations(golden)) == ([old, old + 1] if stays else [old + 1])
    assert list(clones(golden)) == [copy]
    assert any(f"linked clones of it: VM {copy}" in text for text in ended.warnings) is stays


def test_the_seed_of_a_generation_that_is_undone_goes_with_it(
    golden: Golden, tmp_path: Path
) -> None:
    document = rebuilt(golden, golden.image_file(tmp_path / "old"), clones=0)
    document["spec"]["cloud_init"] |= {"method": "seed", "storage": "local"}
    build(golden, document, OTHER_RUN)
    kept = volumes(golden)
    document["spec"]["image"]["path"] = str(golden.image_file(tmp_path / "new", GIB + MIB))
    document["spec"]["cloud_init"]["timezone"] = "Europe/Berlin"
    golden.place.lab.fault(kind="task", type="qmtemplate", exitstatus="no luck")

    ended = build(golden, document, RUN)

    assert ended.undone is not None
    assert ended.undone.errors == ()
    assert volumes(golden) == kept


def test_weeks_pass_and_one_generation_follows_the_other(golden: Golden, tmp_path: Path) -> None:
    document = rebuilt(golden, golden.image_file(tmp_path / "old"), clones=0, when="weekly", keep=2)
    there = []
    for week in range(7):
        for day in (0, 1):
            ended = build(
                golden, document, f"{week:07x}{day}", today=TODAY + timedelta(days=7 * week + day)
            )
            assert ended.errors == {}
        there.append(sorted(generations(golden)))

    first = golden.vmid + 10
    names = {each["name"][-17:-9] for each in generations(golden).values()}
    assert names == {f"{TODAY + timedelta(days=7 * week):%Y%m%d}" for week in (5, 6)}
    assert there[:4] == [[first], [first, first + 1], [first + 1, first + 2], [first, first + 2]]
    assert all(len(each) == 2 for each in there[1:])


def test_no_generation_is_made_while_one_is_out_of_reach(golden: Golden, tmp_path: Path) -> None:
    document = older(golden, tmp_path)
    document["spec"]["node"] = "pve2"
    golden.place.lab.node_offline("pve1")
    try:
        with pytest.raises(StageError, match=f"VM {golden.vmid + 10} on pve1 cannot be read"):
            build(golden, document, RUN)
    finally:
        golden.place.lab.node_offline("pve1", on=False)


def test_a_generation_that_a_kill_left_last_week_is_of_this_week(
    golden: Golden, tmp_path: Path
) -> None:
    document = older(golden, tmp_path, when="weekly")
    later = TODAY + timedelta(days=7)
    stop = before(golden, "template", "template", kill)
    with pytest.raises(Killed):
        build(golden, document, RUN, today=later, between=stop)
    this_week = later + timedelta(days=7)

    ended = build(golden, document, THIRD_RUN, today=this_week)
    golden.place.lab.forget_requests()
    again = build(golden, document, OTHER_RUN, today=this_week + timedelta(days=1))

    assert (ended.errors, again.errors) == ({}, {})
    (name,) = [each["name"] for each in generations(golden).values()]
    assert f"-{this_week:%Y%m%d}-" in name
    assert golden.place.changes() == []


def test_a_publication_that_failed_keeps_both_generations_and_is_made_up_by_the_next_run(
    golden: Golden, tmp_path: Path
) -> None:
    document = older(golden, tmp_path)
    (old,) = generations(golden)
    golden.place.lab.fault(
        method="PUT", path=f"/nodes/pve1/qemu/{old}/config", status=500, reason="no luck", times=0
    )

    ended = build(golden, document, RUN)
    both = list(generations(golden))
    golden.place.lab.clear_faults()
    again = build(golden, document, THIRD_RUN)

    assert list(ended.errors) == [("template", "publish")]
    assert both == [old, old + 1]
    assert again.errors == {}
    assert list(generations(golden)) == [old + 1]


@pytest.mark.parametrize("scale", [0.0, 0.02])
@pytest.mark.parametrize("when", ["never", "on-new-image"])
def test_two_builds_at_once_make_one_template_and_each_clone_once(
    golden: Golden, tmp_path: Path, when: str, scale: float
) -> None:
    document = rebuilt(golden, golden.image_file(tmp_path / "image"), when=when)
    golden.place.lab.set_time(scale=scale)
    golden.write(document)
    ends: dict[str, Ended] = {}
    together = threading.Barrier(2)

    def work(run_id: str) -> None:
        def meet(_: Session) -> None:
            together.wait(60)

        start = before(golden, "template", "create", meet)
        ends[run_id] = build(golden, document, run_id, between=start)

    threads = [threading.Thread(target=work, args=(run,)) for run in (RUN, OTHER_RUN)]
    _both_end(golden, document, threads)

    assert any(end.ok for end in ends.values())
    assert len(ends) == 2


@pytest.mark.parametrize(
    ("label", "stage"),
    [("template", "configure"), ("template", "template"), ("c1", "adjust"), ("c2", "start")],
)
def test_a_build_that_meets_another_on_its_way_does_no_harm(
    golden: Golden, tmp_path: Path, label: str, stage: str
) -> None:
    document = rebuilt(golden, golden.image_file(tmp_path / "image"))
    golden.write(document)
    golden.place.lab.set_time(scale=0.02)
    reached = threading.Event()
    ends: dict[str, Ended] = {}

    def work(run_id: str, act: Callable[[Session], None]) -> None:
        ends[run_id] = build(golden, document, run_id, between=before(golden, label, stage, act))

    def second() -> None:
        reached.wait(60)
        work(OTHER_RUN, lambda _: None)

    threads = [
        threading.Thread(target=work, args=(RUN, lambda _: reached.set())),
        threading.Thread(target=second),
    ]
    _both_end(golden, document, threads)

    assert any(end.ok for end in ends.values())
    assert len(ends) == 2


def _both_end(
    golden: Golden, document: dict[str, Any], threads: Sequence[threading.Thread]
) -> None:
    """Let two builds run to their ends; a third one must then find one of everything."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    golden.place.lab.set_time(scale=0.0)
    golden.place.lab.settle()

    again = build(golden, document, THIRD_RUN)

    assert again.errors == {}
    assert len(generations(golden)) == 1
    assert sorted(clones(golden)) == [golden.vmid + 1, golden.vmid + 2]
    assert len([name for name in volumes(golden) if "proxflow_" in name]) == 1
