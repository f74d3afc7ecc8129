"""Stage render: the files that the installer will read."""

from __future__ import annotations

from tasks.session import session
from tasks.stage import Outcome, RunRef, stage


@stage("render", retries=3)
def render(run: RunRef, node: str) -> Outcome:
    """Render the guest's installer files, or skip a guest that is installed.

    The files stay in memory: they hold password hashes.
    """
    here = session(run)
    guest = here.guest(node)
    if guest.install is None:
        return Outcome(status="skipped", detail="nothing to install")
    live = here.live(guest)
    if live is not None and live.ready:
        return Outcome(status="skipped", detail="installed already")
    rendered = here.rendered(guest)
    names = ", ".join(sorted(rendered.files))
    return Outcome(status="done", detail=f"{names} for {guest.install.installation.distro}")
