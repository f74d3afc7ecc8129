"""Agama: SLES and openSUSE Leap 16 read ``autoinst.json`` from a volume OEMDRV.

The answers are built as data and dumped, never templated. What Agama has no word for is done by
two scripts inside the same file: one in the installed system before it restarts, one in its first
boot. Hashes of passwords are in the first one only, which the second one deletes.
"""

from __future__ import annotations

import json
from typing import Any

from tasks.iso import checks, zypp
from tasks.iso.checks import RenderError
from tasks.iso.facts import Card, Facts
from tasks.iso.keyfiles import keyfiles
from tasks.iso.keymaps import KEYMAPS
from tasks.iso.templating import render

# As the products of the install media call themselves; Leap changed its name in between.
_PRODUCTS = {"sles16": "SLES", "leap16": "Leap_16.0", "leap161": "openSUSE_Leap"}


def files(facts: Facts) -> dict[str, str]:
    """``autoinst.json``. Raises RenderError for what would make Agama drop all of its answers."""
    return {"autoinst.json": json.dumps(_profile(facts), indent=2, ensure_ascii=False) + "\n"}


def _profile(facts: Facts) -> dict[str, Any]:
    inst = facts.installation
    card = facts.install_card
    return {
        "questions": {"policy": "auto"},
        "product": {"id": _PRODUCTS[facts.distro.name]},
        "localization": {
            "language": f"{checks.utf8_lang('installation.lang', inst.lang, 'Agama')}.UTF-8",
            "keyboard": _keyboard(facts),
            "timezone": inst.timezone,
        },
        "hostname": {"static": facts.hostname},
        # Without a password, a key or a user Agama does not begin; the script sets the real ones.
        "root": {"password": "!", "hashedPassword": True},
        **({"network": {"connections": [_connection(facts, card)]}} if card else {}),
        "software": _software(facts),
        "storage": _storage(facts),
        **({"bootloader": {"extraKernelParams": facts.kernel_args}} if facts.kernel_args else {}),
        "scripts": {
            "post": [{"name": "proxflow-setup.sh", "chroot": True, "content": _setup(facts)}],
            "init": [
                {"name": "proxflow-done.sh", "content": _done(facts)},
            ],
        },
    }


def _keyboard(facts: Facts) -> str:
    name = f"{facts.layout}-{facts.variant}" if facts.variant else facts.layout
    if name not in KEYMAPS:
        near = sorted(known for known in KEYMAPS if known.partition("-")[0] == facts.layout)
        some = f"of this layout it knows {', '.join(near[:12])}" if near else "such as us or de"
        raise RenderError("installation.keyboard", f"Agama knows no keyboard {name!r}; {some}")
    return name


def _connection(facts: Facts, card: Card) -> dict[str, Any]:
    """The network of the installer itself; the installed system gets keyfiles for every card."""
    six = facts.installation.ipv6
    auto = card.method == "dhcp"
    connection: dict[str, Any] = {
        "id": f"proxflow-{card.slot}",
        "macAddress": card.mac.upper(),
        "method4": "auto" if auto else "manual" if card.v4 else "disabled",
        "method6": "disabled" if not six else "manual" if card.v6 else "auto",
    }
    if card.addresses:
        connection["addresses"] = [str(address) for address in card.addresses]
    if card.gateway4:
        connection["gateway4"] = str(card.gateway4)
    if card.gateway6:
        connection["gateway6"] = str(card.gateway6)
    if card.dns:
        connection["nameservers"] = [str(server) for server in card.dns]
    if card.search:
        connection["dnsSearchlist"] = list(card.search)
    return connection


def _software(facts: Facts) -> dict[str, Any]:
    inst = facts.installation
    base = ["openssh", "sudo", "xfsprogs", "lvm2"]
    base += ["qemu-guest-agent"] if facts.guest.agent else []
    base += ["chrony"] if facts.ntp else []
    base += ["firewalld"] if inst.firewall else []
    wanted, patterns = zypp.told_apart(facts.early_packages)
    patterns += ["selinux"] if inst.selinux in {"enforcing", "permissive"} else []
    software: dict[str, Any] = {"packages": list(dict.fromkeys([*base, *wanted]))}
    if patterns:
        # Added to those of the product; a bare list would take their place, SELinux among them.
        software["patterns"] = {"add": list(dict.fromkeys(patterns))}
    if inst.install_url:
        software["extraRepositories"] = [{"alias": "proxflow-install", "url": inst.install_url}]
    return software


def _storage(facts: Facts) -> dict[str, Any]:
    """One volume group on the root disk; drives that are not named keep what they hold."""
    return {
        "boot": {"configure": True, "device": "root-disk"},
        "drives": [
            {
                "search": {"condition": {"name": facts.disk.path}, "ifNotFound": "error"},
                "alias": "root-disk",
                "ptableType": "gpt",
                "partitions": [
                    {"search": "*", "delete": True},
                    {"alias": "root-pv", "id": "lvm", "size": {"min": "8 GiB"}},
                ],
            }
        ],
        "volumeGroups": [
            {
                "name": facts.volume_group,
                "physicalVolumes": ["root-pv"],
                "logicalVolumes": [
                    {
                        "name": "swap",
                        "size": "2 GiB",
                        "filesystem": {"type": "swap", "path": "swap"},
                    },
                    {
                        "name": "root",
                        "size": {"min": "5 GiB"},
                        "filesystem": {"type": "xfs", "path": "/"},
                    },
                ],
            }
        ],
    }


def _done(facts: Facts) -> str:
    packages, patterns = zypp.told_apart(facts.late_packages)
    return render("agama/done.sh.j2", f=facts, packages=packages, patterns=patterns)


def _setup(facts: Facts) -> str:
    return render(
        "agama/setup.sh.j2",
        f=facts,
        profiles=keyfiles(facts),
        links={card.name: card.mac for card in facts.cards if card.name},
        repositories=zypp.repositories(facts),
    )
