"""One run at a time has an unfinished template: which one, and how another one gets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from blocks.manifest.mark import Mark, read_mark
from blocks.manifest.recipe import TEMPLATE
from blocks.proxmox.errors import AlreadyExists, Conflict, ProxmoxError
from blocks.proxmox.inventory import read_inventory
from tasks.errors import StageError
from tasks.found import FoundGuest, all_guests, of_environment
from tasks.holding import hold
from tasks.session import Session
from tasks.template import takeover
from tasks.template.takeover import take_over
from tests.environments import OTHER_RUN, RUN, Place, opened
from tests.meanwhile import lasting_until_asked_for
from tests.tasks.template.runs import Ended, build, surveyed, undo, volumes
from tests.templates import Golden

THIRD_RUN = "0000000c"


class Killed(BaseException):
    """The end of the process, as far as the code under test can tell."""


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def document(golden: Golden, tmp_path: Path) -> dict[str, Any]:
    return golden.document(golden.image_file(tmp_path / "image"))


def mark(golden: Golden) -> Mark | None:
    with golden.place.client() as client:
        config = client.get(f"/nodes/pve1/qemu/{golden.vmid}/config")
    return read_mark(str(config["description"]))


def run_of(golden: Golden) -> str:
    found = mark(golden)
    assert found is not None
    return found.run


def killed(golden: Golden, document: dict[str, Any], stage: str = "template") -> None:
    """What a run leaves that is killed before that stage."""

    def between(_: Session, __: str, name: str) -> None:
        if name == stage:
            raise Killed

    with pytest.raises(Killed):
        build(golden, document, RUN, between=between)


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From now on this is another machine: it knows nothing of earlier runs."""
    monkeypatch.setenv("PROXFLOW_STATE_DIR", str(tmp_path / "another-machine"))


class Paused:
    """A build in a thread, which waits before a stage until it is let go."""

    def __init__(self, golden: Golden, document: dict[str, Any], run_id: str, stage: str) -> None:
        self._stage = stage
        self._reached, self._go = threading.Event(), threading.Event()
        self.ended: Ended | None = None

        def work() -> None:
            self.ended = build(golden, document, run_id, between=self._between)

        self._thread = threading.Thread(target=work)
        self._thread.start()
        assert self._reached.wait(60), self.ended

    def _between(self, _: Session, __: str, name: str) -> None:
        if name == self._stage:
            self._reached.set()
            assert self._go.wait(60)

    def finish(self) -> Ended:
        self._go.set()
        self._thread.join(60)
        assert self.ended is not None
        return self.ended


@contextmanager
def paused(
    golden: Golden, document: dict[str, Any], run_id: str = RUN, stage: str = "template"
) -> Iterator[Paused]:
    waiting = Paused(golden, document, run_id, stage)
    try:
        yield waiting
    finally:
        waiting.finish()


def only_error(ended: Ended) -> ProxmoxError:
    (error,) = ended.errors.values()
    return error


def test_a_run_at_work_is_left_alone_and_named(golden: Golden, document: dict[str, Any]) -> None:
    with paused(golden, document) as first:
        second = build(golden, document, OTHER_RUN)
        ended = first.finish()

    error = only_error(second)
    assert isinstance(error, StageError)
    assert f"is being made by run {RUN}, at work on this machine since 20" in error.message
    assert ended.errors == {}
    assert run_of(golden) == RUN


def test_the_rollback_of_the_run_that_was_refused_takes_nothing(
    golden: Golden, document: dict[str, Any]
) -> None:
    with paused(golden, document) as first:
        second = build(golden, document, OTHER_RUN)
        there = volumes(golden)
        first.finish()

    assert second.undone is not None
    assert second.undone.nothing
    assert there != []


def test_a_run_of_this_machine_that_was_killed_is_taken_over_at_once(
    golden: Golden, document: dict[str, Any]
) -> None:
    killed(golden, document)

    ended = build(golden, document, OTHER_RUN)

    assert ended.errors == {}
    assert run_of(golden) == OTHER_RUN


def test_a_run_of_another_machine_counts_as_alive_while_its_guest_was_just_worked_on(
    golden: Golden, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed(golden, document)
    elsewhere(monkeypatch, tmp_path)

    error = only_error(build(golden, document, OTHER_RUN))

    assert f"is being made by run {RUN}, begun at 20" in error.message
    assert "last seen at work at 20" in error.message
    assert f"--run {RUN}" in str(error.advice)
    assert run_of(golden) == RUN


def test_a_run_of_another_machine_that_has_been_quiet_for_long_is_taken_over(
    golden: Golden, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed(golden, document)
    elsewhere(monkeypatch, tmp_path)
    monkeypatch.setattr(takeover, "QUIET", 0.0)

    ended = build(golden, document, OTHER_RUN)

    assert ended.errors == {}
    assert run_of(golden) == OTHER_RUN


@pytest.mark.parametrize("stage", ["configure", "template"])
def test_a_run_that_was_thought_dead_stops_and_takes_nothing_with_it(
    golden: Golden,
    document: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stage: str,
) -> None:
    golden.write(document)
    with paused(golden, document, stage=stage) as first:
        elsewhere(monkeypatch, tmp_path)
        monkeypatch.setattr(takeover, "QUIET", 0.0)
        with paused(golden, document, OTHER_RUN) as second:
            lost = first.finish()
            won = second.finish()

    error = only_error(lost)
    assert isinstance(error, AlreadyExists)
    assert f"was taken over by run {OTHER_RUN}" in error.message
    assert lost.undone is not None
    assert lost.undone.guests == ()
    assert won.errors == {}
    assert mark(golden) == Mark(
        env=golden.name, guest=TEMPLATE, vmid=golden.vmid, run=OTHER_RUN, ready=True
    )


def test_what_was_taken_over_goes_with_the_run_that_took_it_seeds_of_the_first_too(
    golden: Golden, document: dict[str, Any]
) -> None:
    document["spec"]["cloud_init"] |= {"method": "seed", "storage": "local"}
    killed(golden, document)
    golden.place.lab.fault(kind="task", type="qmtemplate", exitstatus="no luck")

    ended = build(golden, document, OTHER_RUN)

    assert ended.undone is not None
    assert ended.undone.errors == ()
    assert golden.place.guests() == []
    assert volumes(golden) == []


def found(here: Session) -> FoundGuest:
    guests = all_guests(here.client, read_inventory(here.client))
    (only,) = of_environment(guests, here.environment.name)
    return only


@contextmanager
def late(golden: Golden, document: dict[str, Any]) -> Iterator[Session]:
    """A second run that has read what a dead one left."""
    killed(golden, document)
    with opened(golden.write(document), OTHER_RUN) as here:
        surveyed(here)
        yield here


def test_a_run_that_read_before_a_rollback_began_loses_against_it(
    golden: Golden, document: dict[str, Any]
) -> None:
    with late(golden, document) as here:
        guest = here.guest(TEMPLATE)
        read_before = here.require(guest)

        assert hold(here.client, found(here), [], []) is not None

        with pytest.raises(Conflict):
            take_over(here, guest, read_before)
        with pytest.raises(StageError, match=f"being removed by the rollback of run {RUN}"):
            take_over(here, guest, here.require(guest))


def test_a_rollback_that_read_before_a_run_took_over_loses_against_it(
    golden: Golden, document: dict[str, Any]
) -> None:
    notes: list[str] = []
    with late(golden, document) as here:
        read_before, guest = found(here), here.guest(TEMPLATE)
        take_over(here, guest, here.require(guest))

        held = hold(here.client, read_before, notes, [])

    assert held is None
    assert f"was taken over by run {OTHER_RUN}" in notes[0]
    assert run_of(golden) == OTHER_RUN


def test_a_rollback_leaves_the_seed_that_the_run_which_took_over_is_about_to_attach(
    golden: Golden, document: dict[str, Any]
) -> None:
    document["spec"]["cloud_init"] |= {"method": "seed", "storage": "local"}
    with late(golden, document) as here:
        guest = here.guest(TEMPLATE)
        slot = guest.cloud_init.slot if guest.cloud_init else ""
        here.client.put(f"/nodes/pve1/qemu/{golden.vmid}/config", delete=slot)
        take_over(here, guest, here.require(guest))
        there = volumes(golden)

        undone = undo(here, RUN)

    assert undone.errors == ()
    assert [name for name in there if name.endswith(".iso")] != []
    assert volumes(golden) == there


def test_of_two_runs_that_take_over_at_once_one_wins(
    golden: Golden, document: dict[str, Any]
) -> None:
    with late(golden, document) as second, opened(golden.write(document), THIRD_RUN) as third:
        guest = second.guest(TEMPLATE)
        both = second.require(guest), third.require(guest)
        take_over(second, guest, both[0])

        with pytest.raises(Conflict):
            take_over(third, guest, both[1])

        with pytest.raises(StageError, match=f"being made by run {OTHER_RUN}, at work"):
            take_over(third, guest, third.require(guest))


def test_a_rollback_that_broke_off_is_finished_by_the_command_that_the_refusal_names(
    golden: Golden, document: dict[str, Any]
) -> None:
    with late(golden, document) as here:
        hold(here.client, found(here), [], [])
    refused = only_error(build(golden, document, OTHER_RUN))
    assert f"--run {RUN}`" in str(refused.advice)

    with opened(golden.write(document), THIRD_RUN) as here:
        undone = undo(here, RUN)

    assert undone.errors == ()
    assert len(undone.guests) == 1
    assert build(golden, document, OTHER_RUN).errors == {}


def test_what_a_rollback_could_not_remove_may_be_taken_over_again(
    golden: Golden, document: dict[str, Any]
) -> None:
    killed(golden, document)
    golden.place.lab.fault(kind="task", type="qmdestroy", exitstatus="no luck", times=1)
    with opened(golden.write(document), THIRD_RUN) as here:
        assert undo(here, RUN).errors != ()

    assert build(golden, document, OTHER_RUN).errors == {}


def test_a_dead_runs_task_is_waited_for_before_its_guest_is_taken_over(
    golden: Golden, document: dict[str, Any]
) -> None:
    golden.place.lab.set_time(scale=1.0, imgcopy=0.0, qmcreate=0.0, qmconfig=600)
    with late_in_a_task(golden, document) as here:
        guest = here.guest(TEMPLATE)

        with lasting_until_asked_for(golden.place.lab):
            live = take_over(here, guest, here.require(guest))
    golden.place.lab.set_time(qmconfig=1)

    assert "scsi0" in live.config
    assert run_of(golden) == OTHER_RUN


@contextmanager
def late_in_a_task(golden: Golden, document: dict[str, Any]) -> Iterator[Session]:
    """The same, while the import of the dead run goes on."""
    killed(golden, document, stage="configure")
    with opened(golden.write(document), OTHER_RUN) as here:
        surveyed(here)
        volume = f"local-lvm:0,import-from=local:import/{_image(here)}"
        here.client.post(f"/nodes/pve1/qemu/{golden.vmid}/config", scsi0=volume)
        yield here


def _image(here: Session) -> str:
    rows = here.client.get("/nodes/pve1/storage/local/content", content="import")
    stem = f"proxflow-{here.environment.name}-"
    names: list[str] = [str(row["volid"]).rpartition("/")[2] for row in rows]
    return next(name for name in names if name.startswith(stem))
