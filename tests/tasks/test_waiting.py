"""Stage wait: a real installation in the lab, and every way in which one does not end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from deployments.lab.clock import DURATIONS
from tasks import wait as stage_module
from tasks.attach import attach
from tasks.build import build
from tasks.create import create
from tasks.errors import StageError
from tasks.marker import read_marker
from tasks.render import render
from tasks.session import Session
from tasks.stage import Event, Scope, in_stage
from tasks.start import start
from tasks.upload import upload
from tasks.verify import deviations
from tasks.wait import bounds_of, wait, wait_for_guest
from tasks.watch import BOUNDS, Bounds
from tests.environments import Document, Place, brought_up, install, opened

UBUNTU = "ubuntu-24.04.3-live-server-amd64.iso"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is read with each look: the lab's installations take no time."""
    monkeypatch.setattr(stage_module, "FIRST_STATUS", 0.0)
    monkeypatch.setattr(stage_module, "LAST_STATUS", 0.0)
    monkeypatch.setattr(stage_module, "FIRST_LOOK", 0.02)
    monkeypatch.setattr(stage_module, "LAST_LOOK", 0.02)


def begun(here: Session, label: str = "n1", **config: Any) -> None:
    """A guest whose installer has been started; ``config`` is changed before."""
    for stage in (render, build, upload, create, attach):
        stage.fn(here.run, label)
    guest = here.guest(label)
    if config:
        here.client.put(f"/nodes/{guest.node}/qemu/{guest.vmid}/config", **config)
    here.look(guest)
    start.fn(here.run, label)


def ubuntu(place: Place) -> Document:
    """Ubuntu from the untouched ISO, which asks."""
    document = place.document()
    document["spec"]["hypervisor"]["iso"]["image"] = UBUNTU
    document["spec"]["hypervisor"]["kickstart"]["distro"] = "ubuntu2404"
    return document


def test_an_installation_is_waited_for_to_its_marker(place: Place) -> None:
    with opened(place.write()) as here:
        begun(here)
        outcome = wait.fn(here.run, "n1")
        digest = here.rendered(here.guest("n1")).digest

    assert outcome.warnings == ()
    assert outcome.detail.endswith(f", agent up, marker {digest[:12]} found")


@contextmanager
def timed(place: Place, **durations: float) -> Iterator[None]:
    """A lab whose guests take time, in seconds times a thousand; as it was afterwards."""
    place.lab.set_time(0.001, **durations)
    try:
        yield
    finally:
        place.lab.set_time(0, **{name: DURATIONS[name] for name in ("boot", "load", "install")})


def test_the_phases_of_an_installation_are_told(place: Place) -> None:
    said: list[str] = []

    def hear(event: Event) -> None:
        """Each phase lasts, as good as for ever, until it has been told."""
        phase = event.detail.partition(",")[0]
        said.append(phase)
        if phase == "starting":
            place.lab.set_time(boot=0)
        elif phase == "installing":
            place.lab.set_time(install=0)

    scope = Scope(emit=hear)
    with timed(place, boot=1e9, install=60_000), opened(place.write()) as here, scope():
        begun(here)
        with in_stage("n1", "wait"):
            wait_for_guest(here, here.guest("n1"))

    assert said[:2] == ["starting", "installing"]
    assert said[2].endswith("waiting for the guest agent")


def switched_anew(here: Session) -> None:
    """Somebody stops the guest and starts it again."""
    guest = here.guest("n1")
    for verb in ("stop", "start"):
        upid = here.client.post(f"/nodes/{guest.node}/qemu/{guest.vmid}/status/{verb}")
        here.client.wait(upid)


def test_a_guest_that_is_stopped_and_started_meanwhile_is_told_and_waited_for(
    place: Place,
) -> None:
    said: list[str] = []
    with timed(place, boot=0, install=60_000), opened(place.write()) as here:

        def hear(event: Event) -> None:
            said.append(event.detail.partition(",")[0])
            if said[-1] == "installing":
                place.lab.set_time(boot=1e9)
                switched_anew(here)
            elif said[-1] == "restarted":
                place.lab.set_time(boot=0, install=0)

        with Scope(emit=hear)():
            begun(here)
            with in_stage("n1", "wait"):
                wait_for_guest(here, here.guest("n1"))

    assert "restarted" in said[said.index("installing") :]
    assert said[-1].endswith("waiting for the guest agent")


def test_a_guest_that_is_stopped_and_started_again_and_again_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_module, "SAY_AGAIN", 0.0)
    with (
        timed(place, boot=1e9),
        opened(place.write()) as here,
        Scope(emit=lambda _event: switched_anew(here))(),
    ):
        begun(here)
        with (
            in_stage("n1", "wait"),
            pytest.raises(StageError, match="n1 was stopped and started 2 times") as loop,
        ):
            wait_for_guest(here, here.guest("n1"))

    assert "its tasks tell who stops and starts it" in (loop.value.advice or "")
    assert not loop.value.transient


def test_an_installer_that_is_booted_again_and_again_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ISO comes first, so the installer is what boots; the guest's process stays the same."""
    monkeypatch.setattr(stage_module, "SAY_AGAIN", 0.0)
    monkeypatch.setitem(BOUNDS, "anaconda", Bounds(total=60, quiet=60))
    to_the_installer = {"boot": 0.0, "load": 1e9, "install": 1e9}
    to_the_first_packages = {"load": 0.0, "install": 60_000.0}
    to_the_firmware = {"boot": 1e9, "load": 0.0, "install": 0.0}
    said: list[str] = []
    seen = ["boot"]

    def hear(event: Event) -> None:
        """Where the guest stands still it goes on as soon as it has been looked at there."""
        said.append(event.detail)
        now = next(
            row["phase"] for row in place.lab.snapshot()["running"] if row["vmid"] == place.vmid()
        )
        if now == seen[-1] == "boot":
            place.lab.set_time(**to_the_installer)
        elif now == seen[-1]:
            early = event.detail.startswith("starting")
            place.lab.set_time(**(to_the_first_packages if early else to_the_firmware))
        seen.append(now)

    scope = Scope(emit=hear)
    with timed(place, boot=1e9), opened(place.write()) as here, scope():
        begun(here, boot="order=ide2;scsi0")
        with in_stage("n1", "wait"), pytest.raises(StageError) as loop:
            wait_for_guest(here, here.guest("n1"))

    assert "the installer of n1 was booted 3 times, by what was read" in loop.value.message
    advice = loop.value.advice or ""
    assert "the disk does not boot and the firmware goes on to the ISO" in advice
    assert "is the disk before the ISO in the boot order" in advice
    assert not loop.value.transient
    assert any(text.startswith("installing again, as it seems, 2 GiB written") for text in said)


def test_a_system_that_hangs_after_its_installation_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From outside it looks as an installer that asks, so the advice names both."""
    monkeypatch.setitem(BOUNDS, "anaconda", Bounds(total=60, quiet=0.3))

    def hear(event: Event) -> None:
        if event.detail.startswith("installing"):
            place.lab.set_time(boot=1e9, install=0)

    scope = Scope(emit=hear)
    with timed(place, boot=0, install=60_000), opened(place.write()) as here, scope():
        begun(here)
        with in_stage("n1", "wait"), pytest.raises(StageError) as stuck:
            wait_for_guest(here, here.guest("n1"))

    assert "n1 is installing, 2 GiB written" in stuck.value.message
    advice = stuck.value.advice or ""
    assert "the installer waits for somebody to answer a question" in advice
    assert "the installed system does not get as far as its SSH server" in advice


def test_an_installer_that_asks_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, "subiquity", Bounds(total=60, quiet=0.3))
    with opened(place.write(ubuntu(place))) as here:
        begun(here)
        with pytest.raises(StageError) as stuck:
            wait.fn(here.run, "n1")

    assert "nothing was written and nothing restarted for 0 min" in stuck.value.message
    assert "n1 is starting, nothing is written yet" in stuck.value.message
    advice = stuck.value.advice or ""
    assert f"look at the console of VM {place.vmid()} on pve1: the installer waits for" in advice


def test_a_guest_that_was_switched_off_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.watch.OFF_SECONDS", 0.1)
    with opened(place.write()) as here:
        create.fn(here.run, "n1")
        here.look(here.guest("n1"))
        with pytest.raises(StageError, match="was switched off before it answered") as off:
            wait.fn(here.run, "n1")

    assert "start it, and run `up` again" in (off.value.advice or "")


def test_a_system_whose_agent_answers_and_whose_ssh_does_not_is_told_so(place: Place) -> None:
    with opened(place.write()) as here:
        begun(here)
        wait.fn(here.run, "n1")
        elsewhere = here.guest("n1").model_copy(update={"ssh_addresses": ("10.99.9.9",)})
        here.run.options["boot_timeout"] = 0.1
        with pytest.raises(StageError, match="its agent answers, so the system runs") as late:
            wait_for_guest(here, elsewhere)

    assert "its firewall" in (late.value.advice or "")


def test_a_status_that_cannot_be_read_for_a_moment_ends_nothing(place: Place) -> None:
    with opened(place.write()) as here:
        begun(here)
        here.client._retries = 0
        place.lab.fault(method="GET", path=".*/status/current", status=596, reason="timed out")
        assert wait.fn(here.run, "n1").status == "done"


def test_a_system_of_other_answers_is_not_taken_for_the_declared_one(place: Place) -> None:
    document = place.document()
    with opened(place.write(document)) as here:
        begun(here)
        wait.fn(here.run, "n1")
    document["spec"]["hypervisor"]["kickstart"]["timezone"] = "Asia/Tokyo"
    with opened(place.write(document)) as here:
        here.look(here.guest("n1"))
        with pytest.raises(StageError, match="installed with other answers than the manifest"):
            wait.fn(here.run, "n1")


def test_a_system_without_a_marker_is_not_taken_for_a_finished_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BOUNDS, "anaconda", replace(BOUNDS["anaconda"], marker=0.1))
    monkeypatch.setattr("tasks.marker.PATH", "/etc/no-release")
    with opened(place.write()) as here:
        begun(here)
        with pytest.raises(StageError, match="did not come to its end"):
            wait.fn(here.run, "n1")


def test_a_marker_that_may_not_be_read_is_said_and_ends_nothing(place: Place) -> None:
    place.lab.fault(
        method="GET",
        path=".*/agent/file-read",
        times=0,
        status=403,
        reason="Permission check failed (/vms/1, VM.GuestAgent.FileRead)",
    )
    with opened(place.write()) as here:
        begun(here)
        outcome = wait.fn(here.run, "n1")

    assert "its marker could not be looked at: Permission check failed" in outcome.detail


def test_the_marker_names_environment_and_guest(place: Place) -> None:
    with opened(brought_up(place)) as here:
        marker = read_marker(here.client, here.guest("n1"))
        wrong = deviations(here, here.guest("n1"))

    assert (marker.state, marker.environment, marker.guest) == ("read", place.env, "n1")
    assert wrong == ()


def test_verify_notices_a_system_that_was_installed_as_another_guest(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(brought_up(place)) as here:
        guest = here.guest("n1")
        renamed = guest.model_copy(update={"label": "other"})
        monkeypatch.setattr(type(here), "owns", lambda *_: True)
        (other,) = deviations(here, renamed)
        monkeypatch.setattr("tasks.marker.PATH", "/etc/no-release")
        (missing,) = deviations(here, guest)

    assert (other.kind, missing.kind) == ("marker", "marker")
    assert other.detail == f"the system was installed as n1 of environment {place.env}"
    assert "was not installed by Proxflow" in missing.detail


def test_the_bound_is_the_installers_unless_the_run_has_one(place: Place) -> None:
    manifest = place.write()
    with opened(manifest) as here:
        by_installer = bounds_of(here, here.guest("n1"))
    with opened(manifest, boot_timeout=7.0) as here:
        asked = bounds_of(here, here.guest("n1"))
        empty = bounds_of(here, here.guest("n1").model_copy(update={"source": None}))

    assert by_installer == BOUNDS["anaconda"]
    assert (asked.total, asked.quiet) == (7.0, BOUNDS["anaconda"].quiet)
    assert empty.total == 7.0


def test_a_fast_installation_costs_no_call_for_its_status(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_module, "FIRST_STATUS", 5.0)
    with opened(place.write()) as here:
        place.lab.forget_requests()
        install(here)
    calls = [row["path"] for row in place.lab.requests()]
    assert len([path for path in calls if path.endswith("/status/current")]) == 1
