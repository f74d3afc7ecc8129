"""Network configuration inside installer scripts: keyfiles, nmcli, ifupdown, link files.

Scripts write such files in many ways (here-documents, quoted arguments, printf); the lab looks for
the text of the file itself, wherever it stands.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise

_SECTION = re.compile(r"\[([A-Za-z0-9-]+)\]")
_PAIR = re.compile(r"([A-Za-z0-9_.-]+)\s*=\s*(.*)")
_IFACE = re.compile(r"iface\s+(\S+)\s+inet6?\s+(\w+)")


@dataclass
class CardText:
    """One card as a script configures it; ``addresses`` with prefix."""

    mac: str | None = None
    device: str | None = None
    addresses: list[str] = field(default_factory=list)
    dhcp: bool = False


def cards_in_script(script: str) -> list[CardText]:
    """All cards that a script configures."""
    plain = script.replace("\\\n", " ").replace("\\n", "\n")
    return [*_keyfiles(plain), *_nmcli(plain), *_ifupdown(plain)]


def _blocks(script: str, first: str) -> list[dict[str, dict[str, str]]]:
    """INI files that begin with section ``first``: section -> key -> value."""
    found: list[dict[str, dict[str, str]]] = []
    current: dict[str, dict[str, str]] | None = None
    section: dict[str, str] = {}
    for raw in script.splitlines():
        line = raw.strip()
        if line.endswith(f"[{first}]"):
            current, section = {}, {}
            found.append(current)
            current[first.lower()] = section
            continue
        if current is None:
            continue
        name = _SECTION.fullmatch(line)
        pair = _PAIR.fullmatch(line.rstrip("'\""))
        if name:
            section = current.setdefault(name.group(1).lower(), {})
        elif pair:
            section[pair.group(1).lower()] = pair.group(2)
        elif line:
            current = None
        if line.endswith(("'", '"')):
            current = None
    return found


def _keyfiles(script: str) -> list[CardText]:
    cards = []
    for block in _blocks(script, "connection"):
        card = CardText(
            block.get("ethernet", {}).get("mac-address"),
            block.get("connection", {}).get("interface-name"),
            dhcp=block.get("ipv4", {}).get("method") == "auto",
        )
        for name in ("ipv4", "ipv6"):
            for key, value in block.get(name, {}).items():
                if re.fullmatch(r"address(?:es)?\d*", key):
                    words = [word for word in re.split(r"[;,\s]", value) if "/" in word]
                    card.addresses += words[:1] if key[-1].isdigit() else words
        if card.mac or card.device:
            cards.append(card)
    return cards


def _nmcli(script: str) -> list[CardText]:
    cards = []
    for line in script.splitlines():
        if "nmcli" not in line or "ipv4." not in line:
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        pairs = dict(pairwise(words))
        card = CardText(
            pairs.get("802-3-ethernet.mac-address") or pairs.get("mac"),
            pairs.get("ifname") or pairs.get("connection.interface-name"),
            [word for word in re.split(r"[,\s]", pairs.get("ipv4.addresses", "")) if word],
            pairs.get("ipv4.method") == "auto",
        )
        if card.mac or card.device:
            cards.append(card)
    return cards


def _ifupdown(script: str) -> list[CardText]:
    macs = {
        block["link"]["name"]: block["match"]["macaddress"]
        for block in _blocks(script, "Match")
        if "macaddress" in block["match"] and "name" in block.get("link", {})
    }
    cards: dict[str, CardText] = {}
    current: CardText | None = None
    mask = ""
    for raw in script.splitlines():
        line = raw.strip().strip("'\"")
        stanza = _IFACE.search(line)
        words = line.split()
        if stanza and stanza.group(1) != "lo":
            name = stanza.group(1)
            current = cards.setdefault(name, CardText(macs.get(name), name))
            current.dhcp = current.dhcp or stanza.group(2) == "dhcp"
        elif words[:1] == ["address"] and current is not None and len(words) == 2:
            current.addresses.append(words[1])
        elif words[:1] == ["netmask"] and current is not None and len(words) == 2:
            mask = words[1]
            if current.addresses and "/" not in current.addresses[-1]:
                current.addresses[-1] += f"/{mask}"
        elif line and not re.match(
            r"gateway|dns-|mtu|broadcast|network|hwaddress|auto|allow-", line
        ):
            current = None
    return list(cards.values())
