"""The vendor document: a script that leaves the marker and sees to the guest agent.

A script, since cloud-init lets every key of the user document replace the same key of a vendor
document: an operator's ``packages`` or ``runcmd`` would take the agent away. It finds out itself
which package manager there is, so that clones need not know what their template was made from.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from blocks.manifest.guest import Guest
from tasks.iso import checks
from tasks.iso.templating import shell


def vendor_data(guest: Guest, *, env: str, content: str) -> str:
    """The script. ``content`` is the hash of the documents, which the marker file repeats."""
    release = (
        f"PROXFLOW_ENVIRONMENT={checks.name('env', env)}",
        f"PROXFLOW_GUEST={checks.name('label', guest.label)}",
        f"PROXFLOW_CONTENT={content}",
    )
    text = _environment().get_template("vendor.sh.j2")
    return text.render(release=release, agent=guest.agent)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    # A shell script: what lands in it is quoted by the filter.
    env = Environment(  # noqa: S701
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["sh"] = shell
    return env
