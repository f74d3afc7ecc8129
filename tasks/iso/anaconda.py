"""Anaconda: Oracle Linux, RHEL, Rocky, Alma and Fedora read ``ks.cfg`` from a volume OEMDRV."""

from __future__ import annotations

from tasks.iso import checks
from tasks.iso.checks import RenderError
from tasks.iso.facts import Facts
from tasks.iso.keyfiles import keyfiles
from tasks.iso.templating import render


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
        profiles=keyfiles(facts),
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
