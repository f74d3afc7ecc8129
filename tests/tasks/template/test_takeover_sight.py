"""Whether another run is at work is judged by what the caller can see, and by one clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from blocks.manifest.mark import Mark, marked, read_mark
from blocks.manifest.recipe import TEMPLATE
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.proxmox.inventory import read_inventory
from tasks import clock
from tasks.errors import StageError
from tasks.found import FoundGuest, all_guests, of_environment
from tasks.holding import hold, let_go
from tasks.session import Session
from tasks.template import takeover
from tasks.template.clone_wait import settled
from tasks.template.takeover import take_over
from tests.blindlab import SECRET, lab
from tests.environments import OTHER_RUN, RUN, opened
from tests.tasks.template.clones import make_template
from tests.tasks.template.runs import build, surveyed
from tests.templates import Golden

__all__ = ["lab"]


class Killed(BaseException):
    """The end of the process, as far as the code under test can tell."""


@pytest.fixture
def unfinished(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """Another machine's run, which comes upon what one that was just killed has left."""
    document: dict[str, Any] = golden.document(golden.image_file(tmp_path / "image"))

    def between(_: Session, __: str, stage: str) -> None:
        if stage == "configure":
            raise Killed

    with pytest.raises(Killed):
        build(golden, document, RUN, between=between)
    monkeypatch.setenv("PROXFLOW_STATE_DIR", str(tmp_path / "another-machine"))
    with opened(golden.write(document), OTHER_RUN) as here:
        surveyed(here)
        yield here


@contextmanager
def by_maker(here: Session) -> Iterator[Session]:
    """The run with a token that may make guests and lacks Sys.Audit."""
    others = here.client
    token = {"token_id": "maker@pve!t", "token_secret": SecretStr(SECRET)}
    with Client(lab_connection().model_copy(update=token)) as client:
        here.client = client
        yield here
    here.client = others


def found(here: Session) -> FoundGuest:
    (only,) = of_environment(
        all_guests(here.client, read_inventory(here.client)), here.environment.name
    )
    return only


def config(here: Session) -> str:
    guest = here.guest(TEMPLATE)
    return f"/nodes/{guest.node}/qemu/{guest.vmid}/config"


def description(here: Session) -> str:
    return str(here.client.get(config(here))["description"])


@pytest.mark.parametrize("busy", [False, True], ids=["no task of its own", "tasks of its own"])
def test_a_caller_who_cannot_see_the_tasks_of_others_takes_nothing_over(
    unfinished: Session, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    monkeypatch.setattr(takeover, "QUIET", 0.0)
    guest = unfinished.guest(TEMPLATE)
    with by_maker(unfinished) as here:
        if busy:
            here.client.run("POST", config(here), name=guest.name)

        with pytest.raises(StageError, match=r"takes Sys\.Audit on /nodes/pve1") as refused:
            take_over(here, guest, here.require(guest))

    assert f"--run {RUN}`" in str(refused.value.advice)
    assert f"run={RUN} " in description(unfinished)


def test_a_clone_that_another_makes_is_not_called_broken_off_where_that_cannot_be_seen(
    golden: Golden,
) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        template = make_template(here)
        golden.place.lab.set_time(scale=60)
        upid = here.client.post(
            f"/nodes/{template.node}/qemu/{template.vmid}/clone", newid=guest.vmid, full=1
        )
        with (
            by_maker(here) as maker,
            pytest.raises(StageError, match=r"takes Sys\.Audit on /nodes/pve1") as refused,
        ):
            settled(maker, guest)
        golden.place.lab.set_time(scale=0)
        here.client.wait(upid)

    assert "unlock" not in str(refused.value.advice)


def test_a_clock_that_goes_before_the_clusters_makes_no_run_look_dead(
    unfinished: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = SimpleNamespace(time=lambda: time.time() + 3600)
    monkeypatch.setattr(takeover, "time", before)
    monkeypatch.setattr(clock, "time", before)
    guest = unfinished.guest(TEMPLATE)

    with pytest.raises(StageError, match="last seen at work at"):
        take_over(unfinished, guest, unfinished.require(guest))


def test_a_rollback_that_gives_up_keeps_what_was_noted_meanwhile(unfinished: Session) -> None:
    held = hold(unfinished.client, found(unfinished), [], [])
    assert held is not None
    unfinished.client.put(config(unfinished), description=f"hands off\n{description(unfinished)}")

    let_go(unfinished.client, held)

    text = description(unfinished)
    mark = read_mark(text)
    assert "hands off" in text
    assert mark is not None
    assert not mark.undone


def test_a_rollback_that_gives_up_lets_go_of_nothing_that_is_anothers_by_now(
    unfinished: Session,
) -> None:
    held = hold(unfinished.client, found(unfinished), [], [])
    assert held is not None
    guest = unfinished.guest(TEMPLATE)
    other = Mark(env=unfinished.environment.name, guest=TEMPLATE, vmid=guest.vmid, run=OTHER_RUN)
    unfinished.client.put(config(unfinished), description=marked(other, "of another"))
    before = description(unfinished)

    let_go(unfinished.client, held)

    assert description(unfinished) == before
