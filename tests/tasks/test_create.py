"""Stage create: the machine and its mark, in one call, once."""

from __future__ import annotations

import pytest

from blocks.manifest.mark import Mark, read_mark
from blocks.proxmox.client import Client
from blocks.proxmox.errors import AlreadyExists, ProxmoxError, TaskFailed, TaskTimeout, Unreachable
from tasks.create import create
from tasks.plan import diff
from tests.defaults import set_default
from tests.environments import OTHER_RUN, RUN, Place, opened


def test_a_guest_is_created_stopped_with_its_mark_in_one_call(place: Place) -> None:
    with opened(place.write()) as here:
        place.lab.forget_requests()
        outcome = create.fn(here.run, "n1")

    assert (outcome.status, outcome.detail) == ("done", f"VM {place.vmid()} on pve1")
    assert place.changes() == ["POST /nodes/pve1/qemu"]
    assert not place.running()
    assert read_mark(place.config()["description"]) == Mark(
        env=place.env, guest="n1", vmid=place.vmid(1), run=RUN
    )


def test_a_new_guest_boots_from_its_disk_first_and_has_empty_drives(place: Place) -> None:
    with opened(place.write()) as here:
        create.fn(here.run, "n1")

    config = place.config()
    assert config["boot"] == "order=scsi0;ide2"
    assert (config["ide2"], config["ide3"]) == ("none,media=cdrom", "none,media=cdrom")


def test_a_new_guest_is_as_declared(place: Place) -> None:
    document = place.document(second_nic=True, ovmf=True, storages=("local-lvm", "shared"))
    document["metadata"]["tags"] = {"Tier": "DB", "owner": "me"}
    document["spec"]["hypervisor"]["nodes"]["n1"] |= {"description": "ü <b>\n100 %", "onboot": True}
    with opened(place.write(document)) as here:
        create.fn(here.run, "n1")
        wanted = here.guest("n1").model_copy(update={"boot": ("scsi0", "ide2")})

        assert diff(wanted, place.config()) == ()


def test_a_guest_that_is_not_installed_is_ready_at_once(place: Place) -> None:
    with opened(place.write(iso=False)) as here:
        create.fn(here.run, "n1")

    mark = read_mark(place.config()["description"])
    assert mark is not None
    assert mark.ready


def test_a_second_create_changes_nothing_whichever_run_was_the_first(place: Place) -> None:
    manifest = place.write()
    with opened(manifest) as here:
        create.fn(here.run, "n1")
    with opened(manifest, OTHER_RUN) as here:
        place.lab.forget_requests()
        outcome = create.fn(here.run, "n1")

    assert outcome.status == "unchanged"
    assert place.changes() == []


def test_somebody_elses_guest_is_refused_and_left_as_it_is(place: Place) -> None:
    place.strange(name="payroll")
    before = place.config()
    with opened(place.write()) as here, pytest.raises(AlreadyExists) as refused:
        create.fn(here.run, "n1")

    text = f"VM {place.vmid()} (payroll) on pve1 was not made by Proxflow"
    assert refused.value.message == text
    assert refused.value.advice == "give n1 another vm_id, or remove that guest yourself"
    assert place.config() == before


def test_the_guest_of_another_environment_is_refused_with_its_owner(place: Place) -> None:
    place.of_another_environment()
    with opened(place.write()) as here, pytest.raises(AlreadyExists, match="of environment elsewh"):
        create.fn(here.run, "n1")


def test_another_guest_of_the_same_environment_is_refused_too(place: Place) -> None:
    document = place.document()
    with opened(place.write(document)) as here:
        create.fn(here.run, "n1")
    nodes = document["spec"]["hypervisor"]["nodes"]
    nodes["renamed"] = nodes.pop("n1")
    with opened(place.write(document), OTHER_RUN) as here, pytest.raises(AlreadyExists) as refused:
        create.fn(here.run, "renamed")

    assert f"belongs to n1 of environment {place.env}" in refused.value.message


def test_a_create_whose_answer_was_lost_is_found_again_by_its_mark(place: Place) -> None:
    with opened(place.write()) as here:
        place.lab.fault(method="POST", path="/nodes/pve1/qemu", reset="after")

        with pytest.raises(Unreachable) as lost:
            create.fn(here.run, "n1")
        place.lab.settle()
        outcome = create.fn(here.run, "n1")

    assert lost.value.transient
    assert outcome.status == "unchanged"
    assert place.guests() == [place.vmid()]


def test_a_failed_task_is_told_with_its_log_and_leaves_no_guest(place: Place) -> None:
    place.lab.fault(
        kind="task", type="qmcreate", exitstatus="no space left", log=["allocating scsi0"]
    )
    with opened(place.write()) as here, pytest.raises(TaskFailed) as failed:
        create.fn(here.run, "n1")

    assert "no space left" in failed.value.message
    assert "allocating scsi0" in failed.value.message
    assert not place.exists()


def test_a_task_that_ends_in_warnings_has_created_the_guest(place: Place) -> None:
    place.lab.fault(kind="task", type="qmcreate", warnings=1, log=["WARN: no efidisk configured!"])
    with opened(place.write()) as here:
        outcome = create.fn(here.run, "n1")

    assert outcome.status == "done"
    assert any("no efidisk configured" in text for text in outcome.warnings)
    assert place.exists()


def test_a_lock_that_passes_is_waited_for(place: Place) -> None:
    path = f"/var/lock/qemu-server/lock-{place.vmid()}.conf"
    reason = f"can't lock file '{path}' - got timeout"
    place.lab.fault(method="POST", path="/nodes/pve1/qemu", status=500, reason=reason)
    with opened(place.write()) as here:
        assert create.fn(here.run, "n1").status == "done"


def test_a_task_that_never_ends_is_given_up_with_its_name(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_default(monkeypatch, Client.wait, "timeout", 0.3)
    place.lab.fault(kind="task", type="qmcreate", endless=True)
    with opened(place.write()) as here:
        with pytest.raises(TaskTimeout) as late:
            create.fn(here.run, "n1")
        here.client.delete(f"/nodes/pve1/tasks/{late.value.upid}")

    assert f":qmcreate:{place.vmid()}:" in late.value.message
    assert "task list" in (late.value.advice or "")


def test_a_node_that_has_gone_is_said_to_be_out_of_reach(place: Place) -> None:
    with opened(place.write()) as here:
        place.lab.node_offline("pve1")
        with pytest.raises(ProxmoxError) as gone:
            create.fn(here.run, "n1")

    assert gone.value.transient
    assert "pve1" in gone.value.message or "No route" in gone.value.message
