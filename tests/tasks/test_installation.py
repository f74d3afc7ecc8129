"""Stages attach, start, wait and finalize: from an empty machine to an installed one."""

from __future__ import annotations

from typing import Any

import pytest

from blocks.manifest.mark import Mark, read_mark
from blocks.proxmox.errors import AlreadyExists, Conflict, NotFound, TaskFailed, Unreachable
from tasks import attach as attaching
from tasks import finalize as finalizing
from tasks import wait as waiting
from tasks.attach import attach
from tasks.build import build
from tasks.create import create
from tasks.errors import StageError
from tasks.finalize import check_drives, finalize
from tasks.media import install_iso
from tasks.render import render
from tasks.seed import current_seed, seeds_of
from tasks.session import Session
from tasks.stage import Scope, Stage, StageCancelled
from tasks.start import start
from tasks.upload import delete_seeds, upload
from tasks.wait import wait
from tests.environments import INSTALL, OTHER_RUN, RUN, Place, brought_up, install, opened


def made(here: Session, label: str = "n1") -> None:
    """A created guest with its seed on the storage."""
    for stage in (render, build, upload, create):
        stage.fn(here.run, label)


def test_attach_puts_the_media_into_the_drives_in_one_call_and_once(place: Place) -> None:
    with opened(place.write()) as here:
        made(here)
        place.lab.forget_requests()
        first = attach.fn(here.run, "n1")
        calls = place.changes()
        again = attach.fn(here.run, "n1")
        seed = current_seed(here, here.guest("n1"))

    assert (first.status, again.status) == ("done", "unchanged")
    assert calls == place.changes() == [f"PUT /nodes/pve1/qemu/{place.vmid()}/config"]
    config = place.config()
    assert seed is not None
    assert config["ide2"].startswith("local:iso/Rocky-9.6-x86_64-dvd.iso,")
    assert config["ide3"].startswith(f"{seed.volid},")
    assert config["boot"].startswith("order=scsi0;ide2")


def test_attach_sets_a_boot_order_right_that_would_not_install(place: Place) -> None:
    with opened(place.write()) as here:
        made(here)
        place.edit(boot="order=ide3")
        attach.fn(here.run, "n1")
        assert place.config()["boot"] == "order=scsi0;ide2"
        assert attach.fn(here.run, "n1").status == "unchanged"


def test_attach_says_when_the_seed_has_vanished(place: Place) -> None:
    with opened(place.write()) as here:
        made(here)
        delete_seeds(here, here.guest("n1"))
        with pytest.raises(StageError, match="the seed ISO of n1 is not on storage local") as gone:
            attach.fn(here.run, "n1")

    assert "again" in (gone.value.advice or "")


def test_attach_never_takes_a_seed_of_other_content(place: Place) -> None:
    with opened(place.write()) as here:
        made(here)
        assert seeds_of(here, here.guest("n1"))
    document = place.document()
    document["spec"]["hypervisor"]["kickstart"]["timezone"] = "Asia/Tokyo"
    with (
        opened(place.write(document), OTHER_RUN) as here,
        pytest.raises(StageError, match="the seed ISO of n1 is not on storage local"),
    ):
        attach.fn(here.run, "n1")


def test_attach_leaves_the_drives_of_an_installed_guest_empty(place: Place) -> None:
    with opened(brought_up(place), OTHER_RUN) as here:
        assert attach.fn(here.run, "n1").status == "unchanged"
    assert place.config()["ide3"] == "none,media=cdrom"


@pytest.mark.parametrize("stage", [attach, finalize])
def test_a_guest_that_is_gone_or_somebody_elses_is_not_touched(
    place: Place, stage: Stage[[]]
) -> None:
    with opened(place.write()) as here:
        with pytest.raises(NotFound, match=f"VM {place.vmid()} is not on node pve1") as gone:
            stage.fn(here.run, "n1")
        place.strange()
        before = place.config()
        with pytest.raises(AlreadyExists, match="was not made by Proxflow"):
            stage.fn(here.run, "n1")

    assert "again" in (gone.value.advice or "")
    assert place.config() == before


def test_start_switches_on_and_only_once(place: Place) -> None:
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        first = start.fn(here.run, "n1")
        place.lab.forget_requests()
        again = start.fn(here.run, "n1")

    assert (first.status, again.status) == ("done", "unchanged")
    assert place.running()
    assert place.changes() == []


def test_a_start_that_ends_in_warnings_has_started_the_guest(place: Place) -> None:
    place.lab.fault(kind="task", type="qmstart", warnings=1, log=["WARN: EFI keys are old."])
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        outcome = start.fn(here.run, "n1")

    assert outcome.status == "done"
    assert "EFI keys are old." in outcome.warnings
    assert place.running()


def test_a_start_that_fails_is_told_with_the_log_of_its_task(place: Place) -> None:
    place.lab.fault(
        kind="task", type="qmstart", exitstatus="start failed: exit 1", log=["bridge is gone"]
    )
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")
        with pytest.raises(TaskFailed, match="start failed: exit 1") as failed:
            start.fn(here.run, "n1")

    assert "bridge is gone" in failed.value.message


def test_start_never_switches_on_somebody_elses_guest(place: Place) -> None:
    place.strange()
    with opened(place.write()) as here, pytest.raises(AlreadyExists):
        start.fn(here.run, "n1")
    assert not place.running()


def test_start_looks_whose_guest_it_is_even_where_it_has_just_been_read(place: Place) -> None:
    with opened(place.write()) as here:
        made(here)
        here.look(here.guest("n1"))
        place.edit(description="restored by hand")
        with pytest.raises(AlreadyExists):
            start.fn(here.run, "n1")
    assert not place.running()


def test_attach_refuses_to_write_over_what_somebody_else_wrote_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place.write()) as here:
        made(here)

        def meanwhile(*arguments: Any) -> str:
            place.edit(ide3="none,media=cdrom")
            return install_iso(*arguments)

        monkeypatch.setattr(attaching, "install_iso", meanwhile)
        with pytest.raises(Conflict) as conflict:
            attach.fn(here.run, "n1")

    assert conflict.value.transient
    assert place.config()["ide2"].startswith("none,")


@pytest.mark.parametrize("drives_are_empty", [False, True])
def test_finalize_refuses_to_write_over_what_somebody_else_wrote_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch, drives_are_empty: bool
) -> None:
    with opened(place.write()) as here:
        for stage in INSTALL[:-1]:
            stage.fn(here.run, "n1")
        if drives_are_empty:
            place.edit(ide2="none,media=cdrom", ide3="none,media=cdrom")

        def meanwhile(*arguments: Any) -> dict[str, Any]:
            wanted = found(*arguments)
            place.edit(description="noted by hand")
            return wanted

        found = finalizing.leftovers
        monkeypatch.setattr(finalizing, "leftovers", meanwhile)
        with pytest.raises(Conflict):
            finalize.fn(here.run, "n1")

    assert place.config()["description"] == "noted by hand"


def test_wait_ends_when_the_installed_system_answers_with_its_banner(place: Place) -> None:
    with opened(place.write()) as here:
        made(here)
        attach.fn(here.run, "n1")
        start.fn(here.run, "n1")
        here.look(here.guest("n1"))
        outcome = wait.fn(here.run, "n1")

    assert outcome.status == "done"
    assert outcome.detail.startswith(f"{place.address()} says SSH-2.0-")


def test_an_address_that_is_not_declared_is_asked_of_the_agent(place: Place) -> None:
    with opened(place.write(dhcp=True)) as here:
        outcomes = install(here)

    assert outcomes[-2].status == "done"
    assert "says SSH-2.0-" in outcomes[-2].detail


def test_wait_gives_up_after_its_bound_with_where_to_look(place: Place) -> None:
    with opened(place.write(), boot_timeout=0.2) as here:
        create.fn(here.run, "n1")
        start.fn(here.run, "n1")
        here.look(here.guest("n1"))
        with pytest.raises(StageError) as late:
            wait.fn(here.run, "n1")

    assert late.value.message == (
        f"no SSH server answered at {place.address()} within 0 s; "
        "it stopped in this phase: starting, nothing is written yet"
    )
    assert f"console of VM {place.vmid()} on pve1" in (late.value.advice or "")


def test_wait_says_when_the_guest_is_off(place: Place) -> None:
    with opened(place.write(), boot_timeout=0.1) as here:
        create.fn(here.run, "n1")
        here.look(here.guest("n1"))
        with pytest.raises(StageError, match="the guest does not run any more"):
            wait.fn(here.run, "n1")


def test_wait_gives_up_at_once_when_the_run_stops(place: Place) -> None:
    scope = Scope()
    scope.stop.set()
    with opened(place.write()) as here, scope():
        create.fn(here.run, "n1")
        here.look(here.guest("n1"))
        with pytest.raises(StageCancelled):
            wait.fn(here.run, "n1")


def test_an_agent_that_does_not_answer_is_a_warning(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "AGENT_GRACE", 0.1)
    place.lab.fault(method="POST", path=".*/agent/ping", times=0, status=500, reason="no agent")
    with opened(place.write()) as here:
        outcome = install(here)[-2]

    assert outcome.status == "done"
    assert "the guest agent did not answer" in outcome.warnings[0]


def test_wait_skips_a_guest_without_address_and_agent(place: Place) -> None:
    document = place.document(dhcp=True)
    document["spec"]["hypervisor"]["nodes"]["n1"]["agent"] = False
    with opened(place.write(document)) as here:
        create.fn(here.run, "n1")
        here.look(here.guest("n1"))
        assert wait.fn(here.run, "n1").status == "skipped"


def test_finalize_empties_the_drives_sets_the_boot_order_and_marks_the_guest_once(
    place: Place,
) -> None:
    with opened(place.write()) as here:
        place.lab.forget_requests()
        install(here)
        calls = place.changes()
        again = finalize.fn(here.run, "n1")

    config = place.config()
    assert (config["ide2"], config["ide3"]) == ("none,media=cdrom", "none,media=cdrom")
    assert config["boot"] == "order=scsi0"
    mark = Mark(env=place.env, guest="n1", vmid=place.vmid(1), run=RUN, ready=True)
    assert read_mark(config["description"]) == mark
    assert again.status == "unchanged"
    assert place.changes() == calls
    assert calls[-2:] == [f"PUT /nodes/pve1/qemu/{place.vmid()}/config"] * 2


def test_a_finalize_that_was_interrupted_between_its_calls_is_ended_by_the_next_one(
    place: Place,
) -> None:
    with opened(place.write()) as here:
        for stage in INSTALL[:-1]:
            here.look(here.guest("n1"))
            stage.fn(here.run, "n1")
        place.lab.fault(method="PUT", path=".*/config", skip=1, reset="before")
        with pytest.raises(Unreachable):
            finalize.fn(here.run, "n1")
        between = place.config()
        finalize.fn(here.run, "n1")

    assert between["ide2"] == "none,media=cdrom"
    assert "state=installing" in between["description"]
    assert place.config()["boot"] == "order=scsi0"
    assert "state=ready" in place.config()["description"]


def test_finalize_keeps_the_words_of_the_operator(place: Place) -> None:
    document = place.document()
    document["spec"]["hypervisor"]["nodes"]["n1"]["description"] = "call the owner first\nthen us"
    with opened(place.write(document)) as here:
        install(here)

    assert place.config()["description"].splitlines()[1:] == ["call the owner first", "then us"]


def test_finalize_leaves_the_media_where_it_is_asked_to(place: Place) -> None:
    with opened(place.write(), skip_finalize=True) as here:
        outcome = install(here)[-1]

    assert outcome.status == "skipped"
    assert place.config()["ide2"].startswith("local:iso/")


def test_a_drive_that_the_guest_holds_on_to_is_reported(place: Place) -> None:
    manifest = place.write()
    with opened(manifest, skip_finalize=True) as here:
        install(here)
        guest = here.guest("n1")
        with pytest.raises(StageError, match="media are still in the drives: ide2") as full:
            check_drives(here, guest)
    assert "stop and start it" in (full.value.advice or "")


def test_the_stages_take_up_what_an_interrupted_run_left(place: Place) -> None:
    manifest = place.write()
    with opened(manifest) as here:
        made(here)
        attach.fn(here.run, "n1")
    with opened(manifest, OTHER_RUN) as here:
        outcomes = install(here)

    assert [o.status for o in outcomes[2:5]] == ["unchanged"] * 3
    assert outcomes[-1].status == "done"
    mark = read_mark(place.config()["description"])
    assert mark is not None
    assert (mark.run, mark.ready) == (RUN, True)
