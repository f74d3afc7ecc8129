"""Stage build: the seed ISO, in a private folder of this run."""

from __future__ import annotations

from blocks.units import human_size
from tasks.iso.build import build_seed
from tasks.runfolder import no_room
from tasks.seed import local_seed
from tasks.session import session
from tasks.stage import Outcome, RunRef, stage


@stage("build", retries=3)
def build(run: RunRef, node: str) -> Outcome:
    """Build the seed ISO unless this run has it. Its bytes depend on its content only."""
    here = session(run)
    guest = here.guest(node)
    if guest.install is None:
        return Outcome(status="skipped", detail="nothing to install")
    if here.skip_build:
        return Outcome(status="skipped", detail="the seed ISO is to be on the storage already")
    live = here.live(guest)
    if live is not None and live.ready:
        return Outcome(status="skipped", detail="installed already")
    target = local_seed(here, guest)
    if target.exists():
        return Outcome(status="unchanged", detail=target.name)
    try:
        built = build_seed(here.rendered(guest), target)
    except OSError as error:
        raise no_room(error) from None
    return Outcome(status="done", detail=f"{target.name}, {human_size(built.size)}")
