"""Converts the flat variable file of an Ansible playbook that drives ``qm`` into a template.

The spellings are those that public playbooks and roles use. Nothing is dropped without a word:
what has no place here is listed, and secrets become references.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from blocks.manifest.faults import Fault, ManifestError, show_path
from blocks.manifest.fields import name_trouble
from blocks.manifest.render import to_yaml
from blocks.manifest.template.ansible_clones import clone_entries
from blocks.manifest.template.ansible_file import Vars, read_vars
from blocks.manifest.template.ansible_hardware import (
    cards_of,
    disk_of,
    firmware_of,
    ostype_of,
    pci_of,
    resources_of,
)
from blocks.manifest.template.ansible_login import cloud_init_of
from blocks.manifest.template.ansible_values import flag, number, tags_of, word
from blocks.manifest.template.catalogue import shipped
from blocks.model import Model
from blocks.paths import read_small
from blocks.units import MIB

__all__ = ["Converted", "convert", "convert_file", "to_yaml"]

_CONNECTION = re.compile(
    r"(?:proxmox|pve|pm|promox)?_?(?:api_?|ssh_)?"
    r"(?:host|host_ip|url|api_url|endpoint|port|api_user|api_password|token|token_id|token_secret"
    r"|tls_insecure|insecure|validate_certs|verify_ssl|ssl_verify)"
    r"|(?:proxmox|pve|pm|api)_(?:user|username|password|pass|root_password)"
    r"|ansible_\w+|become\w*|target_host|hosts"
)
_DONE_HERE = {
    "image_name": "the image's file gets its name from its checksum",
    "image_filename": "the image's file gets its name from its checksum",
    "image_dest": "the storage says where images are kept",
    "image_dir": "the storage says where images are kept",
    "download_dir": "the storage says where images are kept",
    "scsihw": "the controller is always virtio-scsi-single",
    "scsi_controller": "the controller is always virtio-scsi-single",
    "tpm_version": "a TPM is always version 2.0",
    "efi_type": "the EFI disk is always of type 4m",
    "boot_order": "the image's disk is booted",
    "bootdisk": "the image's disk is booted",
    "boot": "the image's disk is booted",
    "hotplug": "left as the server has it",
    "numa": "left as the server has it",
}
_PUBLISHERS = (
    (r"cloud-images\.ubuntu\.com", "SHA256SUMS"),
    (r"(?:cloud|cdimage)\.debian\.org", "SHA512SUMS"),
    (r"repo\.almalinux\.org", "CHECKSUM"),
    (r"(?:dl|download)\.rockylinux\.org", "{name}.CHECKSUM"),
    (r"download\.opensuse\.org", "{name}.sha256"),
    (r"dl-cdn\.alpinelinux\.org", "{name}.sha512"),
)


class Converted(Model):
    """A template document, and what is to be said about it.

    ``unknown`` are the keys that have no place in it, ``notes`` what was decided or left out.
    """

    document: dict[str, Any]
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def convert(text: str, file: str = "vars.yml") -> Converted:
    """The template of a variable file. ``file`` is its name, for messages.

    Raises ManifestError where the text is no YAML, or no variables, and with every value whose
    shape is not what its key says: a mapping in the place of a list.
    """
    found = read_vars(text, file)
    _set_aside(found)
    metadata, spec = _body(found)
    if found.faults:
        raise ManifestError(tuple(sorted(found.faults, key=lambda fault: fault.line or 0)))
    document = {"version": "1", "kind": "Template", "metadata": metadata, "spec": spec}
    return Converted(
        document=document, unknown=tuple(found.left()), notes=tuple(dict.fromkeys(found.notes))
    )


def convert_file(path: Path) -> Converted:
    """The template of a variable file. Raises ManifestError, also where it cannot be read."""
    try:
        text = read_small(path, MIB, "utf-8-sig")
    except UnicodeDecodeError:
        raise ManifestError(
            (Fault(file=show_path(path), problem="is no UTF-8 text", remedy="save it as UTF-8"),)
        ) from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror or 'input/output error'}"
        remedy = "name the variable file of the playbook"
        raise ManifestError(
            (Fault(file=show_path(path), problem=problem, remedy=remedy),)
        ) from None
    return convert(text, show_path(path))


def _set_aside(found: Vars) -> None:
    """Tell what belongs elsewhere, or is always so."""
    for key in list(found.values):
        if _CONNECTION.fullmatch(key):
            found.drop(key, "is about the connection; see docs/connecting.md")
        elif key in _DONE_HERE:
            found.drop(key, _DONE_HERE[key])


def _body(found: Vars) -> tuple[dict[str, Any], dict[str, Any]]:
    domain = found.take("domain", "dns_domain", "domain_name", into=_domain)
    metadata: dict[str, Any] = {"name": _name(found)}
    if domain:
        metadata["domain"] = domain
    tags = found.take("tags", "vm_tags", "template_tags", several=True, into=tags_of)
    if tags:
        metadata["tags"] = tags
    description = found.take("description", "vm_description", "notes", "template_description")
    if description:
        metadata["description"] = str(description)
    node = found.take(
        "node", "proxmox_node", "target_node", "pve_node", "vm_node", "node_name", into=word
    )
    if not isinstance(node, str) or not node:
        found.notes.append("node: no node is named; 'pve' was put in")
        node = "pve"
    vmid = found.take(
        "vm_id", "vmid", "template_id", "template_vm_id", "template_vmid", "id", into=number
    )
    if vmid is None or vmid < 100:
        found.notes.append("vm_id: no number is given; 9000 was put in")
        vmid = 9000
    spec: dict[str, Any] = {"node": node, "vm_id": vmid, "image": _image(found)}
    parts = {
        "pool": found.take("pool", "resource_pool", "vm_pool", into=word),
        "resources": resources_of(found),
        "disk": disk_of(found),
        "firmware": firmware_of(found),
        "pci": pci_of(found),
        "display": found.take("display", "vga", "vm_vga", into=word),
        "ostype": ostype_of(found),
        "nics": cards_of(found),
    }
    spec |= {key: value for key, value in parts.items() if value not in (None, {}, [], "")}
    for key, names in (
        ("serial", ("serial", "serial_console", "serial0", "serial_enabled")),
        ("agent", ("agent", "qemu_agent", "guest_agent", "agent_enabled", "qemu_guest_agent")),
    ):
        value = found.take(*names, into=flag)
        if value is False:
            spec[key] = False
    told = cloud_init_of(found)
    if told:
        spec["cloud_init"] = told
    clones = clone_entries(found, template_id=vmid, static="ip" in told)
    if clones:
        spec["clones"] = clones
    return metadata, spec


def _name(found: Vars) -> str:
    given = found.take("vm_name", "template_name", "name", "vm_hostname", "hostname", into=word)
    if not isinstance(given, str) or not given.strip():
        found.notes.append("name: no name is given; 'golden' was put in")
        return "golden"
    clean = re.sub(r"[^A-Za-z0-9-]+", "-", given.strip()).strip("-")[:45].strip("-") or "golden"
    if clean != given:
        found.notes.append(f"name: {given!r} is no DNS name; it became {clean!r}")
    return clean


def _image(found: Vars) -> dict[str, Any] | str:
    url = found.take(
        "image_url",
        "cloud_image_url",
        "img_url",
        "source_url",
        "template_url",
        "qcow2_download_url",
        "download_url",
        "url",
        into=word,
    )
    named = found.take("image", "distro", "cloud_image", "os_image", into=word)
    checksum = found.take(
        "image_checksum",
        "checksum",
        "cloud_image_checksum",
        "image_sha256",
        "image_sha512",
        into=word,
    )
    algorithm = found.take("checksum_algorithm", "image_checksum_algorithm", into=word)
    listed_at = found.take(
        "checksum_url", "image_checksum_url", "checksums_url", "sha256sums_url", into=word
    )
    storage = found.take("image_storage", "import_storage", "iso_storage", into=word)
    more = {"storage": storage} if isinstance(storage, str) and storage else {}
    if not isinstance(url, str) or not url.strip():
        entry = shipped().find(named) if named else None
        name = entry[0] if entry is not None else "debian13"
        if entry is None:
            why = f"{named!r} is not in the catalogue" if named else "no URL is given"
            found.notes.append(f"image: {why}; debian13 of the catalogue was put in")
        _leave_checksums(found, f"since {name} of the catalogue has its own", checksum, listed_at)
        return {"name": name, **more} if more else name
    parts = urlsplit(url)
    if "@" in parts.netloc:
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        found.notes.append("image: user and password of its URL were left out")
    if named:
        found.notes.append(f"image: the URL was taken, not the name {named!r}")
    for name, known in shipped().images.items():
        if known.url == url and checksum is None:
            _leave_checksums(found, f"since {name} of the catalogue has its own", None, listed_at)
            return {"name": name, **more} if more else name
    image: dict[str, Any] = {"url": url.strip(), **more}
    if checksum and "://" in checksum:
        # Ansible's get_url takes sha256:URL of a list, too.
        is_named = checksum.startswith("sha")
        _leave_checksums(found, "since the checksum is a URL already", None, listed_at)
        listed_at = checksum.partition(":")[2] if is_named else checksum
        checksum = None
    if checksum:
        _leave_checksums(found, "since a checksum is given", None, listed_at)
        prefix = f"{algorithm}:" if algorithm and ":" not in checksum else ""
        image["checksum"] = prefix + checksum
    elif listed_at:
        image["checksums"] = listed_at
    else:
        image |= _checksums_of(url, found)
    return image


def _leave_checksums(found: Vars, why: str, checksum: str | None, listed_at: str | None) -> None:
    for name, value in (("checksum", checksum), ("checksum_url", listed_at)):
        if value:
            found.leave(name, value, why)


def _domain(value: Any) -> str | None:
    is_name = isinstance(value, str) and name_trouble(value, dots=True) is None
    return value if is_name else None


def _checksums_of(url: str, found: Vars) -> dict[str, str]:
    """The list of checksums that the publisher of an image is known to keep."""
    parts = urlsplit(url)
    path = PurePosixPath(parts.path)
    for host, name in _PUBLISHERS:
        if re.fullmatch(host, parts.hostname or ""):
            where = path.with_name(name.format(name=path.name))
            found.notes.append(f"image: checked by {where.name}, which its publisher keeps")
            return {"checksums": f"{parts.scheme}://{parts.netloc}{where}"}
    found.notes.append(
        "image: has no checksum; write it in the place of ${env:IMAGE_CHECKSUM}, as sha256:HEX"
    )
    return {"checksum": "${env:IMAGE_CHECKSUM}"}
