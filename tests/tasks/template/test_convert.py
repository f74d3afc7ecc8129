"""Stage template: a configured machine becomes a template, once."""

from __future__ import annotations

from typing import Any

import pytest

from blocks.manifest.guest import Disk, Firmware
from blocks.manifest.mark import read_mark
from blocks.proxmox.errors import AlreadyExists, Locked, TaskFailed, Unreachable
from blocks.units import GIB
from tasks.errors import StageError
from tasks.stage import Outcome
from tasks.template.configure import configure
from tasks.template.convert import convert
from tasks.template.create import create
from tests.environments import OTHER_RUN, Place
from tests.meanwhile import lasting_until_asked_for
from tests.tasks.template.machines import (
    built,
    config,
    edit,
    from_image,
    opened,
    stranger,
)
from tests.templates import Golden

UEFI = Firmware(bios="ovmf", machine="q35", efi_storage="local-lvm", tpm_storage="local-lvm")


def _prepared(golden: Golden, **changes: Any) -> None:
    with opened(golden, from_image(golden, **changes)) as here:
        built(here, through="configure")


def _converted(golden: Golden) -> Outcome:
    with opened(golden, from_image(golden)) as here:
        golden.place.lab.forget_requests()
        return convert.fn(here.run, "template")


def _post(place: Place, path: str, **values: Any) -> None:
    with place.client() as client:
        client.run("POST", path, **values)


def test_the_machine_becomes_a_template_with_base_volumes_and_a_ready_mark(place: Place) -> None:
    golden = Golden(place)
    data = Disk(slot="scsi1", storage="local", size=GIB)
    changes: dict[str, Any] = {"firmware": UEFI, "disks": (*golden.template().disks, data)}
    _prepared(golden, **changes, description="keep me")
    with opened(golden, from_image(golden, **changes), OTHER_RUN) as here:
        outcome = convert.fn(here.run, "template")

    live = config(golden)
    mark = read_mark(live["description"])
    assert (outcome.status, outcome.warnings) == ("done", ())
    assert live["template"] == 1
    for slot in ("scsi0", "scsi1", "efidisk0", "tpmstate0"):
        assert f"base-{golden.vmid}-disk-" in live[slot]
    assert mark is not None
    assert mark.ready
    assert live["description"].endswith("\nkeep me")


def test_the_mark_still_names_the_run_that_made_the_machine(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    before = read_mark(config(golden)["description"])

    _converted(golden)

    after = read_mark(config(golden)["description"])
    assert before is not None
    assert after == before.model_copy(update={"ready": True})


def test_it_takes_two_writes(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)

    _converted(golden)

    path = f"/nodes/pve1/qemu/{golden.vmid}"
    assert place.changes() == [f"POST {path}/template", f"PUT {path}/config"]


def test_a_second_run_reads_once_and_changes_nothing(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    _converted(golden)

    outcome = _converted(golden)

    assert outcome.status == "unchanged"
    assert (len(place.lab.requests()), place.changes()) == (1, [])


def test_a_template_whose_mark_was_not_set_is_finished(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    _post(place, f"/nodes/pve1/qemu/{golden.vmid}/template")

    outcome = _converted(golden)

    mark = read_mark(config(golden)["description"])
    assert outcome.status == "done"
    assert mark is not None
    assert mark.ready
    assert place.changes() == [f"PUT /nodes/pve1/qemu/{golden.vmid}/config"]


def test_a_running_machine_is_shut_down_first(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    _post(place, f"/nodes/pve1/qemu/{golden.vmid}/status/start")

    outcome = _converted(golden)

    assert outcome.status == "done"
    assert config(golden)["template"] == 1
    assert not place.running(0)


def test_a_machine_with_snapshots_is_refused_and_they_are_named(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    for name in ("before", "after"):
        _post(place, f"/nodes/pve1/qemu/{golden.vmid}/snapshot", snapname=name)

    with pytest.raises(StageError, match="has snapshots: after, before"):
        _converted(golden)

    assert config(golden).get("template") is None


def test_a_running_machine_with_a_snapshot_is_not_switched_off(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    _post(place, f"/nodes/pve1/qemu/{golden.vmid}/snapshot", snapname="one")
    _post(place, f"/nodes/pve1/qemu/{golden.vmid}/status/start")

    with pytest.raises(StageError, match="has a snapshot: one"):
        _converted(golden)

    assert place.running(0)


def test_a_machine_without_its_disk_is_no_template_yet(place: Place) -> None:
    golden = Golden(place)
    with opened(golden, from_image(golden)) as here:
        create.fn(here.run, "template")
        with pytest.raises(StageError) as refused:
            convert.fn(here.run, "template")

    assert "has no disk scsi0 yet" in refused.value.message
    assert "configure" in str(refused.value.advice)


def test_a_conversion_that_fails_is_told_in_the_servers_words(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    place.lab.fault(kind="task", type="qmtemplate", exitstatus="chattr failed", times=1)

    with pytest.raises(TaskFailed, match="chattr failed"):
        _converted(golden)

    assert _converted(golden).status == "done"


def test_a_conversion_that_still_runs_is_waited_for_and_finished(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    path = f"/nodes/pve1/qemu/{golden.vmid}/template"
    place.lab.set_time(scale=1, qmtemplate=600)
    place.lab.fault(method="POST", path=path, reset="after", times=1)
    with pytest.raises(Unreachable):
        _converted(golden)
    assert config(golden).get("template") is None

    with lasting_until_asked_for(place.lab):
        outcome = _converted(golden)
    place.lab.set_time(qmtemplate=1)

    assert outcome.status == "done"
    assert place.changes() == [f"PUT /nodes/pve1/qemu/{golden.vmid}/config"]
    assert config(golden)["template"] == 1


def test_a_finished_template_that_was_turned_back_is_left_to_whoever_did_it(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    _converted(golden)
    edit(golden, template=0)
    before = config(golden)
    with opened(golden, from_image(golden), OTHER_RUN) as here:
        for stage in (configure, convert):
            with pytest.raises(StageError, match="somebody has turned it back"):
                stage.fn(here.run, "template")

    assert config(golden) == before


def test_a_template_with_a_disk_that_is_no_base_volume_is_not_ready(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    edit(golden, template=1)

    with pytest.raises(StageError, match="not all of its disks are base volumes: scsi0"):
        _converted(golden)

    mark = read_mark(config(golden)["description"])
    assert mark is not None
    assert not mark.ready


def test_a_locked_machine_is_left_and_its_lock_named(place: Place) -> None:
    golden = Golden(place)
    _prepared(golden)
    place.lab.fault(
        method="POST",
        path=f"/nodes/pve1/qemu/{golden.vmid}/template",
        status=500,
        reason="VM is locked (backup)",
        times=1,
    )

    with pytest.raises(Locked) as locked:
        _converted(golden)

    assert locked.value.lock == "backup"


def test_somebody_elses_machine_is_refused(place: Place) -> None:
    golden = Golden(place)
    stranger(golden, name="payroll", scsi0="local-lvm:1")
    before = place.lab.snapshot()

    with pytest.raises(AlreadyExists, match="was not made by Proxflow"):
        _converted(golden)

    assert place.lab.snapshot() == before
