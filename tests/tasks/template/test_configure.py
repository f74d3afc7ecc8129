"""Stage configure of a template: image, firmware, disks, devices and cloud-init, each once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blocks.manifest.guest import Disk, Firmware, PciDevice
from blocks.manifest.mark import read_mark
from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection
from blocks.proxmox.errors import AlreadyExists, NotFound, TaskFailed, Unreachable
from blocks.units import GIB
from tasks.errors import StageError
from tasks.image import image
from tasks.plan import diff
from tasks.stage import Event, Outcome, Scope, StageCancelled, in_stage
from tasks.template.configure import configure
from tasks.template.create import create
from tests.environments import OTHER_RUN, Place
from tests.meanwhile import lasting_until_asked_for
from tests.tasks.template.machines import (
    built,
    config,
    edit,
    from_image,
    imaged,
    opened,
    stranger,
)
from tests.templates import Golden

UEFI = Firmware(
    bios="ovmf",
    machine="q35",
    efi_storage="local-lvm",
    secure_boot=True,
    tpm_storage="local-lvm",
)


@pytest.fixture
def slowly(place: Place) -> Iterator[Place]:
    """The place while a configuration takes ten minutes, until a test makes it fast again."""
    place.lab.set_time(scale=1, qmconfig=600, qmcreate=0, imgcopy=0, resize=0)
    yield place
    place.lab.set_time(scale=0, qmconfig=1, qmcreate=2, imgcopy=3, resize=1)
    place.lab.settle()


def _configured(golden: Golden, **changes: Any) -> Outcome:
    with opened(golden, from_image(golden, **changes)) as here:
        imaged(here)
        golden.place.lab.forget_requests()
        return configure.fn(here.run, "template")


def test_the_root_disk_is_imported_grown_and_first_in_the_boot_order(place: Place) -> None:
    golden = Golden(place)

    outcome = _configured(golden)

    live = config(golden)
    assert outcome.status == "done"
    assert "imported into scsi0" in outcome.detail
    assert live["scsi0"] == (
        f"local-lvm:vm-{golden.vmid}-disk-0,discard=on,iothread=1,size=4G,ssd=1"
    )
    assert live["boot"] == "order=scsi0"


def test_the_machine_is_then_as_declared_and_told_what_cloud_init_needs(place: Place) -> None:
    golden = Golden(place)
    data = Disk(slot="scsi1", storage="local-lvm", size=2 * GIB, cache="writeback")
    changes = {"firmware": UEFI, "disks": (*golden.template().disks, data), "display": "serial0"}

    _configured(golden, **changes)

    live = config(golden)
    assert diff(golden.template(**changes), live) == ()
    assert "pre-enrolled-keys=1" in live["efidisk0"]
    assert "version=v2.0" in live["tpmstate0"]
    assert live["ide2"].startswith(f"local-lvm:vm-{golden.vmid}-cloudinit")
    assert live["ciuser"] == "ops"
    assert live["vga"] == "serial0"


def test_the_mark_of_an_unfinished_template_stays_unfinished(place: Place) -> None:
    golden = Golden(place)
    _configured(golden)

    mark = read_mark(config(golden)["description"])

    assert mark is not None
    assert not mark.ready


def test_the_image_is_imported_in_a_task_and_few_calls_are_made(place: Place) -> None:
    golden = Golden(place)

    _configured(golden, firmware=UEFI)

    path = f"/nodes/pve1/qemu/{golden.vmid}"
    assert place.changes() == [
        f"POST {path}/config",
        f"POST {path}/config",
        f"POST {path}/config",
        f"PUT {path}/resize",
    ]


def test_the_progress_of_the_import_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = Golden(place)
    for pause in ("QUIET", "SOONEST"):
        monkeypatch.setattr(f"tasks.progress.{pause}", 0)
    heard: list[Event] = []
    with opened(golden, from_image(golden)) as here:
        imaged(here)
        with Scope(emit=heard.append)(), in_stage("template", "configure"):
            configure.fn(here.run, "template")

    said = [event.detail for event in heard if event.state == "working"]
    assert "importing the image into scsi0: 100 %" in said


def test_a_second_run_changes_nothing_and_reads_once(place: Place) -> None:
    golden = Golden(place)
    _configured(golden, firmware=UEFI)
    with opened(golden, from_image(golden, firmware=UEFI)) as here:
        place.lab.forget_requests()
        outcome = configure.fn(here.run, "template")

    assert (outcome.status, outcome.warnings) == ("unchanged", ())
    assert len(place.lab.requests()) <= 2
    assert place.changes() == []


def test_an_image_larger_than_its_disk_is_refused_with_both_sizes(place: Place) -> None:
    golden = Golden(place)
    with opened(golden, from_image(golden, size=5 * GIB)) as here:
        imaged(here)
        before = place.lab.snapshot()
        with pytest.raises(StageError) as refused:
            configure.fn(here.run, "template")

    assert "5 GiB (5368709120 bytes)" in refused.value.message
    assert "4 GiB (4294967296 bytes)" in refused.value.message
    assert "at least 5 GiB" in str(refused.value.advice)
    assert place.lab.snapshot()["guests"] == before["guests"]


def test_an_image_of_exactly_the_declared_size_needs_no_growing(place: Place) -> None:
    golden = Golden(place)

    _configured(golden, size=4 * GIB)

    assert not [call for call in place.changes() if call.endswith("/resize")]


def test_a_failed_import_is_told_in_the_servers_words_and_can_be_taken_up(place: Place) -> None:
    golden = Golden(place)
    with opened(golden, from_image(golden)) as here:
        imaged(here)
        place.lab.fault(kind="task", type="qmconfig", exitstatus="qemu-img: write failed", times=1)
        with pytest.raises(TaskFailed, match="write failed") as failed:
            configure.fn(here.run, "template")
        outcome = configure.fn(here.run, "template")

    assert not failed.value.transient
    assert outcome.status == "done"
    assert place.volumes("disk") == [f"pve1/local-lvm:vm-{golden.vmid}-disk-0"]


def test_an_import_whose_answer_was_lost_is_not_made_twice(place: Place) -> None:
    golden = Golden(place)
    path = f"/nodes/pve1/qemu/{golden.vmid}/config"
    with opened(golden, from_image(golden)) as here:
        imaged(here)
        place.lab.fault(method="POST", path=path, reset="after", times=1)
        with pytest.raises(Unreachable) as lost:
            configure.fn(here.run, "template")
        configure.fn(here.run, "template")

    assert lost.value.transient
    assert place.volumes("disk") == [f"pve1/local-lvm:vm-{golden.vmid}-disk-0"]
    assert "unused0" not in config(golden)


def test_an_import_that_still_runs_is_waited_for_and_no_second_one_is_begun(
    slowly: Place,
) -> None:
    golden = Golden(slowly)
    path = f"/nodes/pve1/qemu/{golden.vmid}/config"
    with opened(golden, from_image(golden)) as here:
        imaged(here)
        slowly.lab.fault(method="POST", path=path, reset="after", times=1)
        with pytest.raises(Unreachable):
            configure.fn(here.run, "template")
        assert "scsi0" not in config(golden)
        with lasting_until_asked_for(slowly.lab):
            configure.fn(here.run, "template")

    assert slowly.volumes("disk") == [f"pve1/local-lvm:vm-{golden.vmid}-disk-0"]
    assert "unused0" not in config(golden)


def test_a_run_that_stops_stops_the_import_and_the_next_one_makes_it(slowly: Place) -> None:
    golden = Golden(slowly)
    with opened(golden, from_image(golden)) as here:
        imaged(here)
        scope = Scope()
        scope.stop.set()
        with scope(), pytest.raises(StageCancelled):
            configure.fn(here.run, "template")
        slowly.lab.settle()
        slowly.lab.set_time(scale=0)
        assert any("DELETE /nodes/pve1/tasks/UPID:" in call for call in slowly.changes())
        assert "scsi0" not in config(golden)
        configure.fn(here.run, "template")

    assert "scsi0" in config(golden)
    assert len(slowly.volumes("disk")) == 1


def test_a_try_that_made_a_disk_elsewhere_is_cleaned_up(place: Place) -> None:
    golden = Golden(place)
    elsewhere = (Disk(slot="scsi0", storage="local", size=4 * GIB),)
    _configured(golden, disks=elsewhere)
    assert place.volumes("disk") == [f"pve1/local:{golden.vmid}/vm-{golden.vmid}-disk-0.qcow2"]
    with opened(golden, from_image(golden), OTHER_RUN) as here:
        outcome = configure.fn(here.run, "template")

    assert outcome.status == "done"
    assert place.volumes("disk") == [f"pve1/local-lvm:vm-{golden.vmid}-disk-0"]


def test_firmware_volumes_elsewhere_are_made_anew_too(place: Place) -> None:
    golden = Golden(place)
    elsewhere = UEFI.model_copy(update={"efi_storage": "local", "tpm_storage": "local"})
    _configured(golden, firmware=elsewhere)
    with opened(golden, from_image(golden, firmware=UEFI), OTHER_RUN) as here:
        outcome = configure.fn(here.run, "template")

    assert outcome.warnings == ()
    assert all("pve1/local-lvm:" in volume for volume in place.volumes("disk"))
    assert len(place.volumes("disk")) == 3


def test_a_disk_that_was_made_is_kept_where_the_new_image_would_not_fit(place: Place) -> None:
    golden = Golden(place)
    old, new = f"{golden.name}-20260302-aaaaaaaa", f"{golden.name}-20260309-bbbbbbbb"
    _configured(golden, name=old)
    before = config(golden)
    with opened(golden, from_image(golden, name=new, size=6 * GIB), OTHER_RUN) as here:
        image.fn(here.run, "template")
        with pytest.raises(StageError, match="larger than scsi0"):
            configure.fn(here.run, "template")

    assert config(golden) == before


def test_what_a_cleaning_that_broke_off_has_left_is_removed(place: Place) -> None:
    golden = Golden(place)
    _configured(golden)
    edit(golden, delete="scsi0")
    assert "unused0" in config(golden)
    with opened(golden, from_image(golden), OTHER_RUN) as here:
        outcome = configure.fn(here.run, "template")

    live = config(golden)
    assert "deleted" in outcome.detail
    assert "unused0" not in live
    assert len(place.volumes("disk")) == 1


def test_a_detached_disk_of_another_size_may_be_somebodys_and_stays(place: Place) -> None:
    golden = Golden(place)
    _configured(golden)
    edit(golden, scsi5="local-lvm:3")
    edit(golden, delete="scsi5")
    before = config(golden)["unused0"]
    with opened(golden, from_image(golden), OTHER_RUN) as here:
        outcome = configure.fn(here.run, "template")

    assert outcome.status == "unchanged"
    assert config(golden)["unused0"] == before
    assert "not surely of an earlier try" in outcome.warnings[0]


def test_an_unfinished_generation_of_an_older_image_gets_the_new_one(place: Place) -> None:
    golden = Golden(place)
    old, new = f"{golden.name}-20260302-aaaaaaaa", f"{golden.name}-20260309-bbbbbbbb"
    _configured(golden, name=old)
    with opened(golden, from_image(golden, name=new), OTHER_RUN) as here:
        outcome = configure.fn(here.run, "template")

    assert "imported into scsi0" in outcome.detail
    assert config(golden)["name"] == new
    assert len(place.volumes("disk")) == 1


def test_a_changed_wish_is_written_to_an_unfinished_template(place: Place) -> None:
    golden = Golden(place)
    _configured(golden)
    with opened(golden, from_image(golden, memory=2048, tags=("new",)), OTHER_RUN) as here:
        configure.fn(here.run, "template")

    live = config(golden)
    assert (live["memory"], live["tags"]) == ("2048", "new")


def test_a_smaller_disk_than_was_made_is_refused_and_not_shrunk(place: Place) -> None:
    golden = Golden(place)
    _configured(golden)
    smaller = (Disk(slot="scsi0", storage="local-lvm", size=2 * GIB),)
    before = config(golden)
    with (
        opened(golden, from_image(golden, disks=smaller), OTHER_RUN) as here,
        pytest.raises(StageError, match="can grow, not shrink"),
    ):
        configure.fn(here.run, "template")

    assert config(golden) == before


def test_a_template_is_left_alone_and_what_differs_is_told(place: Place) -> None:
    golden = Golden(place)
    with opened(golden, from_image(golden)) as here:
        built(here)
    told = golden.cloud_init(golden.name, user="admin")
    with opened(golden, from_image(golden, memory=4096, cloud_init=told), OTHER_RUN) as here:
        place.lab.forget_requests()
        outcome = configure.fn(here.run, "template")

    assert outcome.status == "unchanged"
    assert "memory: 1024 MiB -> 4096 MiB" in outcome.warnings[0]
    assert "cloud-init: ciuser" in outcome.warnings[0]
    assert "declare when new generations are made" in outcome.warnings[0]
    assert (len(place.lab.requests()), place.changes()) == (1, [])


def test_a_template_that_is_as_declared_gives_no_warning(place: Place) -> None:
    golden = Golden(place)
    with opened(golden, from_image(golden, firmware=UEFI)) as here:
        built(here)
        outcome = configure.fn(here.run, "template")

    assert (outcome.status, outcome.warnings) == ("unchanged", ())


def test_a_seed_iso_takes_its_drive_and_does_not_boot(place: Place) -> None:
    golden = Golden(place)
    told = golden.cloud_init(golden.name, method="seed", storage="local")
    _configured(golden, cloud_init=told)
    with opened(golden, from_image(golden, cloud_init=told), OTHER_RUN) as here:
        again = configure.fn(here.run, "template")

    live = config(golden)
    assert f"proxflow_{golden.name}_template_" in live["ide2"]
    assert live["boot"] == "order=scsi0"
    assert again.status == "unchanged"


def test_a_lock_that_passes_soon_makes_the_failure_one_that_is_tried_again(place: Place) -> None:
    golden = Golden(place)
    text = "can't lock file '/var/lock/qemu-server/lock-1.conf' - got timeout"
    with opened(golden, from_image(golden)) as here:
        imaged(here)
        place.lab.fault(kind="task", type="qmconfig", exitstatus=text, times=1)
        with pytest.raises(TaskFailed) as failed:
            configure.fn(here.run, "template")

    assert failed.value.transient


def test_a_running_machine_whose_disk_has_to_be_made_anew_is_not_touched(place: Place) -> None:
    golden = Golden(place)
    _configured(golden, disks=(Disk(slot="scsi0", storage="local", size=4 * GIB),))
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{golden.vmid}/status/start")
    before = config(golden)
    with (
        opened(golden, from_image(golden)) as here,
        pytest.raises(StageError, match="made anew: scsi0"),
    ):
        configure.fn(here.run, "template")

    assert config(golden) == before


def test_somebody_elses_machine_is_refused(place: Place) -> None:
    golden = Golden(place)
    stranger(golden, name="payroll")
    before = place.lab.snapshot()
    with (
        opened(golden, from_image(golden)) as here,
        pytest.raises(AlreadyExists, match="was not made by Proxflow"),
    ):
        configure.fn(here.run, "template")

    assert place.lab.snapshot() == before


def test_a_machine_that_is_not_there_is_told(place: Place) -> None:
    golden = Golden(place)
    with (
        opened(golden, from_image(golden)) as here,
        pytest.raises(NotFound, match=f"VM {golden.vmid} is not on node pve1"),
    ):
        configure.fn(here.run, "template")


def test_an_image_that_is_not_on_the_storage_names_the_stage_that_brings_it(place: Place) -> None:
    golden = Golden(place)
    with opened(golden, from_image(golden, size=3 * GIB)) as here:
        create.fn(here.run, "template")
        with pytest.raises(StageError) as missing:
            configure.fn(here.run, "template")

    assert "stage `image`" in str(missing.value.advice)


def test_mapped_devices_are_given_and_an_amd_card_gets_a_note(place: Place) -> None:
    golden = Golden(place)
    with golden.place.client() as client:
        for name, vendor in (("amd", "1002:73bf"), ("other", "10de:2204")):
            entry = f"node=pve1,path=0000:01:00.0,id={vendor},iommugroup=1"
            client.post("/cluster/mapping/pci", id=f"{name}{place.number}", map=entry)
    devices = (
        PciDevice(mapping=f"amd{place.number}", primary=True),
        PciDevice(mapping=f"other{place.number}", rombar=False),
    )

    outcome = _configured(golden, firmware=Firmware(machine="q35"), pci=devices)

    live = config(golden)
    assert live["hostpci0"] == f"mapping=amd{place.number},pcie=1,x-vga=1"
    assert live["hostpci1"] == f"mapping=other{place.number},pcie=1,rombar=0"
    assert live["vga"] == "none"
    assert [f"amd{place.number}" in text for text in outcome.warnings] == [True]
    assert "do not reset" in outcome.warnings[0]


def test_a_raw_device_is_refused_to_a_token_with_the_way_that_works(place: Place) -> None:
    golden = Golden(place)
    raw = PciDevice(device="0000:01:00.0", pcie=False)
    with pytest.raises(StageError) as refused:
        _configured(golden, pci=(raw,))

    assert "lets only root@pam with a password do, not root@pam!lab" in refused.value.message
    assert "resource mapping" in str(refused.value.advice)
    assert "scsi0" not in config(golden)


def test_root_with_a_password_may_give_a_device_by_its_id(place: Place) -> None:
    golden = Golden(place)
    raw = PciDevice(device="0000:01:00.0", pcie=False)
    keys = ("endpoint", "user", "password", "ca_file")
    root = Connection(**{key: place.lab.connection[key] for key in keys})
    with opened(golden, from_image(golden, pci=(raw,))) as here:
        imaged(here)
        here.client.close()
        here.connection, here.client = root, Client(root)
        configure.fn(here.run, "template")

    assert config(golden)["hostpci0"] == "0000:01:00.0"


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ((PciDevice(mapping="gpu"),), "machine i440fx lacks"),
        (
            (
                PciDevice(mapping="a", pcie=False, primary=True),
                PciDevice(mapping="b", pcie=False, primary=True),
            ),
            "first graphics card: a, b",
        ),
    ],
)
def test_devices_that_cannot_work_are_refused_before_anything_is_written(
    place: Place, devices: tuple[PciDevice, ...], words: str
) -> None:
    golden = Golden(place)
    with pytest.raises(StageError, match=words):
        _configured(golden, pci=devices)

    assert place.changes() == []
