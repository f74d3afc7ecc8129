"""Guests with cloud-init, without a cluster."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface
from typing import Any

from pydantic import SecretStr

from blocks.manifest.guest import CloneSource, CloudInit, Guest, Inet, Nic
from tests.environments import KEY

HASH = "$6$abcdefgh$" + "a" * 86
ENV = "golden"


def cloud_init(**told: Any) -> CloudInit:
    """A user ``ops`` with a key, by a seed ISO."""
    usual = {
        "method": "seed",
        "storage": "local",
        "hostname": "web1",
        "user": "ops",
        "ssh_keys": (KEY,),
    }
    return CloudInit(**{**usual, **told})


def guest(*nics: Nic, **told: Any) -> Guest:
    """A clone called web1 with these cards."""
    return Guest(
        label="web1",
        node="pve1",
        vmid=901,
        name="web1",
        nics=nics,
        source=CloneSource(template="template"),
        cloud_init=cloud_init(**told),
    )


def nic(number: int = 0, inet: Inet | None = None, **changes: Any) -> Nic:
    """A card whose MAC address ends with its number."""
    usual = {"slot": f"net{number}", "bridge": "vmbr0", "mac": f"BC:24:11:00:00:{number:02X}"}
    return Nic(**{**usual, "inet": inet or Inet(), **changes})


def static(*addresses: str, gateway: str | None = None, **more: Any) -> Inet:
    """Fixed addresses."""
    return Inet(
        method="static",
        addresses=tuple(map(ip_interface, addresses)),
        gateway=ip_address(gateway) if gateway else None,
        **more,
    )


DUAL = static(
    "192.0.2.10/24",
    "2001:db8::10/64",
    gateway="192.0.2.1",
    gateway6=ip_address("2001:db8::1"),
    dns=(ip_address("192.0.2.53"),),
)
STRANGE = "yes # 'é' \"名\" \\ \U0001f600: {x}\n- no"

MATRIX: dict[str, Guest] = {
    "no card": guest(),
    "DHCP": guest(nic()),
    "two addresses of one family": guest(
        nic(inet=static("192.0.2.10/24", "192.0.2.11/24", gateway="192.0.2.1"))
    ),
    "three cards, dual stack": guest(
        nic(0, DUAL),
        nic(1, Inet(ipv6="auto"), name="stor0", mtu=9000),
        nic(2, Inet(method="none")),
        domain="corp.example",
        dns=(ip_address("1.1.1.1"), ip_address("2606:4700:4700::1111")),
        search=("b.example",),
    ),
    "IPv6 alone": guest(nic(inet=static("2001:db8::10/64", gateway="2001:db8::1"))),
    "DHCPv6": guest(nic(inet=Inet(method="none", ipv6="dhcp"))),
    "the image's own user": guest(nic(), user=None, password_hash=SecretStr(HASH)),
    "root": guest(nic(), user="root", password=SecretStr("p'ä\"ss: word #1")),
    "no user at all": guest(nic(), user=None, ssh_keys=()),
    "everything": guest(
        nic(0, DUAL),
        domain="corp.example",
        password_hash=SecretStr(HASH),
        sudo_nopasswd=False,
        timezone="America/Argentina/Buenos_Aires",
        locale="de_DE.UTF-8",
        upgrade=True,
        packages=("vim", "no"),
        commands=(STRANGE, "0123", "true"),
    ),
}
