"""Stage create of a template: the machine and its mark, in one call, once, without disks."""

from __future__ import annotations

from typing import Any

import pytest

from blocks.manifest.guest import Disk, Firmware, PciDevice
from blocks.manifest.mark import Mark, marked, read_mark
from blocks.proxmox.errors import AlreadyExists, Unreachable
from blocks.units import GIB
from tasks.stage import Outcome
from tasks.template.create import create
from tests.environments import NODES, RUN, Place
from tests.tasks.template.machines import config, stranger
from tests.templates import Golden


def _create(golden: Golden, run_id: str = RUN, **changes: Any) -> Outcome:
    with golden.opened(golden.recipe(template=golden.template(**changes)), run_id) as here:
        return create.fn(here.run, "template")


def test_the_machine_is_made_with_its_mark_in_one_call(place: Place) -> None:
    golden = Golden(place)
    place.lab.forget_requests()

    outcome = _create(golden, tags=("golden",), description="by hand\nat night")

    assert outcome.status == "done"
    assert place.changes() == [f"POST /nodes/{NODES[0]}/qemu"]
    live = config(golden)
    mark = Mark(env=golden.name, guest="template", vmid=golden.vmid, run=RUN)
    assert live["description"] == marked(mark, "by hand\nat night")
    assert (live["name"], live["tags"], live["memory"]) == (golden.name, "golden", "1024")
    assert (live["serial0"], live["agent"]) == ("socket", "enabled=1")
    found = read_mark(live["description"])
    assert found is not None
    assert not found.ready


def test_disks_firmware_volumes_and_devices_are_left_to_the_next_stage(place: Place) -> None:
    golden = Golden(place)
    firmware = Firmware(
        bios="ovmf", machine="q35", efi_storage="local-lvm", tpm_storage="local-lvm"
    )
    data = Disk(slot="scsi1", storage="local-lvm", size=GIB)

    _create(
        golden,
        firmware=firmware,
        disks=(*golden.template().disks, data),
        pci=(PciDevice(mapping="gpu", primary=True),),
    )

    live = config(golden)
    assert not live.keys() & {"scsi0", "scsi1", "efidisk0", "tpmstate0", "hostpci0", "ide2"}
    assert (live["bios"], live["machine"]) == ("ovmf", "q35")
    assert place.volumes() == []


def test_a_second_create_of_a_run_reads_once_and_writes_nothing(place: Place) -> None:
    golden = Golden(place)
    _create(golden)
    place.lab.forget_requests()

    outcome = _create(golden)

    assert outcome.status == "unchanged"
    assert len(place.lab.requests()) == 1
    assert place.changes() == []


def test_somebody_elses_machine_of_that_number_is_refused_and_left(place: Place) -> None:
    golden = Golden(place)
    stranger(golden, name="payroll")
    before = place.lab.snapshot()

    with pytest.raises(AlreadyExists, match="was not made by Proxflow"):
        _create(golden)

    assert place.lab.snapshot() == before


def test_a_clone_of_ours_under_the_templates_number_is_refused_too(place: Place) -> None:
    golden = Golden(place)
    mark = Mark(env=golden.name, guest="c1", vmid=golden.vmid, run=RUN, ready=True)
    stranger(golden, description=marked(mark, ""))

    with pytest.raises(AlreadyExists, match=f"belongs to c1 of environment {golden.name}"):
        _create(golden)


def test_a_number_that_is_taken_on_another_node_is_refused_with_both_ways_out(
    place: Place,
) -> None:
    golden = Golden(place)
    place.strange(0)
    before = place.lab.snapshot()

    with pytest.raises(AlreadyExists, match=f"VM {golden.vmid} already exists") as refused:
        _create(golden)

    assert "moved to another node" in str(refused.value.advice)
    assert place.lab.snapshot()["guests"] == before["guests"]


def test_a_create_whose_answer_was_lost_is_found_again(place: Place) -> None:
    golden = Golden(place)
    place.lab.fault(method="POST", path=f"/nodes/{NODES[0]}/qemu", reset="after")
    with pytest.raises(Unreachable):
        _create(golden)
    place.lab.settle()

    outcome = _create(golden)

    assert outcome.status == "unchanged"
    assert place.guests() == [golden.vmid]
