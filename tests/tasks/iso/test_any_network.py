"""Whatever addresses and name servers cards have, their network stacks are told of each."""

from __future__ import annotations

import configparser
from collections.abc import Callable
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from blocks.manifest.guest import Guest, Inet, Nic
from tasks.iso.render import Rendered, RenderError, render

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
        ("sles16", keyfiles),
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


SERVERS = ("10.9.9.1", "10.9.9.2", "fd00:9::1", "fd00:9::2")


@st.composite
def guests_with_servers(draw: st.DrawFn, distro: str) -> Guest:
    """Cards that have addresses name servers of either protocol, some the same ones."""
    guest = draw(guests(distro))
    nics = []
    for nic in guest.nics:
        dns = draw(st.lists(st.sampled_from(SERVERS), max_size=3, unique=True))
        inet = nic.inet.model_dump() | {"dns": () if nic.inet.method == "none" else tuple(dns)}
        nics.append(nic.model_copy(update={"inet": Inet.model_validate(inet)}))
    return guest.model_copy(update={"nics": tuple(nics)})


Asked = list[tuple[str, str]]
"""Name servers in order, each with the MAC address of the card that it is asked over, or none."""


def keyfile_servers(rendered: Rendered) -> Asked:
    found: Asked = []
    for path, (_, text) in put_files(rendered).items():
        if path.endswith(".nmconnection"):
            parser = configparser.ConfigParser()
            parser.read_string(text)
            mac = parser["ethernet"]["mac-address"].lower()
            for section, form in (("ipv4", IPv4Address), ("ipv6", IPv6Address)):
                part = parser[section]
                servers = [str(form(text)) for text in part.get("dns", "").split(";") if text]
                # NetworkManager refuses a profile that has both.
                assert part["method"] != "disabled" or not servers
                found += [(mac, server) for server in servers]
    return found


def netplan_servers(rendered: Rendered) -> Asked:
    return [
        (card["match"]["macaddress"], server)
        for card in autoinstall(rendered)["network"]["ethernets"].values()
        for server in card.get("nameservers", {}).get("addresses", ())
    ]


def resolver_servers(rendered: Rendered) -> Asked:
    _, text = put_files(rendered).get("/etc/resolv.conf", ("", ""))
    lines = [line.split() for line in text.splitlines()]
    return [("", words[1]) for words in lines if words[0] == "nameserver"]


def profile_servers(rendered: Rendered) -> Asked:
    found = profile(rendered).findall("y:networking/y:dns/y:nameservers/y:nameserver", NS)
    return [("", server.text or "") for server in found]


def has_ipv4(nic: Nic) -> bool:
    return nic.inet.method == "dhcp" or any(a.version == 4 for a in nic.inet.addresses)


@pytest.mark.parametrize(
    ("distro", "read"),
    [
        ("rocky8", keyfile_servers),
        ("fedora", keyfile_servers),
        ("ubuntu2204", netplan_servers),
        ("ubuntu2604", netplan_servers),
        ("debian12", resolver_servers),
        ("debian13", resolver_servers),
        ("sles15", profile_servers),
        ("sles16", keyfile_servers),
    ],
)
@settings(phases=(Phase.explicit, Phase.generate), max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_name_server_is_asked_over_a_card_that_reaches_it_or_is_refused(
    distro: str, read: Callable[[Rendered], Asked], data: st.DataObject
) -> None:
    guest = data.draw(guests_with_servers(distro))
    declared = [(nic, server) for nic in guest.nics for server in nic.inet.dns]
    over_ipv4 = {str(nic.mac) for nic in guest.nics if has_ipv4(nic)}
    stranded = next(((nic, s) for nic, s in declared if s.version == 4 and not over_ipv4), None)

    if stranded is not None:
        with pytest.raises(RenderError) as refused:
            render(guest, env="prod")
        nic, server = stranded
        assert refused.value.key == f"nics[{nic.slot}].inet.dns[{nic.inet.dns.index(server)}]"
        return
    found = read(render(guest, env="prod"))

    assert {server for _, server in found} == {str(server) for _, server in declared}
    assert all(mac in over_ipv4 for mac, server in found if mac and ":" not in server)
