"""Whatever addresses a card may have, they come back out of what its network stack reads."""

from __future__ import annotations

import configparser
from collections.abc import Callable
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from blocks.manifest.guest import Guest, Inet, Nic
from tasks.iso.render import Rendered, render

from .guests import plain
from .reading import NS, autoinstall, profile, put_files

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03")
Found = dict[str, tuple[set[str], set[str]]]


@st.composite
def static(draw: st.DrawFn, number: int) -> Inet:
    """One to three addresses of a network of the card's own, with or without gateways."""
    four = IPv4Network(f"10.{number}.0.0/16")
    six = IPv6Network(f"fd00:0:0:{number + 1}::/64")
    hosts = draw(st.lists(st.integers(2, 60_000), min_size=1, max_size=3, unique=True))
    addresses = [
        IPv6Interface((six[host], 64)) if draw(st.booleans()) else IPv4Interface((four[host], 16))
        for host in hosts
    ]
    network = draw(st.sampled_from([None, *(address.network for address in addresses)]))
    return Inet(
        method="static",
        addresses=tuple(addresses),
        gateway=None if network is None else network[1],
    )


@st.composite
def guests(draw: st.DrawFn, distro: str) -> Guest:
    nics = []
    for number, mac in enumerate(MACS[: draw(st.integers(1, 3))]):
        inet = draw(
            st.one_of(static(number), st.sampled_from([Inet(), Inet(method="none")])),
        )
        name = draw(st.sampled_from([None, f"lan{number}"]))
        nics.append(Nic(slot=f"net{number}", bridge="vmbr0", mac=mac, inet=inet, name=name))
    return plain(distro, nics=tuple(nics))


def keyfiles(rendered: Rendered) -> Found:
    found: Found = {}
    for path, (_, text) in put_files(rendered).items():
        if path.endswith(".nmconnection"):
            parser = configparser.ConfigParser()
            parser.read_string(text)
            parts = [parser["ipv4"], parser["ipv6"]]
            addresses = {v for part in parts for k, v in part.items() if k.startswith("address")}
            gateways = {part["gateway"] for part in parts if "gateway" in part}
            found[parser["ethernet"]["mac-address"].lower()] = (addresses, gateways)
    return found


def netplan(rendered: Rendered) -> Found:
    cards = autoinstall(rendered)["network"]["ethernets"].values()
    return {
        card["match"]["macaddress"]: (
            set(card.get("addresses", ())),
            {route["via"] for route in card.get("routes", ())},
        )
        for card in cards
    }


def ifupdown(rendered: Rendered) -> Found:
    files = put_files(rendered)
    macs = {}
    for path, (_, text) in files.items():
        if path.endswith(".link"):
            pairs = dict(line.split("=") for line in text.splitlines() if "=" in line)
            macs[pairs["Name"]] = pairs["MACAddress"]
    found: Found = {mac: (set(), set()) for mac in macs.values()}
    card = ""
    for line in files["/etc/network/interfaces"][1].splitlines():
        word, *rest = line.split() or [""]
        card = macs.get(rest[0], "") if word == "iface" else card
        if word in {"address", "gateway"}:
            found[card][word == "gateway"].add(rest[0])
    return found


def wicked(rendered: Rendered) -> Found:
    network = profile(rendered).find("y:networking", NS)
    assert network is not None
    found: Found = {}
    for rule in network.findall("y:net-udev/y:rule", NS):
        name, mac = (rule.findtext(f"y:{key}", "", NS) for key in ("name", "value"))
        found[mac] = addresses, gateways = set(), set()
        for card in network.findall("y:interfaces/y:interface", NS):
            if card.findtext("y:device", "", NS) == name and card.find("y:ipaddr", NS) is not None:
                parts = [("y:ipaddr", "y:prefixlen", card)]
                parts += [
                    ("y:IPADDR", "y:PREFIXLEN", one) for one in card.findall("y:aliases/*", NS)
                ]
                addresses |= {
                    f"{one.findtext(ip, '', NS)}/{one.findtext(prefix, '', NS)}"
                    for ip, prefix, one in parts
                }
        for route in network.findall("y:routing/y:routes/y:route", NS):
            if route.findtext("y:device", "", NS) == name:
                gateways.add(route.findtext("y:gateway", "", NS))
    return found


@pytest.mark.parametrize(
    ("distro", "read"),
    [
        ("rocky8", keyfiles),
        ("fedora", keyfiles),
        ("ubuntu2204", netplan),
        ("ubuntu2604", netplan),
        ("debian12", ifupdown),
        ("debian13", ifupdown),
        ("sles15", wicked),
    ],
)
@settings(phases=(Phase.explicit, Phase.generate), max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_card_gets_its_addresses_and_gateway_by_its_mac(
    distro: str, read: Callable[[Rendered], Found], data: st.DataObject
) -> None:
    guest = data.draw(guests(distro))

    found = read(render(guest, env="prod"))

    assert found == {
        nic.mac: (
            {str(address) for address in nic.inet.addresses},
            {str(nic.inet.gateway)} if nic.inet.gateway else set(),
        )
        for nic in guest.nics
    }
