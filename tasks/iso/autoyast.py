"""AutoYaST: SLES and openSUSE Leap 15 read ``autoinst.xml`` from a volume OEMDRV."""

from __future__ import annotations

from tasks.iso import checks, zypp
from tasks.iso.checks import RenderError
from tasks.iso.facts import Card, Facts
from tasks.iso.templating import render

# YaST has names of its own for keyboards; by xkb layout and variant.
_KEYMAPS = {
    ("us", ""): "english-us",
    ("gb", ""): "english-uk",
    ("uk", ""): "english-uk",
    ("de", ""): "german",
    ("de", "deadkeys"): "german-deadkey",
    ("ch", ""): "german-ch",
    ("ch", "fr"): "french-ch",
    ("fr", ""): "french",
    ("be", ""): "belgian",
    ("nl", ""): "dutch",
    ("es", ""): "spanish",
    ("it", ""): "italian",
    ("pt", ""): "portugese",
    ("br", ""): "portugese-br",
    ("se", ""): "swedish",
    ("no", ""): "norwegian",
    ("dk", ""): "danish",
    ("fi", ""): "finnish",
    ("pl", ""): "polish",
    ("cz", ""): "czech",
    ("hu", ""): "hungarian",
    ("ru", ""): "russian",
    ("tr", ""): "turkish",
    ("jp", ""): "japanese",
    ("ca", ""): "french-ca",
}


def files(facts: Facts) -> dict[str, str]:
    """``autoinst.xml``. Raises RenderError for what YaST has no word for."""
    keymap = _KEYMAPS.get((facts.layout, facts.variant))
    if keymap is None:
        known = ", ".join(sorted({layout for layout, _ in _KEYMAPS}))
        raise RenderError("installation.keyboard", f"YaST is taught these layouts only: {known}")
    base = ["openssh", "sudo", "grub2", "lvm2", "xfsprogs"]
    base += ["grub2-x86_64-efi", "shim"] if facts.uefi else ["grub2-i386-pc"]
    base += ["qemu-guest-agent"] if facts.guest.agent else []
    base += ["chrony"] if facts.ntp else []
    base += ["firewalld"] if facts.installation.firewall else []
    wanted, patterns = zypp.told_apart(facts.early_packages)
    cards = [(card.name or f"eth{index}", card) for index, card in enumerate(facts.cards)]
    return {
        "autoinst.xml": render(
            "autoyast/autoinst.xml.j2",
            f=facts,
            linuxrc=_linuxrc(facts),
            sles=facts.distro.name.startswith("sles"),
            keymap=keymap,
            language=checks.utf8_lang("installation.lang", facts.installation.lang, "YaST"),
            cards=cards,
            packages=list(dict.fromkeys([*base, *wanted])),
            patterns=list(dict.fromkeys(["base", *patterns])),
            setup=render("autoyast/setup.sh.j2", f=facts, cards=cards),
            done=_done(facts),
        )
    }


def _done(facts: Facts) -> str:
    packages, patterns = zypp.told_apart(facts.late_packages)
    return render(
        "autoyast/done.sh.j2",
        f=facts,
        packages=packages,
        patterns=patterns,
        repositories=zypp.repositories(facts),
    )


def _linuxrc(facts: Facts) -> list[str]:
    """What linuxrc, which runs before YaST, reads from the seed.

    With a source on the network it gets the card to reach it by. Left alone it would ask DHCP over
    one card after the other.
    """
    inst, card = facts.installation, facts.install_card
    lines = ["textmode: 1"] if inst.mode == "text" else []
    if inst.install_url and card is not None:
        lines += [f"netdevice: {card.mac}", f"ifcfg: {card.mac}={_ifcfg(card, inst.ipv6)}"]
        lines.append(f"install: {inst.install_url}")
    return lines


def _ifcfg(card: Card, ipv6: bool) -> str:
    """``dhcp``, or ``ADDRESSES,GATEWAYS,SERVERS,DOMAIN``: blanks between several of one kind.

    linuxrc reads lines of up to 1023 bytes, so it gets no more of each than it can use.
    """
    if card.method == "dhcp":
        return "dhcp" if ipv6 else "dhcp4"
    addresses = (*card.v4[:1], *card.v6[:1])
    gateways = (gateway for gateway in (card.gateway4, card.gateway6) if gateway)
    parts = (addresses, gateways, card.dns[:3], card.search[:1])
    return ",".join(" ".join(str(each) for each in part) for part in parts)
