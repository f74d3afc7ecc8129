"""Stages adjust and start: a new clone becomes what is declared for it, once, and runs."""

from __future__ import annotations

import pytest

from blocks.manifest.guest import CloneSource, Disk, Firmware, Guest, Nic, PciDevice
from blocks.manifest.mark import read_mark
from blocks.proxmox.errors import AlreadyExists, Unreachable
from blocks.units import GIB
from tasks.cloudinit.carry import carry
from tasks.errors import StageError
from tasks.plan import diff
from tasks.template.clone import adjust, clone, start
from tests.environments import NODES, OTHER_RUN
from tests.tasks.template.clones import (
    SHARED,
    config,
    edit,
    everything,
    linked,
    live,
    make,
    make_template,
    on_shared,
    seeds,
)
from tests.templates import Golden


def seeded(golden: Golden, index: int = 1, **changes: object) -> Guest:
    """A clone that is told by a seed ISO."""
    name = f"c{index}-{golden.place.number}"
    told = golden.cloud_init(name, method="seed", storage="local")
    return golden.clone(index, **{"cloud_init": told, **changes})


def grown(size: int) -> tuple[Disk, ...]:
    """The template's disk in another size."""
    return (Disk(slot="scsi0", storage="local-lvm", size=size),)


def test_a_clone_gets_size_memory_tags_and_its_declared_macs(golden: Golden) -> None:
    guest = golden.clone(
        cores=2,
        sockets=2,
        memory=2048,
        balloon=0,
        cpu="host",
        onboot=True,
        tags=("web", "blue"),
        description="of the web team",
        disks=grown(10 * GIB),
    )
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        golden.place.lab.forget_requests()
        outcome = adjust.fn(here.run, guest.label)
        calls = golden.place.changes()
        found = live(here, guest)
        again = adjust.fn(here.run, guest.label)

    path = f"PUT /nodes/pve1/qemu/{guest.vmid}"
    assert outcome.status == "done"
    assert calls == [f"{path}/config", f"{path}/resize"]
    assert diff(guest, found) == ()
    assert found.nics[0].mac == guest.nics[0].mac
    assert found.disks[0].size == 10 * GIB
    assert again.status == "unchanged"
    assert golden.place.changes() == calls


def test_a_clone_is_told_its_own_name_address_and_user(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here, ciuser="root", nameserver="192.0.2.53", ipconfig0="ip=dhcp")
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)
        found = config(here, guest)

    assert found["ciuser"] == "ops"
    assert f"ip={golden.place.address(1)}/24" in found["ipconfig0"].split(",")
    assert "nameserver" not in found
    assert found["ide2"].startswith("local-lvm:vm-")


def test_a_clone_that_is_told_by_a_seed_has_the_iso_and_still_boots_from_its_disk_alone(
    golden: Golden,
) -> None:
    guest = seeded(golden)
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)
        found = config(here, guest)
        again = adjust.fn(here.run, guest.label)

    assert found["ide2"].partition(",")[0].endswith(seeds(golden)[0].rpartition("/")[2])
    assert found["boot"] == "order=scsi0"
    assert again.status == "unchanged"


def test_a_clone_keeps_nothing_of_its_template_that_is_not_declared_for_it(golden: Golden) -> None:
    guest = golden.clone(serial_console=False)
    with golden.opened(golden.recipe(guest)) as here:
        make_template(
            here,
            tags="current;golden",
            onboot=1,
            net1="virtio,bridge=vmbr1",
            hostpci0="mapping=gpu",
            protection=1,
        )
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)
        found = config(here, guest)

    assert found.get("tags", " ").strip() == ""
    assert found["onboot"] == 0
    assert not {"net1", "hostpci0", "serial0", "protection"} & found.keys()
    assert found["net0"].startswith(f"virtio={guest.nics[0].mac},")


def test_a_device_that_is_declared_for_the_clone_stays_and_changes_with_it(golden: Golden) -> None:
    guest = golden.clone(pci=(PciDevice(mapping="gpu2"),))
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here, hostpci0="mapping=gpu,pcie=1", hostpci1="mapping=nic")
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)
        found = config(here, guest)

    assert found["hostpci0"] == "mapping=gpu2,pcie=1"
    assert "hostpci1" not in found


def test_a_clone_may_have_more_disks_and_cards_than_its_template(golden: Golden) -> None:
    data = Disk(slot="scsi1", storage="local-lvm", size=2 * GIB)
    plain = golden.clone()
    card = Nic(slot="net1", bridge="vmbr1", mac="02:00:00:00:00:AB")
    guest = golden.clone(disks=(*plain.disks, data), nics=(*plain.nics, card))
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)
        found = live(here, guest)

    assert [disk.slot for disk in found.disks] == ["scsi0", "scsi1"]
    assert diff(guest, found) == ()


@pytest.mark.parametrize("full", [True, False])
def test_firmware_disks_of_a_clone_are_where_the_clone_call_puts_them(
    golden: Golden, full: bool
) -> None:
    firmware = Firmware(bios="ovmf", machine="q35", efi_storage=SHARED, tpm_storage=SHARED)
    template = on_shared(golden, firmware=firmware)
    source = CloneSource(template="template", full=full, storage="local-lvm" if full else None)
    guest = golden.clone(firmware=firmware, source=source)
    with golden.opened(golden.recipe(guest, template=template)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)
        found = live(here, guest)

        assert adjust.fn(here.run, guest.label).status == "unchanged"
    storage = "local-lvm" if full else SHARED
    assert (found.firmware.efi_storage, found.firmware.tpm_storage) == (storage, storage)


def test_a_disk_is_never_made_smaller_than_the_templates(golden: Golden) -> None:
    guest = golden.clone(disks=grown(2 * GIB))
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        before = everything(golden)
        with pytest.raises(StageError, match=r"scsi0\.size: 4G -> 2G .*can grow, not shrink"):
            adjust.fn(here.run, guest.label)

    assert everything(golden) == before


def test_a_linked_clone_may_be_larger_than_its_template(golden: Golden) -> None:
    guest = linked(golden, disks=(Disk(slot="scsi0", storage=SHARED, size=3 * GIB),))
    with golden.opened(golden.recipe(guest, template=on_shared(golden))) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)

        assert live(here, guest).disks[0].size == 3 * GIB


def test_a_stranger_that_took_the_number_meanwhile_is_not_adjusted_and_not_started(
    golden: Golden,
) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        path = f"/nodes/pve1/qemu/{guest.vmid}"
        here.client.run("DELETE", path)
        golden.place.strange(1, name="payroll")
        before = everything(golden)
        for stage in (adjust, start):
            with pytest.raises(AlreadyExists, match="payroll"):
                stage.fn(here.run, guest.label)

    assert everything(golden) == before
    assert not golden.place.running(1)


def test_a_clone_is_started_and_then_marked_as_finished_in_one_call(golden: Golden) -> None:
    guest = golden.clone(description="of the web team")
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)
        golden.place.lab.forget_requests()
        outcome = start.fn(here.run, guest.label)
        description = config(here, guest)["description"]

    path = f"/nodes/pve1/qemu/{guest.vmid}"
    assert (outcome.status, outcome.detail) == ("done", "started")
    assert golden.place.changes() == [f"POST {path}/status/start", f"PUT {path}/config"]
    assert golden.place.running(1)
    assert read_mark(description) == here.mark(guest, ready=True)
    assert description.endswith("\nof the web team")


def test_a_clone_that_is_not_to_be_started_is_finished_all_the_same(golden: Golden) -> None:
    guest = golden.clone(autostart=False)
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        make(here, guest.label)

        assert read_mark(config(here, guest)["description"]) == here.mark(guest, ready=True)
    assert not golden.place.running(1)


def test_a_start_whose_answer_was_lost_is_taken_up_again(golden: Golden) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
        adjust.fn(here.run, guest.label)
        golden.place.lab.fault(method="POST", path=".*/status/start", reset="after")
        with pytest.raises(Unreachable):
            start.fn(here.run, guest.label)
        golden.place.lab.settle()
        outcome = start.fn(here.run, guest.label)

        assert read_mark(config(here, guest)["description"]) == here.mark(guest, ready=True)
    assert (outcome.status, outcome.detail) == ("done", "runs")


def test_a_second_run_finds_a_finished_clone_with_one_call_and_does_not_start_it_again(
    golden: Golden,
) -> None:
    guest = golden.clone()
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        make(here, guest.label)
        here.client.run("POST", f"/nodes/pve1/qemu/{guest.vmid}/status/stop")
    with golden.opened(golden.recipe(guest), OTHER_RUN) as here:
        golden.place.lab.forget_requests()
        outcomes = make(here, guest.label)

        assert sum(here.client.calls.values()) == 1
    assert [outcome.status for outcome in outcomes] == ["unchanged"] * 3
    assert [outcome.warnings for outcome in outcomes] == [()] * 3
    assert golden.place.changes() == []
    assert not golden.place.running(1)


def test_a_clone_that_another_run_has_left_unfinished_is_finished(golden: Golden) -> None:
    guest = golden.clone(memory=2048)
    with golden.opened(golden.recipe(guest)) as here:
        make_template(here)
        clone.fn(here.run, guest.label)
    with golden.opened(golden.recipe(guest), OTHER_RUN) as here:
        outcomes = make(here, guest.label)

        assert live(here, guest).memory == 2048
    assert [outcome.status for outcome in outcomes] == ["unchanged", "done", "done"]
    assert golden.place.running(1)


def test_a_clone_on_another_node_is_adjusted_and_started_there(golden: Golden) -> None:
    guest = golden.clone(node=NODES[1], memory=512)
    with golden.opened(golden.recipe(guest, template=on_shared(golden))) as here:
        make_template(here)
        make(here, guest.label)

        assert live(here, guest).memory == 512
    assert golden.place.running(1)


def test_a_seeded_clone_does_not_take_its_templates_seed_away(golden: Golden) -> None:
    told = golden.cloud_init(golden.name, method="seed", storage="local")
    guest = seeded(golden)
    with golden.opened(golden.recipe(guest, template=golden.template(cloud_init=told))) as here:
        template = make_template(here)
        edit(here, template, delete="ide2")
        edit(here, template, **carry(here, template, {}).values)
        make(here, guest.label)
        held = {config(here, one)["ide2"].partition(",")[0] for one in (template, guest)}

    assert len(held) == len(seeds(golden)) == 2
