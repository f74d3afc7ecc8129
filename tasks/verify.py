"""Stage verify: is the guest what the manifest says, and does it answer?"""

from __future__ import annotations

from typing import Literal

from blocks.manifest.guest import Guest
from blocks.model import Model
from blocks.proxmox.errors import NotFound
from tasks.drives import EMPTY, drive_volume
from tasks.errors import StageError
from tasks.live import Live, is_running, read_live
from tasks.marker import PATH, read_marker
from tasks.plan import diff
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, done, stage
from tasks.wait import agent_answers, any_banner, wait_until

# A guest that has just been finalized may be restarting a service.
GRACE = 15.0

ADVICE = "`plan` shows what `up` would change; what it cannot change is yours to decide"


Kind = Literal[
    "missing", "foreign", "config", "media", "power", "ssh", "agent", "marker", "template"
]


class Deviation(Model):
    """One way in which a guest is not as declared."""

    guest: str
    kind: Kind
    detail: str

    def __str__(self) -> str:
        """What is wrong, without the guest's name."""
        return self.detail


class Deviates(StageError):
    """A guest is not as declared; all of its deviations at once."""

    def __init__(self, deviations: tuple[Deviation, ...], *, advice: str = ADVICE) -> None:
        """Keep the deviations for those who count them."""
        super().__init__("; ".join(map(str, deviations)), advice=advice)
        self.deviations = deviations


@stage("verify", retries=2)
def verify(run: RunRef, node: str) -> Outcome:
    """Check one guest. Raises Deviates with everything that is wrong with it."""
    here = session(run)
    guest = here.guest(node)
    found = deviations(here, guest)
    if found:
        raise Deviates(found)
    return done(", ".join(("config", *probes(guest))))


def deviations(here: Session, guest: Guest) -> tuple[Deviation, ...]:
    """Everything in which the guest is not as declared. Raises ProxmoxError."""
    live = read_live(here.client, guest)
    if live is None or not here.owns(guest, live.mark):
        return (not_ours(guest, live),)
    found = [deviation(guest, "config", str(change)) for change in diff(guest, live.config)]
    found += [deviation(guest, "media", text) for text in media_left(guest, live)]
    return (*found, *silent(here, guest))


def deviation(guest: Guest, kind: Kind, detail: str) -> Deviation:
    """One deviation of that guest."""
    return Deviation(guest=guest.label, kind=kind, detail=detail)


def not_ours(guest: Guest, live: Live | None) -> Deviation:
    """What there is in the guest's place: nothing, or somebody else's guest."""
    if live is None:
        return deviation(guest, "missing", f"VM {guest.vmid} is not on {guest.node}")
    detail = f"VM {guest.vmid} on {guest.node} is not this environment's"
    return deviation(guest, "foreign", detail)


def probes(guest: Guest) -> tuple[str, ...]:
    """What is tried from outside, for people: power, SSH, agent."""
    if not guest.autostart:
        return ()
    tried = {"runs": True, "SSH": guest.ssh_addresses or guest.agent, "agent": guest.agent}
    return tuple(name for name, applies in tried.items() if applies)


def silent(here: Session, guest: Guest) -> tuple[Deviation, ...]:
    """What does not answer of a guest that is to run. Raises ProxmoxError."""
    if not guest.autostart:
        return ()
    try:
        running = is_running(here.client, guest)
    except NotFound:
        return (not_ours(guest, None),)
    if not running:
        return (deviation(guest, "power", "does not run"),)
    found: list[Deviation] = []
    reachable = guest.ssh_addresses or guest.agent
    if reachable and not wait_until(lambda: any_banner(here, guest), GRACE):
        where = " or ".join(map(str, guest.ssh_addresses)) or "what its agent reports"
        found.append(deviation(guest, "ssh", f"no SSH server answers at {where}"))
    if guest.agent and not agent_answers(here.client, guest):
        found.append(deviation(guest, "agent", "the guest agent does not answer"))
    elif guest.agent and guest.install is not None:
        found += [deviation(guest, "marker", text) for text in _strange_system(here, guest)]
    return tuple(found)


def _strange_system(here: Session, guest: Guest) -> list[str]:
    """Signs that the system was not installed as this guest; none where it cannot be looked at.

    With which answers it was installed does not matter here: the manifest may have changed since.
    """
    marker = read_marker(here.client, guest)
    if marker.state == "missing":
        return [f"the system has no {PATH}: it was not installed by Proxflow, or not to the end"]
    installed = (marker.environment, marker.guest)
    if marker.state == "read" and installed != (here.environment.name, guest.label):
        return [f"the system was installed as {marker.guest} of environment {marker.environment}"]
    return []


def media_left(guest: Guest, live: Live) -> list[str]:
    """The drives that hold an ISO though they are declared empty."""
    return [
        f"{slot} holds {volume}"
        for slot, declared in guest.drives.items()
        if declared == EMPTY and (volume := drive_volume(live.config.get(slot))) != EMPTY
    ]
