"""NetworkManager's keyfiles, the only format that EL9, SLES 16 and what follows them read."""

from __future__ import annotations

import uuid

from tasks.iso.facts import Card, Facts

# Any fixed namespace will do; it only has to stay the same.
_NAMESPACE = uuid.UUID("7f0f5e0e-6a4b-4a0e-9f0d-5b9b6c1f7d21")


def keyfiles(facts: Facts) -> dict[str, str]:
    """A profile for each card, by slot.

    Bound to the MAC address alone, so that it holds whatever the kernel names the card.
    """
    return {card.slot: _keyfile(facts, card) for card in facts.cards}


def _keyfile(facts: Facts, card: Card) -> str:
    ident = card.name or card.slot
    lines = [
        "[connection]",
        f"id={ident}",
        f"uuid={uuid.uuid5(_NAMESPACE, f'{facts.env}/{facts.guest.label}/{card.slot}')}",
        "type=ethernet",
        "autoconnect=true",
        "",
        "[ethernet]",
        f"mac-address={card.mac.upper()}",
        "",
        "[ipv4]",
        *_addresses(card, 4),
        "",
        "[ipv6]",
        *(_addresses(card, 6) if facts.installation.ipv6 else ["method=disabled"]),
    ]
    return "\n".join(lines)


def _addresses(card: Card, version: int) -> list[str]:
    addresses = card.v4 if version == 4 else card.v6
    gateway = card.gateway4 if version == 4 else card.gateway6
    servers = card.dns4 if version == 4 else card.dns6
    if card.method == "none":
        return ["method=disabled"]
    if addresses:
        method = "manual"
    elif card.method == "dhcp" or version == 6:
        method = "auto"
    else:
        method = "disabled"
    lines = [f"method={method}"]
    lines.extend(f"address{index}={address}" for index, address in enumerate(addresses, start=1))
    if gateway is not None:
        lines.append(f"gateway={gateway}")
    if servers:
        lines.append(f"dns={''.join(f'{server};' for server in servers)}")
    if card.search and method != "disabled":
        lines.append(f"dns-search={''.join(f'{name};' for name in card.search)}")
    return lines
