"""Packages and repositories as zypper knows them."""

from __future__ import annotations

from tasks.iso import checks
from tasks.iso.checks import RenderError
from tasks.iso.facts import Facts


def told_apart(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Packages, then patterns, which the manifest writes as ``pattern:NAME``."""
    patterns = [name.removeprefix("pattern:") for name in names if name.startswith("pattern:")]
    return [name for name in names if not name.startswith("pattern:")], patterns


def repositories(facts: Facts) -> dict[str, str]:
    """Files for ``/etc/zypp/repos.d``, by the name of the repository.

    Raises RenderError for a cost.
    """
    found: dict[str, str] = {}
    for index, repo in enumerate(facts.repositories):
        key = f"installation.repositories[{index}]"
        if repo.cost is not None:
            raise RenderError(f"{key}.cost", "zypper has no cost; only the RHEL family does")
        field, value = (
            ("baseurl", repo.baseurl) if repo.baseurl else ("mirrorlist", repo.mirrorlist)
        )
        checks.url(f"{key}.{field}", value or "")
        found[repo.name] = "\n".join(
            (
                f"[{repo.name}]",
                f"name={repo.name}",
                "enabled=1",
                "autorefresh=1",
                f"{field}={value}",
                *([f"gpgkey={repo.gpg_key}"] if repo.gpg_key else []),
            )
        )
    return found
