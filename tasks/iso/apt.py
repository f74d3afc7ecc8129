"""Package repositories as apt writes them, for Debian and Ubuntu."""

from __future__ import annotations

import re

from blocks.manifest.guest import Repository
from tasks.iso import checks
from tasks.iso.checks import RenderError
from tasks.iso.facts import Facts

_SOURCE = re.compile(
    r"(?P<options>\[[A-Za-z0-9 =,./:_+-]+\] )?(?P<uri>\S+) (?P<suite>[A-Za-z0-9./_~+-]+)"
    r"(?P<components>(?: [A-Za-z0-9./_~+-]+)*)"
)


def keyring(repo: Repository) -> str:
    """Where the key of a repository is put, if it has one of its own."""
    return f"/etc/apt/keyrings/proxflow-{repo.name}.asc"


def keyrings(facts: Facts) -> dict[str, str]:
    """Where keys are put, and the URLs that they come from."""
    return {keyring(repo): repo.gpg_key for repo in facts.repositories if repo.gpg_key}


def sources(facts: Facts) -> dict[str, str]:
    """File names below /etc/apt/sources.list.d, and the line that each holds.

    ``baseurl`` holds what apt has no other place for: ``URI SUITE [COMPONENT ...]``, with options
    in front if needed, or a bare URI, which is taken as a flat repository. A ``mirrorlist`` has
    the same form and becomes apt's mirror method. Raises RenderError.
    """
    lines: dict[str, str] = {}
    for index, repo in enumerate(facts.repositories):
        key = f"installation.repositories[{index}]"
        if repo.cost is not None:
            raise RenderError(f"{key}.cost", "apt has no cost; only the RHEL family does")
        field = "baseurl" if repo.baseurl is not None else "mirrorlist"
        text = checks.line(f"{key}.{field}", repo.baseurl or repo.mirrorlist or "")
        found = _SOURCE.fullmatch(text if " " in text else f"{text} ./")
        if found is None:
            raise RenderError(
                f"{key}.{field}", "is not of the form: URI SUITE COMPONENT, as in sources.list"
            )
        suite, components = found["suite"], found["components"].strip()
        if suite.endswith("/") == bool(components):
            raise RenderError(
                f"{key}.{field}",
                "a suite needs a component; a flat repository ends in / and has none",
            )
        checks.url(f"{key}.{field}", found["uri"])
        mirror = "mirror+" if field == "mirrorlist" else ""
        options = found["options"] or ""
        if repo.gpg_key is not None:
            if "signed-by=" in options:
                raise RenderError(f"{key}.gpg_key", f"{field} names a keyring already (signed-by)")
            options = f"[{options.strip('[] ')} signed-by={keyring(repo)}] ".replace("[ ", "[")
        words = f"deb {options}{mirror}{found['uri']} {suite} {components}"
        lines[f"proxflow-{repo.name}.list"] = words.rstrip()
    return lines
