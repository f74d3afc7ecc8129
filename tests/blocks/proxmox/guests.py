"""Arbitrary guests, and what a server would make of their create call."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from blocks.manifest.guest import Disk, Firmware, Guest, Nic
from blocks.proxmox.properties import format, kind_of, parse
from blocks.units import GIB, MIB

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
STORAGES = st.sampled_from(["local", "local-lvm", "ceph_1"])
SIZES = st.integers(1, 8192).map(lambda n: n * 4 * MIB) | st.integers(1, 64).map(lambda n: n * GIB)
MACS = st.integers(0, 2**40 - 1).map(
    lambda n: ":".join(["02", *(f"{n >> 8 * i & 255:02X}" for i in range(5))])
)
TAGS = st.frozensets(st.from_regex(r"[a-z0-9_][a-z0-9_+.\-]{0,6}", fullmatch=True), max_size=3)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40).map(
    lambda text: text.rstrip("\n")
)
OPTIONAL_SWITCH = st.booleans()


@st.composite
def disks(draw: st.DrawFn, slot: str) -> Disk:
    bus = slot.rstrip("0123456789")
    return Disk(
        slot=slot,
        storage=draw(STORAGES),
        size=draw(SIZES),
        discard=draw(OPTIONAL_SWITCH),
        ssd=bus != "virtio" and draw(OPTIONAL_SWITCH),
        iothread=bus in {"scsi", "virtio"} and draw(OPTIONAL_SWITCH),
        cache=draw(st.sampled_from([None, "none", "writeback"])),
        format=draw(st.sampled_from([None, "raw", "qcow2"])),
        backup=draw(OPTIONAL_SWITCH),
        serial=draw(st.none() | st.text(st.sampled_from("ABC019 _-/"), min_size=1, max_size=8)),
    )


@st.composite
def nics(draw: st.DrawFn, slot: str) -> Nic:
    return Nic(
        slot=slot,
        bridge=draw(st.sampled_from(["vmbr0", "vmbr1", "vnet7"])),
        mac=draw(MACS),
        model=draw(st.sampled_from(["virtio", "e1000", "vmxnet3"])),
        vlan=draw(st.none() | st.integers(1, 4094)),
        firewall=draw(OPTIONAL_SWITCH),
        mtu=draw(st.none() | st.integers(1, 9000)),
        link_down=draw(OPTIONAL_SWITCH),
        rate=draw(st.none() | st.sampled_from([0.5, 10.0, 125.0])),
        queues=draw(st.none() | st.integers(1, 8)),
    )


FIRMWARE = st.builds(
    Firmware,
    bios=st.sampled_from(["seabios", "ovmf"]),
    machine=st.sampled_from(["i440fx", "q35", "pc-q35-9.2", "pc-i440fx-9.0+pve1"]),
    efi_storage=st.none() | STORAGES,
    tpm_storage=st.none() | STORAGES,
) | st.builds(Firmware, bios=st.just("ovmf"), efi_storage=STORAGES, secure_boot=st.booleans())


@st.composite
def guests(draw: st.DrawFn) -> Guest:
    """Any guest, in the order of slots in which configs are read."""
    slots = draw(
        st.lists(st.sampled_from(["sata0", "scsi0", "scsi1", "scsi10", "virtio0"]), unique=True)
    )
    slots.sort(key=lambda slot: (slot.rstrip("0123456789"), int(slot.lstrip("abcdefghirstvo"))))
    cards = [f"net{i}" for i in range(draw(st.integers(0, 3)))]
    name = draw(NAMES)
    return Guest(
        label=draw(NAMES),
        node="pve1",
        vmid=draw(st.integers(100, 999_999_999)),
        name=name,
        cores=draw(st.integers(1, 64)),
        sockets=draw(st.integers(1, 4)),
        cpu=draw(st.sampled_from(["host", "x86-64-v2-AES", "kvm64,flags=+aes;-pcid"])),
        memory=draw(st.integers(16, 1 << 20)),
        balloon=draw(st.none() | st.integers(0, 4096)),
        ostype=draw(st.sampled_from(["l26", "win11", "other"])),
        scsihw=draw(st.sampled_from(["virtio-scsi-single", "virtio-scsi-pci", "lsi"])),
        firmware=draw(FIRMWARE),
        disks=tuple(draw(disks(slot)) for slot in slots),
        nics=tuple(draw(nics(slot)) for slot in cards),
        drives=draw(
            st.fixed_dictionaries(
                {},
                optional=dict.fromkeys(("ide2", "ide3"), st.sampled_from(["none", "a:iso/b.iso"])),
            )
        ),
        boot=tuple(draw(st.lists(st.sampled_from([*slots, *cards]), unique=True)))
        if slots or cards
        else (),
        agent=draw(OPTIONAL_SWITCH),
        serial_console=draw(OPTIONAL_SWITCH),
        onboot=draw(OPTIONAL_SWITCH),
        tags=tuple(sorted(draw(TAGS))),
        pool=draw(st.none() | NAMES),
        description=draw(TEXTS),
    )


def as_server(guest: Guest, params: dict[str, str | int]) -> dict[str, Any]:
    """The config that a server answers after this create call: volumes named, extras added."""
    config: dict[str, Any] = {k: v for k, v in params.items() if k not in {"vmid", "pool"}}
    config |= {
        "memory": str(params["memory"]),
        "meta": "creation-qemu=10.1.2,ctime=1760000000",
        "smbios1": "uuid=8a1f7f2e-0000-4000-8000-000000000001",
        "vmgenid": "8a1f7f2e-0000-4000-8000-000000000002",
        "digest": "0" * 40,
        "tags": params.get("tags", " "),
        "boot": params.get("boot", " "),
    }
    made = 0
    for key in sorted(config):
        if kind_of(key) not in {"disk", "efidisk", "tpmstate"}:
            continue
        kind = str(kind_of(key))
        value = parse(kind, str(config[key]))
        if value.get("media") == "cdrom":
            if value["file"] != "none":
                value["size"] = 366 * 1024
        else:
            storage = str(value["file"]).partition(":")[0]
            suffix = value.pop("format", None)
            volume = f"vm-{guest.vmid}-disk-{made}"
            made += 1
            value["file"] = (
                f"{storage}:{guest.vmid}/{volume}.{suffix}" if suffix else f"{storage}:{volume}"
            )
            disk = guest.disk(key)
            value["size"] = disk.size if disk else 4 * MIB
        config[key] = format(kind, value)
    return config
