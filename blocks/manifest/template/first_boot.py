"""Addresses and cloud-init of a template and its clones, as the one model has them."""

from __future__ import annotations

from ipaddress import ip_interface
from typing import Literal

from blocks.manifest.guest import Address, CloudInit, Inet, SnippetHost
from blocks.manifest.template.cloudinit import CloudInitSpec, IpSpec
from blocks.manifest.template.document import Template
from blocks.manifest.template.hardware import NicSpec
from blocks.manifest.template.told import BEYOND_FIELDS


def inets_of(told: CloudInitSpec, entries: tuple[IpSpec, ...]) -> tuple[Inet, ...]:
    """What each card is told. A common gateway goes to the first static address without one."""
    common = {4: told.gateway, 6: told.gateway6}
    if any(entry.gateway is not None for entry in entries):
        common[4] = None
    if any(entry.gateway6 is not None for entry in entries):
        common[6] = None
    found: list[Inet] = []
    for entry in entries:
        four = _static(entry.address)
        six = _static(entry.address6)
        gateway, gateway6 = entry.gateway, entry.gateway6
        if four is not None and gateway is None:
            gateway, common[4] = common[4], None
        if six is not None and gateway6 is None:
            gateway6, common[6] = common[6], None
        method = "dhcp" if entry.address == "dhcp" else "none"
        if four is not None or (six is not None and method == "none"):
            method = "static"
        found.append(
            Inet.model_validate(
                {
                    "method": method,
                    "addresses": [each for each in (four, six) if each is not None],
                    "gateway": gateway if four is not None else None,
                    "gateway6": gateway6 if six is not None else None,
                    "ipv6": entry.address6 if entry.address6 in ("auto", "dhcp") else "static",
                }
            )
        )
    return tuple(found)


def _static(text: str | None) -> Address | None:
    return ip_interface(text) if text is not None and "/" in text else None


def cloud_init_of(
    document: Template,
    told: CloudInitSpec,
    nics: tuple[NicSpec, ...],
    name: str,
    machine: str,
    disk_storage: str | None = None,
    *,
    agent: bool,
) -> CloudInit:
    """What cloud-init is told in the guest of that name with those cards.

    ``machine``: its type, on which the drive's slot depends. ``disk_storage``: of the guest's
    disks, where it is another one than the template's. ``agent``: whether the guest agent is to be
    installed.
    """
    spec = document.spec
    method = told.method or _method(told, nics, agent=agent)
    host, _, own_domain = name.partition(".")
    on_image = method == "seed"
    # The storage of the clones' seeds may take no drive, and that of a drive seldom takes an ISO.
    theirs = told.method is None and spec.agent and not agent and bool(spec.clones)
    return CloudInit(
        method=method,
        storage=(None if theirs and not on_image else told.storage)
        or (spec.image.storage if on_image else disk_storage or spec.disk.storage),
        slot=told.slot or drive_slot(machine),
        snippet_storage=(told.snippets.storage or spec.image.storage)
        if method == "snippets"
        else None,
        snippet_host=SnippetHost(
            host=told.snippets.host,
            user=told.snippets.user,
            port=told.snippets.port,
            directory=told.snippets.directory,
        ),
        hostname=host,
        domain=own_domain or document.metadata.domain,
        user=told.user,
        ssh_keys=tuple(dict.fromkeys(told.ssh_keys)),
        password_hash=told.password_hash,
        password=told.password,
        sudo_nopasswd=told.sudo,
        dns=told.dns,
        search=told.search or ((document.metadata.domain,) if document.metadata.domain else ()),
        timezone=told.timezone,
        locale=told.locale,
        upgrade=told.upgrade,
        packages=told.packages,
        commands=told.commands,
        user_data=told.user_data,
        vendor_data=told.vendor_data,
        network_config=told.network_config,
    )


def drive_slot(machine: str) -> str:
    """Where the drive is, where the manifest does not say.

    The IDE slots of q35 are SATA ports, for which the kernels of some cloud images have no driver
    (Debian 12's cloud kernel); all of them have one for VirtIO SCSI.
    """
    return "scsi30" if "q35" in machine else "ide2"


def _method(
    told: CloudInitSpec, nics: tuple[NicSpec, ...], *, agent: bool
) -> Literal["fields", "seed"]:
    """Fields, unless they have no word for what is asked for.

    They have none for the guest agent, which many published images lack (Debian's, Ubuntu's).
    """
    more = any(getattr(told, key) for key in BEYOND_FIELDS)
    named = any(nic.name is not None for nic in nics)
    return "seed" if agent or more or named or not told.sudo else "fields"
