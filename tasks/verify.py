"""Stage verify: is the guest what the manifest says, and does it answer?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal

from blocks.manifest.guest import Guest
from blocks.model import Model
from blocks.proxmox.errors import NotFound
from tasks.drives import EMPTY, drive_volume
from tasks.errors import StageError
from tasks.live import Live, is_running, read_live
from tasks.marker import PATH, Marker, read_marker
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


class Answers(Model):
    """What a guest that is to run says from outside.

    ``wrong``: what does not answer, or not as this guest. ``tried`` and ``unknown``: for people,
    what was looked at, and what could not be.
    """

    wrong: tuple[Deviation, ...] = ()
    tried: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What a guest without deviations was checked for."""
        return "; ".join((", ".join(("config", *self.tried)), *self.unknown))


@stage("verify", retries=2)
def verify(run: RunRef, node: str) -> Outcome:
    """Check one guest. Raises Deviates with everything that is wrong with it."""
    here = session(run)
    guest = here.guest(node)
    found, said = checked(here, guest, partial(_differing, guest))
    if found:
        raise Deviates(found)
    return done(str(said))


def deviations(here: Session, guest: Guest) -> tuple[Deviation, ...]:
    """Everything in which the guest is not as declared. Raises ProxmoxError."""
    return checked(here, guest, partial(_differing, guest))[0]


def checked(
    here: Session, guest: Guest, differing: Callable[[Live], Iterable[Deviation]]
) -> tuple[tuple[Deviation, ...], Answers]:
    """All deviations of a guest, and what it answered. ``differing``: those of its configuration.

    Raises ProxmoxError, and what ``differing`` raises.
    """
    live = read_live(here.client, guest)
    if live is None or not here.owns(guest, live.mark):
        return (not_ours(guest, live),), Answers()
    found = tuple(differing(live))
    said = answers(here, guest)
    return (*found, *said.wrong), said


def _differing(guest: Guest, live: Live) -> Iterator[Deviation]:
    for change in diff(guest, live.config):
        yield deviation(guest, "config", str(change))
    for text in media_left(guest, live):
        yield deviation(guest, "media", text)


def deviation(guest: Guest, kind: Kind, detail: str) -> Deviation:
    """One deviation of that guest."""
    return Deviation(guest=guest.label, kind=kind, detail=detail)


def not_ours(guest: Guest, live: Live | None) -> Deviation:
    """What there is in the guest's place: nothing, or somebody else's guest."""
    if live is None:
        return deviation(guest, "missing", f"VM {guest.vmid} is not on {guest.node}")
    detail = f"VM {guest.vmid} on {guest.node} is not this environment's"
    return deviation(guest, "foreign", detail)


def answers(here: Session, guest: Guest) -> Answers:
    """Asks a guest that is to run: power, SSH, agent, marker. Raises ProxmoxError."""
    if not guest.autostart:
        return Answers()
    try:
        running = is_running(here.client, guest)
    except NotFound:
        return Answers(wrong=(not_ours(guest, None),))
    if not running:
        return Answers(wrong=(deviation(guest, "power", "does not run"),))
    wrong: list[Deviation] = []
    tried, unknown = ["runs"], []
    if guest.ssh_addresses or guest.agent:
        tried.append("SSH")
        if not wait_until(lambda: any_banner(here, guest), GRACE):
            where = " or ".join(map(str, guest.ssh_addresses)) or "what its agent reports"
            wrong.append(deviation(guest, "ssh", f"no SSH server answers at {where}"))
    if guest.agent:
        tried.append("agent")
        if not agent_answers(here.client, guest):
            wrong.append(deviation(guest, "agent", "the guest agent does not answer"))
        elif guest.install is not None:
            marker = read_marker(here.client, guest)
            wrong += [deviation(guest, "marker", text) for text in _strange(here, guest, marker)]
            if marker.state == "unread":
                unknown.append(f"marker not readable: {marker.why}")
            else:
                tried.append("marker")
    return Answers(wrong=tuple(wrong), tried=tuple(tried), unknown=tuple(unknown))


def _strange(here: Session, guest: Guest, marker: Marker) -> list[str]:
    """Signs that the system was not installed as this guest; none where it could not be read.

    With which answers it was installed does not matter here: the manifest may have changed since.
    """
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
