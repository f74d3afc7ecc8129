"""Anaconda: Oracle Linux, RHEL, Rocky, Alma and Fedora read ``ks.cfg`` from a volume OEMDRV."""

from __future__ import annotations

import uuid

from tasks.iso import checks
from tasks.iso.checks import RenderError
from tasks.iso.facts import Card, Facts
from tasks.iso.templating import render

# Any fixed namespace will do; it only has to stay the same.
_NAMESPACE = uuid.UUID("7f0f5e0e-6a4b-4a0e-9f0d-5b9b6c1f7d21")


def files(facts: Facts) -> dict[str, str]:
    """``ks.cfg``. Raises RenderError where a repository says what dnf does not know."""
    for index, repo in enumerate(facts.repositories):
        field = "baseurl" if repo.baseurl is not None else "mirrorlist"
        # $releasever and $basearch are dnf's and stay as they are.
        checks.url(
            f"installation.repositories[{index}].{field}",
            getattr(repo, field),
            ("http", "https", "ftp"),
        )
    text = render(
        "anaconda/ks.cfg.j2",
        f=facts,
        el8=facts.distro.ksversion == "RHEL8",
        fedora=facts.distro.name == "fedora",
        profiles={card.slot: _keyfile(facts, card) for card in facts.cards},
        links={card.name: card.mac for card in facts.cards if card.name},
        card=facts.install_card,
        keyboard=_keyboard(facts),
    )
    _no_section_ends_early(text)
    return {"ks.cfg": text}


def _keyboard(facts: Facts) -> str:
    return f"{facts.layout} ({facts.variant})" if facts.variant else ""


def _no_section_ends_early(text: str) -> None:
    for line in text.splitlines():
        word = line.split(maxsplit=1)[0] if line.split() else ""
        if word.startswith("%") and word not in {"%packages", "%post", "%end"}:
            raise RenderError("installation", f"a value makes a line that begins with {word!r}")


def _keyfile(facts: Facts, card: Card) -> str:
    """A NetworkManager profile, the only format that EL9 and later read.

    Bound to the MAC address alone, so that it holds whatever the kernel names the card.
    """
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
