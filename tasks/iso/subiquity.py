"""Subiquity: Ubuntu Server reads ``user-data`` and ``meta-data`` from a volume cidata.

The answers are built as data and dumped, never templated. What autoinstall has no word for is
done by ``setup.sh``, which travels on the same volume: nothing secret becomes an argument.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from tasks.iso import apt
from tasks.iso.facts import Card, Facts
from tasks.iso.templating import render

_FETCH = (
    "mkdir -p /run/proxflow"
    " && mount -o ro /dev/disk/by-label/cidata /run/proxflow"
    " && install -m 0600 /run/proxflow/setup.sh /target/root/proxflow-setup.sh"
    " && umount /run/proxflow"
)
# The live system has an SSH server of its own, at the address that the installed one will have:
# whoever waits for that would take the one for the other. Its unit differs between releases.
_QUIET = "systemctl stop ssh.socket ssh.service || :"


def files(facts: Facts) -> dict[str, str]:
    """``user-data``, ``meta-data`` and ``setup.sh``."""
    instance = f"proxflow-{facts.env}-{facts.guest.label}-{facts.content[:12]}"
    return {
        "user-data": "#cloud-config\n" + dump({"autoinstall": _autoinstall(facts)}),
        "meta-data": dump({"instance-id": instance, "local-hostname": facts.hostname}),
        "setup.sh": render(
            "subiquity/setup.sh.j2",
            f=facts,
            sources=apt.sources(facts),
            keyrings=apt.keyrings(facts),
            chrony=bool(facts.ntp),
        ),
    }


def dump(data: dict[str, Any]) -> str:
    """YAML of plain data, long lines unbroken, keys in the order given."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 1_000_000
    yaml.allow_unicode = True
    stream = StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def _autoinstall(facts: Facts) -> dict[str, Any]:
    inst = facts.installation
    packages = ["sudo", *(["qemu-guest-agent"] if facts.guest.agent else [])]
    packages += [*(["chrony"] if facts.ntp else []), *(["ufw"] if inst.firewall else [])]
    config: dict[str, Any] = {
        "version": 1,
        "refresh-installer": {"update": False},
        "early-commands": [["sh", "-c", _QUIET]],
        "locale": inst.lang,
        "keyboard": {"layout": facts.layout, "variant": facts.variant},
        "timezone": inst.timezone,
        "network": {"version": 2, "ethernets": {c.slot: _ethernet(facts, c) for c in facts.cards}},
        "storage": {
            "layout": {
                "name": "lvm",
                "sizing-policy": "all",
                "match": {"serial": facts.disk.udev_serial},
            }
        },
        "ssh": {
            "install-server": True,
            "allow-pw": any(account.hash for account in (facts.root, *facts.users)),
        },
        "packages": list(dict.fromkeys([*packages, *facts.early_packages])),
        "updates": "all" if inst.update_system else "security",
        # The users are made by setup.sh; cloud-init must not make its own.
        "user-data": {
            "users": [],
            "disable_root": False,
            "preserve_hostname": True,
            "manage_etc_hosts": False,
        },
        "late-commands": [
            ["sh", "-c", _FETCH],
            ["curtin", "in-target", "--target=/target", "--", "sh", "/root/proxflow-setup.sh"],
            ["rm", "-f", "/target/root/proxflow-setup.sh"],
        ],
        "shutdown": "reboot",
    }
    if inst.install_url:
        config["apt"] = {"primary": [{"arches": ["default"], "uri": inst.install_url}]}
        config["apt"]["geoip"] = False
    return config


def _ethernet(facts: Facts, card: Card) -> dict[str, Any]:
    config: dict[str, Any] = {"match": {"macaddress": card.mac}}
    if card.name:
        config["set-name"] = card.name
    six = facts.installation.ipv6 and card.method != "none"
    config["dhcp4"] = card.method == "dhcp"
    config["dhcp6"] = card.method == "dhcp" and six
    if not six:
        config |= {"accept-ra": False, "link-local": []}
    elif card.v6:
        config["accept-ra"] = False
    if card.method == "none":
        config["optional"] = True
    if card.addresses:
        config["addresses"] = [str(address) for address in card.addresses]
    routes = [
        {"to": to, "via": str(via)}
        for to, via in (("0.0.0.0/0", card.gateway4), ("::/0", card.gateway6))
        if via
    ]
    if routes:
        config["routes"] = routes
    servers: dict[str, Any] = {}
    if card.dns:
        servers["addresses"] = [str(server) for server in card.dns]
    if card.search:
        servers["search"] = list(card.search)
    if servers:
        config["nameservers"] = servers
    return config
