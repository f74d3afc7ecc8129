"""Debian's installer reads ``preseed.cfg``; the remastered ISO fetches it from the seed volume."""

from __future__ import annotations

from ipaddress import IPv4Interface, IPv6Interface
from urllib.parse import urlsplit

from tasks.iso import apt
from tasks.iso.checks import RenderError
from tasks.iso.facts import Facts
from tasks.iso.templating import render


def files(facts: Facts) -> dict[str, str]:
    """``preseed.cfg`` and ``setup.sh``. Raises RenderError for a mirror that d-i cannot use."""
    scheme, host, directory = _mirror(facts.installation.install_url)
    card = facts.install_card
    address: IPv4Interface | IPv6Interface | None = (
        card.addresses[0] if card and card.addresses else None
    )
    gateway = card and (card.gateway4 if isinstance(address, IPv4Interface) else card.gateway6)
    base = ["openssh-server", "sudo"]
    base += ["qemu-guest-agent"] if facts.guest.agent else []
    base += ["chrony"] if facts.ntp else []
    base += ["ufw"] if facts.installation.firewall else []
    packages = list(dict.fromkeys([*base, *facts.early_packages]))
    return {
        "preseed.cfg": render(
            "debian/preseed.cfg.j2",
            f=facts,
            card=card,
            address=address,
            gateway=gateway,
            packages=packages,
            scheme=scheme,
            host=host,
            directory=directory,
        ),
        "setup.sh": render(
            "debian/setup.sh.j2",
            f=facts,
            cards=[(card.name or card.slot, card) for card in facts.cards],
            links={card.name or card.slot: card.mac for card in facts.cards},
            sources=apt.sources(facts),
            keyrings=apt.keyrings(facts),
        ),
    }


def _mirror(url: str | None) -> tuple[str, str, str]:
    if url is None:
        return "http", "ftp.debian.org", "/debian"
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or parts.query or parts.username:
        raise RenderError(
            "installation.install_url", "Debian's installer takes http(s)://HOST[:PORT]/DIRECTORY"
        )
    return parts.scheme, parts.netloc, parts.path.rstrip("/") or "/"
