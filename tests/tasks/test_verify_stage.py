"""Stage verify: every way in which a guest is not as declared, at once."""

from __future__ import annotations

import pytest

from tasks import verify as verifying
from tasks.verify import Deviates, deviations, verify
from tests.environments import Place, brought_up, opened


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that does not answer is not waited for."""
    monkeypatch.setattr(verifying, "GRACE", 0.1)


def kinds(place: Place) -> list[str]:
    """Kinds of the deviations of n1, in order; reading must not change anything."""
    with opened(place.folder / "env.yaml") as here:
        place.lab.forget_requests()
        found = deviations(here, here.guest("n1"))
    assert place.changes() == []
    return [deviation.kind for deviation in found]


def test_a_guest_that_is_as_declared_passes_with_what_was_checked(place: Place) -> None:
    with opened(brought_up(place, second_nic=True, ovmf=True)) as here:
        outcome = verify.fn(here.run, "n1")

    assert (outcome.status, outcome.detail) == ("done", "config, runs, SSH, agent, marker")


def test_a_system_whose_agent_hands_out_no_files_passes_and_the_result_says_so(
    place: Place,
) -> None:
    manifest = brought_up(place)
    place.lab.fault(
        method="GET",
        path=".*/agent/file-read",
        times=0,
        status=500,
        reason="Agent error: Command guest-file-read has been disabled",
    )
    with opened(manifest) as here:
        outcome = verify.fn(here.run, "n1")

    assert outcome.status == "done"
    assert outcome.detail.startswith("config, runs, SSH, agent; marker not readable: ")
    assert "guest-file-read has been disabled" in outcome.detail


def test_a_missing_guest(place: Place) -> None:
    place.write()
    assert kinds(place) == ["missing"]


def test_a_stranger_in_its_place(place: Place) -> None:
    place.write()
    place.strange()
    assert kinds(place) == ["foreign"]


def test_a_changed_configuration(place: Place) -> None:
    brought_up(place)
    place.edit(memory=2048, tags="mine")
    assert kinds(place) == ["config"]


def test_media_that_are_left_in_the_drives(place: Place) -> None:
    brought_up(place)
    place.edit(ide3="local:iso/Rocky-9.6-x86_64-dvd.iso,media=cdrom")
    assert "media" in kinds(place)


def test_a_guest_that_is_off(place: Place) -> None:
    brought_up(place)
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid()}/status/stop")
    assert kinds(place) == ["power"]


def test_a_system_that_does_not_answer(place: Place) -> None:
    brought_up(place)
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid()}/status/suspend")
    assert kinds(place) == ["ssh", "agent"]


def test_everything_is_told_at_once_with_the_next_step(place: Place) -> None:
    brought_up(place)
    place.edit(memory=2048, ide3="local:iso/Rocky-9.6-x86_64-dvd.iso,media=cdrom")
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid()}/status/stop")
    with opened(place.folder / "env.yaml") as here, pytest.raises(Deviates) as odd:
        verify.fn(here.run, "n1")

    assert {d.kind for d in odd.value.deviations} == {"config", "media", "power"}
    assert "memory" in str(odd.value)
    assert "ide3 holds local:iso/Rocky-9.6-x86_64-dvd.iso" in str(odd.value)
    assert "`plan` shows what `up` would change" in (odd.value.advice or "")


def test_a_guest_without_address_and_agent_is_checked_as_far_as_it_can_be(place: Place) -> None:
    document = place.document(dhcp=True, iso=False)
    document["spec"]["hypervisor"]["nodes"]["n1"]["agent"] = False
    manifest = place.write(document)
    from tasks.create import create
    from tasks.start import start

    with opened(manifest) as here:
        create.fn(here.run, "n1")
        start.fn(here.run, "n1")
        assert verify.fn(here.run, "n1").detail == "config, runs"
