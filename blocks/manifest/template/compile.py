"""Makes the guests of a validated template: the template itself, and whole guests of its clones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from blocks.manifest.cards import derived_mac
from blocks.manifest.guest import (
    CloneSource,
    Disk,
    Firmware,
    Guest,
    Host,
    ImageSource,
    Inet,
    Nic,
    PciDevice,
)
from blocks.manifest.recipe import TEMPLATE, Alias, Rebuild, Recipe
from blocks.manifest.template.catalogue import Catalogue, CatalogueImage
from blocks.manifest.template.checks import DEFAULT_GENERATIONS
from blocks.manifest.template.document import CloneSpec, ImageSpec, Template, TemplateSpec
from blocks.manifest.template.fields import HIGHEST_ID, digest
from blocks.manifest.template.first_boot import cloud_init_of, inets_of
from blocks.manifest.template.hardware import DiskOptions, NicSpec, PciSpec
from blocks.model import Model
from blocks.units import parse_size

M = TypeVar("M", bound=Model)

_COMPRESSED = re.compile(r"\.(?:xz|zst|gz)$")
_LONGEST_NAME = 40


def compile_recipe(document: Template, catalogue: Catalogue) -> Recipe:
    """The recipe of a template. The document has passed all checks."""
    spec = document.spec
    entry = image_entry(spec.image, catalogue)
    macs = _macs(document)
    template = _template(document, entry, macs)
    first, last = spec.rebuild.vm_ids or _numbers(spec)
    return Recipe(
        template=template,
        clones=tuple(_clone(document, clone, template, macs) for clone in spec.clones),
        rebuild=Rebuild(when=spec.rebuild.when, keep=spec.rebuild.keep, vmids=(first, last)),
        alias=Alias(tag=next(iter(spec.alias.tag), None), pool=spec.alias.pool),
    )


def image_entry(image: ImageSpec, catalogue: Catalogue) -> CatalogueImage | None:
    """The entry of the catalogue that an image names, if it names one."""
    if image.name is None or image.url is not None or image.path is not None:
        return None
    found = catalogue.find(image.name)
    return found[1] if found is not None else None


def _numbers(spec: TemplateSpec) -> tuple[int, int]:
    if spec.rebuild.when == "never":
        return spec.vm_id, spec.vm_id
    return spec.vm_id, min(spec.vm_id + DEFAULT_GENERATIONS - 1, HIGHEST_ID)


def _macs(document: Template) -> dict[tuple[int, int], str]:
    """A MAC for each card by number of the guest and of the card: the given one, else a derived."""
    spec = document.spec
    cards = {spec.vm_id: spec.nics}
    cards |= {
        clone.vm_id: _bare(spec.nics) if clone.nics is None else clone.nics for clone in spec.clones
    }
    made = {
        (vmid, index): nic.mac
        for vmid, nics in cards.items()
        for index, nic in enumerate(nics)
        if nic.mac not in (None, "auto")
    }
    macs: dict[tuple[int, int], str] = {key: mac for key, mac in made.items() if mac is not None}
    taken = set(macs.values())
    for vmid, nics in cards.items():
        for index in range(len(nics)):
            if (vmid, index) in macs:
                continue
            mac = derived_mac(document.metadata.name, vmid, f"net{index}")
            attempt = 1
            while mac in taken:
                mac = derived_mac(document.metadata.name, vmid, f"net{index}/{attempt}")
                attempt += 1
            taken.add(mac)
            macs[vmid, index] = mac
    return macs


def _bare(nics: tuple[NicSpec, ...]) -> tuple[NicSpec, ...]:
    return tuple(nic.model_copy(update={"mac": None}) for nic in nics)


def _template(
    document: Template, entry: CatalogueImage | None, macs: dict[tuple[int, int], str]
) -> Guest:
    spec, metadata = document.spec, document.metadata
    told = spec.cloud_init
    cpu = spec.resources.cpu or (entry.cpu if entry is not None else None)
    firmware = _firmware(spec, entry)
    pci = tuple(_pci(device, firmware) for device in spec.pci)
    primary = any(device.primary for device in pci)
    return Guest(
        label=TEMPLATE,
        node=spec.node,
        vmid=spec.vm_id,
        name=metadata.name,
        cores=spec.resources.cores,
        sockets=spec.resources.sockets,
        memory=spec.resources.memory,
        balloon=spec.resources.balloon,
        ostype=spec.ostype or (entry.ostype if entry is not None else "l26"),
        firmware=firmware,
        disks=_disks(spec),
        nics=_nics(spec.vm_id, spec.nics, inets_of(told, told.ip), macs),
        boot=(spec.disk.slot,),
        agent=spec.agent,
        serial_console=spec.serial,
        autostart=False,
        tags=tuple(sorted(set(metadata.tags))),
        pool=spec.pool,
        description=metadata.description,
        source=_source(spec.image, entry, catalogue_name=spec.image.name),
        # It is never booted. A seed on local storage would keep its clones on its node.
        cloud_init=cloud_init_of(
            document, told, spec.nics, metadata.name, firmware.machine, agent=False
        ),
        pci=pci,
        display=spec.display or ("none" if primary else None),
        **({} if cpu is None else {"cpu": cpu}),
    )


def _clone(
    document: Template, clone: CloneSpec, template: Guest, macs: dict[tuple[int, int], str]
) -> Guest:
    spec = document.spec
    told = _over(spec.cloud_init, clone.cloud_init)
    changes = clone.resources.model_fields_set if clone.resources is not None else frozenset()
    resources = {
        key: value
        for key in changes
        if (value := getattr(clone.resources, key)) is not None or key == "balloon"
    }
    size = parse_size(clone.disk.size) if clone.disk is not None else None
    nics = _bare(spec.nics) if clone.nics is None else clone.nics
    if clone.gateway is not None:
        told = told.model_copy(update={"gateway": clone.gateway})
    inets = inets_of(told, told.ip if clone.ip is None else clone.ip)
    devices = spec.pci if clone.pci is None else clone.pci
    pci = tuple(_pci(device, template.firmware) for device in devices)
    primary = any(device.primary for device in pci)
    return template.model_copy(
        update={
            **resources,
            "label": clone.name,
            "node": clone.node or spec.node,
            "vmid": clone.vm_id,
            "name": clone.name,
            "disks": tuple(
                disk.model_copy(
                    update={
                        "storage": clone.storage or disk.storage,
                        "size": size if size is not None and index == 0 else disk.size,
                    }
                )
                for index, disk in enumerate(template.disks)
            ),
            "firmware": _firmware_on(clone.storage, template.firmware),
            "nics": _nics(clone.vm_id, nics, inets, macs),
            "onboot": clone.onboot,
            "autostart": clone.start,
            "tags": tuple(sorted({*template.tags, *clone.tags})),
            "pool": clone.pool,
            "description": clone.description or document.metadata.description,
            "ssh_addresses": tuple(dict.fromkeys(_logins(inets[: len(nics)]))),
            "source": CloneSource(
                template=TEMPLATE, full=clone.mode == "full", storage=clone.storage
            ),
            "cloud_init": cloud_init_of(
                document,
                told,
                nics,
                clone.name,
                template.firmware.machine,
                clone.storage,
                agent=spec.agent,
            ),
            "pci": pci,
            "display": spec.display or ("none" if primary else None),
        }
    )


def _over(base: M, change: M | None) -> M:
    """The base with what was written in the change."""
    if change is None:
        return base
    return base.model_copy(update={key: getattr(change, key) for key in change.model_fields_set})


def _logins(inets: tuple[Inet, ...]) -> Iterator[Host]:
    for version in (4, 6):
        for inet in inets:
            yield from (each.ip for each in inet.addresses if each.version == version)


def _source(
    image: ImageSpec, entry: CatalogueImage | None, *, catalogue_name: str | None
) -> ImageSource:
    pinned = image.checksum or (
        entry.checksum if entry is not None and image.checksums is None else None
    )
    listed = image.checksums or (entry.checksums if entry is not None else None)
    signature = image.signature
    if signature is None and entry is not None and image.checksums is None:
        signature = entry.signature
    origin = image.path or image.url or (entry.url if entry is not None else "")
    return ImageSource(
        name=_short_name(catalogue_name or origin),
        origin=origin,
        storage=image.storage,
        checksum=digest(pinned) if pinned is not None else None,
        sums=listed if pinned is None else None,
        signature=signature if pinned is None else None,
        keyring=image.keyring if pinned is None else None,
        fetch=image.fetch,
    )


def _short_name(text: str) -> str:
    """A name for files on a storage, of a short name, a URL or a path."""
    path = unquote(urlsplit(text).path) if "://" in text else text
    stem = _COMPRESSED.sub("", PurePosixPath(path).name)
    stem = re.sub(r"\.(?:qcow2|img|raw)$", "", stem)
    clean = re.sub(r"[^a-z0-9.-]+", "-", stem.lower())[:_LONGEST_NAME].strip(".-")
    return clean or "image"


def _firmware(spec: TemplateSpec, entry: CatalogueImage | None) -> Firmware:
    given = spec.firmware
    asked = given.secure_boot or given.efi_storage is not None
    # Where nobody says, the image's own firmware is the one that boots it.
    best = entry.firmware[0] if entry is not None else "seabios"
    bios = given.bios or ("ovmf" if asked else best)
    uefi = bios == "ovmf"
    machine = given.machine or ("q35" if uefi or spec.pci else "i440fx")
    tpm = given.tpm_storage
    if tpm is None and given.tpm:
        tpm = spec.disk.storage
    return Firmware(
        bios=bios,
        machine="i440fx" if machine == "pc" else machine,
        efi_storage=(given.efi_storage or spec.disk.storage) if uefi else None,
        secure_boot=bool(given.secure_boot) and uefi,
        tpm_storage=tpm,
    )


def _firmware_on(storage: str | None, firmware: Firmware) -> Firmware:
    """A full clone takes the EFI disk and the TPM state with it to another storage."""
    held = [key for key in ("efi_storage", "tpm_storage") if getattr(firmware, key) is not None]
    return firmware if storage is None else firmware.model_copy(update=dict.fromkeys(held, storage))


def _pci(device: PciSpec, firmware: Firmware) -> PciDevice:
    modern = "q35" in firmware.machine
    return PciDevice(
        mapping=device.mapping,
        device=device.device,
        pcie=modern if device.pcie is None else device.pcie,
        primary=device.primary,
        rombar=device.rombar,
        romfile=device.romfile,
        mdev=device.mdev,
    )


def _disks(spec: TemplateSpec) -> tuple[Disk, ...]:
    taken = {spec.disk.slot, spec.cloud_init.slot}
    taken |= {disk.slot for disk in spec.disks if disk.slot is not None}
    free = (slot for number in range(30) if (slot := f"scsi{number}") not in taken)
    root = _disk(spec.disk, spec.disk.slot, spec.disk.storage, spec.disk.size)
    return (
        root,
        *(
            _disk(
                disk, disk.slot or next(free), disk.storage or spec.disk.storage, disk.size
            ).model_copy(update={"serial": disk.serial})
            for disk in spec.disks
        ),
    )


def _disk(options: DiskOptions, slot: str, storage: str, size: str) -> Disk:
    # SSD emulation and I/O threads are for buses that have them.
    bus = slot.rstrip("0123456789")
    return Disk(
        slot=slot,
        storage=storage,
        size=parse_size(size),
        discard=options.discard,
        ssd=options.ssd and bus != "virtio",
        iothread=options.iothread and bus in ("scsi", "virtio"),
        cache=options.cache,
        format=options.format,
        backup=options.backup,
    )


def _nics(
    vmid: int,
    specs: tuple[NicSpec, ...],
    inets: tuple[Inet, ...],
    macs: dict[tuple[int, int], str],
) -> tuple[Nic, ...]:
    return tuple(
        Nic(
            slot=f"net{index}",
            bridge=spec.bridge,
            mac=macs[vmid, index],
            model=spec.model,
            vlan=spec.vlan,
            firewall=spec.firewall,
            mtu=spec.mtu,
            rate=spec.rate,
            queues=spec.queues,
            name=spec.name,
            inet=inets[index] if index < len(inets) else Inet(),
        )
        for index, spec in enumerate(specs)
    )
