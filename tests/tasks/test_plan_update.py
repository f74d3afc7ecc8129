"""The parameters of an update bring a guest to what is declared, and touch nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from blocks.manifest.guest import Disk, Firmware, Guest, Nic, PciDevice
from blocks.manifest.mark import Mark, marked, read_mark
from blocks.manifest.plans import Update
from blocks.proxmox.properties import encode_create, format, kind_of, parse
from blocks.units import GIB
from tasks.plan import diff, update_params
from tests.blocks.proxmox.guests import as_server, guests
from tests.tasks.test_plan_diff import DISK, MAC, SHARED, a_config, a_guest


def applied(desired: Guest, config: dict[str, Any], update: Update) -> dict[str, Any]:
    """The config after a server took these parameters: new volumes named, disks grown."""
    put = desired.model_copy(update={"disks": desired.disks})
    new = {"vmid": desired.vmid, "memory": config["memory"], **update.put}
    found = as_server(put, new)
    after = config | {key: found[key] for key in update.put}
    for key in update.put:
        if kind_of(key) == "disk" and key in config and "cdrom" not in str(config[key]):
            # An attached volume keeps its name and its size, whatever the string says.
            value = parse("disk", str(update.put[key]))
            size = parse("disk", str(config[key]))["size"]
            after[key] = format("disk", value | {"size": size})
    for slot, size in update.resizes:
        after[slot] = format("disk", parse("disk", str(after[slot])) | {"size": size})
    return {key: value for key, value in after.items() if key not in update.delete}


@given(guests(), guests())
def test_after_the_update_only_what_is_impossible_in_place_is_left(
    desired: Guest, other: Guest
) -> None:
    desired = desired.model_copy(update={"vmid": other.vmid})
    config = as_server(other, encode_create(other))
    after = applied(desired, config, update_params(desired, config))
    assert all(not change.in_place for change in diff(desired, after))


@given(guests())
def test_a_guest_that_is_as_declared_needs_no_parameters(guest: Guest) -> None:
    assert not update_params(guest, as_server(guest, encode_create(guest)))


@given(st.sampled_from(["iops", "replicate", "aio", "brand-new"]), st.booleans())
def test_unknown_options_and_volume_names_survive(option: str, grow: bool) -> None:
    live = f"lvm:vm-101-disk-7,{option}=1,size=16G"
    desired = a_guest(disks=(Disk(slot="scsi0", storage="lvm", size=(32 if grow else 16) * GIB),))
    update = update_params(desired, a_config(scsi0=live))
    value = parse("disk", str(update.put["scsi0"]))
    assert value["file"] == "lvm:vm-101-disk-7"
    assert option in value
    assert (value["discard"], value["ssd"], value["iothread"]) == ("on", True, True)
    assert update.resizes == ((("scsi0", 32 * GIB),) if grow else ())


def test_growing_alone_writes_no_config() -> None:
    update = update_params(a_guest(), a_config(scsi0=DISK.replace("32G", "16G")))
    assert update == Update(resizes=(("scsi0", 32 * GIB),))


def test_shrinking_is_never_asked_for() -> None:
    assert not update_params(a_guest(), a_config(scsi0=DISK.replace("32G", "64G")))


def test_a_card_keeps_its_mac_and_what_was_not_declared() -> None:
    desired = a_guest(nics=(Nic(slot="net0", bridge="vmbr1", vlan=7),))
    update = update_params(desired, a_config(net0=f"virtio={MAC},bridge=vmbr0,firewall=1,mtu=1"))
    assert update == Update(put={"net0": f"virtio={MAC},bridge=vmbr1,firewall=1,mtu=1,tag=7"})


def test_a_vlan_that_is_declared_no_more_is_taken_off() -> None:
    update = update_params(a_guest(), a_config(net0=f"virtio={MAC},bridge=vmbr0,tag=20"))
    assert update.put == {"net0": f"virtio={MAC},bridge=vmbr0"}


def test_tags_of_others_stay() -> None:
    update = update_params(a_guest(tags=("new",)), a_config(tags="db;hand-made"))
    assert update.put == {"tags": "db;hand-made;new"}


def test_the_mark_stays_when_the_description_changes() -> None:
    mark = Mark(env="e", guest="db1", vmid=101, run="r7", ready=True)
    update = update_params(a_guest(description="new"), a_config(description=marked(mark, "old")))
    text = str(update.put["description"])
    assert read_mark(text) == mark
    assert text.endswith("\nnew")


def test_plain_values_are_what_a_form_takes() -> None:
    desired = a_guest(cores=4, onboot=True, memory=4096, balloon=0)
    assert update_params(desired, a_config(agent="0,type=isa")).put == {
        "cores": 4,
        "memory": 4096,
        "balloon": 0,
        "onboot": 1,
        "agent": "1,type=isa",
    }


def test_a_serial_console_that_is_not_wanted_is_deleted() -> None:
    assert update_params(a_guest(serial_console=False), a_config()) == Update(delete=("serial0",))


def test_a_tpm_is_added_as_a_new_volume() -> None:
    update = update_params(a_guest(firmware=Firmware(tpm_storage="lvm")), a_config())
    assert update.put == {"tpmstate0": "lvm:1,version=v2.0"}


def test_a_shared_disk_waits_for_its_volume_and_the_boot_order_waits_with_it() -> None:
    desired = a_guest(disks=(*a_guest().disks, SHARED), boot=("scsi1", "scsi0"))
    update = update_params(desired, a_config())
    assert (update.attach, update.put) == (("scsi1",), {"boot": "order=scsi0"})
    given = update_params(desired, a_config(), volumes={"scsi1": "lvm:vm-100-disk-1"})
    assert given.attach == ()
    assert given.put == {
        "scsi1": "lvm:vm-100-disk-1,discard=on,iothread=1,ssd=1",
        "boot": "order=scsi1;scsi0",
    }


def test_devices_and_the_display_are_written_as_declared_and_keep_the_displays_options() -> None:
    guest = a_guest(pci=(PciDevice(mapping="gpu"),), display="virtio")
    update = update_params(guest, a_config(hostpci0="mapping=old", vga="std,memory=64"))
    assert update.put == {"hostpci0": "mapping=gpu,pcie=1", "vga": "virtio,memory=64"}
