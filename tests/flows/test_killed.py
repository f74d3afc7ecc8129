"""Runs that die: in processes of their own, killed in the middle, and what the next one does."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from deployments.lab.testing import RunningLab
from tests.environments import Place, opened
from tests.flows.commands import Commands
from tests.flows.processes import Program
from tests.labfixture import LabFactory
from tests.tasks.test_installation import made

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    """A cluster on which an installation never ends by itself."""
    found = lab_factory()
    found.set_time(scale=0.001, install=3_600_000.0)
    return found


def up(manifest: Path, api: str, *words: str) -> Program:
    home = Path(os.environ["PREFECT_HOME"])
    return Program("-m", "flows.up", str(manifest), "--yes", *words, home=home, api=api)


def wait_stage(run: Program) -> None:
    """Read on until the guest is started and being waited for."""
    assert run.process.stdout is not None
    for line in run.process.stdout:
        run.lines.append(line.rstrip())
        if re.search(r"start +done", line):
            return
    raise AssertionError("\n".join(run.lines))


def finish_installations(place: Place) -> None:
    place.lab.set_time(scale=0.0, install=300.0)


def endless_installations(place: Place) -> None:
    place.lab.set_time(scale=0.001, install=3_600_000.0)


def test_a_killed_run_is_taken_up_by_the_next_one(
    place: Place, run: Commands, prefect_api: str
) -> None:
    manifest = place.write()
    with up(manifest, prefect_api) as killed:
        wait_stage(killed)
        killed.send(signal.SIGKILL)
        assert killed.rest() == -signal.SIGKILL
    left = place.guests()
    description = place.config()["description"]

    finish_installations(place)
    resumed = run("up", manifest, "--yes", "--json")
    endless_installations(place)

    assert left == [place.vmid()]
    assert resumed.code == 0
    made_by = re.search(r"run=(\w+)", description)
    assert made_by is not None
    assert f"run={made_by[1]} state=ready" in place.config()["description"]
    stages = {stage["name"]: stage["status"] for stage in resumed.json()["guests"][0]["stages"]}
    assert (stages["create"], stages["start"], stages["finalize"]) == (
        "unchanged",
        "unchanged",
        "done",
    )


def test_a_killed_run_is_undone_by_rollback_and_by_nothing_twice(
    place: Place, run: Commands, prefect_api: str
) -> None:
    manifest = place.write()
    neighbour = place.neighbour()
    theirs = neighbour.write()
    with opened(theirs) as here:
        made(here)
    with up(manifest, prefect_api) as killed:
        wait_stage(killed)
        killed.send(signal.SIGKILL)
        killed.rest()

    first = run("rollback", manifest, "--yes")
    place.lab.forget_requests()
    second = run("rollback", manifest, "--yes")

    assert first.code == 0
    assert "1 guest removed, 1 seed ISO removed" in first.out
    assert second.code == 2
    assert place.lab.writes() == []
    assert (place.guests(), place.volumes()) == ([], [])
    assert (len(neighbour.guests()), len(neighbour.volumes("iso/"))) == (1, 1)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, {1, 130}), (signal.SIGTERM, {-signal.SIGTERM, 143})]
)
def test_a_signal_rolls_the_run_back(
    place: Place, prefect_api: str, number: signal.Signals, code: set[int]
) -> None:
    with up(place.write(), prefect_api) as stopped:
        wait_stage(stopped)
        stopped.send(number)
        ended = stopped.rest()

    said = "\n".join(stopped.lines)
    assert ended in code, said
    assert "Traceback" not in said
    assert "removed VM" in said
    assert (place.guests(), place.volumes()) == ([], [])


def test_a_run_that_was_told_to_keep_what_it_made_keeps_it_on_a_signal_too_and_shows_no_secret(
    place: Place, prefect_api: str
) -> None:
    secret = str(place.lab.connection["token_secret"]).encode()
    with up(place.write(), prefect_api, "--no-rollback") as stopped:
        wait_stage(stopped)
        arguments = [each for each in map(arguments_of, Path("/proc").glob("[0-9]*")) if each]
        environment = Path(f"/proc/{stopped.process.pid}/environ").read_bytes()
        stopped.send(signal.SIGINT)
        stopped.rest()

    assert place.guests() == [place.vmid()]
    assert any(b"flows.up" in each for each in arguments)
    assert not any(secret in each for each in (*arguments, environment))


def arguments_of(process: Path) -> bytes:
    """The command line of a process; empty where it has just ended."""
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_the_exit_codes_of_a_process_are_those_of_the_command(
    place: Place, prefect_api: str
) -> None:
    home = Path(os.environ["PREFECT_HOME"])
    manifest = place.write()

    def code(name: str, *words: str) -> int:
        with Program("-m", f"flows.{name}", *words, home=home, api=prefect_api) as program:
            return program.rest()

    assert code("plan", str(manifest)) == 0
    assert code("up", str(place.folder / "none.yaml")) == 2
