"""Which runs are at work, as far as this machine or a Prefect server can tell."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from prefect import flow, runtime

from tasks.atwork import at_work, has_ended, known_worker
from tasks.limits import PRIVATE_API

ENV, RUN = "shop", "0000000a"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing has run."""
    folder = tmp_path / "state"
    monkeypatch.setenv("PROXFLOW_STATE_DIR", str(folder))
    return folder


def test_a_run_that_never_was_here_is_not_known() -> None:
    assert known_worker(ENV, RUN) is None


def test_a_run_is_at_work_until_it_ends_and_known_afterwards() -> None:
    with at_work(ENV, RUN):
        during = known_worker(ENV, RUN)
    after = known_worker(ENV, RUN)

    assert during is not None
    assert after is not None
    assert (during.alive, after.alive) == (True, False)
    assert during.since == after.since


def test_of_two_who_look_at_once_neither_takes_the_other_for_the_run(machine: Path) -> None:
    with at_work(ENV, RUN):
        pass

    with (machine / "runs" / ENV / f"{RUN}.lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        seen = known_worker(ENV, RUN)

    assert seen is not None
    assert not seen.alive


def test_a_lock_that_was_deleted_proves_no_run_dead(machine: Path) -> None:
    with at_work(ENV, RUN):
        (machine / "runs" / ENV / f"{RUN}.lock").unlink()

        assert known_worker(ENV, RUN) is None


def test_an_old_note_that_vanishes_meanwhile_leaves_no_run_unknown(machine: Path) -> None:
    folder = machine / "runs" / ENV
    folder.mkdir(parents=True)
    (folder / "0000dead.json").symlink_to(folder / "gone")

    with at_work(ENV, RUN):
        seen = known_worker(ENV, RUN)

    assert seen is not None
    assert seen.alive


def test_a_state_folder_that_cannot_be_written_stops_no_run(machine: Path) -> None:
    machine.write_text("a file in the place of the folder")

    with at_work(ENV, RUN):
        assert known_worker(ENV, RUN) is None


@pytest.mark.usefixtures("prefect_api")
def test_a_prefect_server_that_machines_share_tells_of_a_run_once_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(PRIVATE_API, raising=False)
    seen: list[bool] = []

    @flow(name="template", flow_run_name=f"template {ENV}")
    def build() -> str:
        run_id = str(runtime.flow_run.id)[-8:]
        seen.append(has_ended(ENV, run_id))
        return run_id

    run_id = build()

    assert seen == [False]
    assert has_ended(ENV, run_id)
    assert not has_ended(ENV, "ffffffff" if run_id != "ffffffff" else "00000000")
