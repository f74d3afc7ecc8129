"""Stage wait: until the installed system answers.

An installation is watched from outside: SSH banner, status, agent, marker. How long that may take,
and when it must be taken for stuck, goes by the installer (``watch.BOUNDS``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn, TypeVar

from blocks.manifest.guest import Guest
from blocks.proxmox.client import Client
from blocks.proxmox.errors import ProxmoxError
from tasks.addresses import addresses
from tasks.errors import StageError
from tasks.iso.distros import distro
from tasks.marker import PATH, read_marker
from tasks.session import Session, session
from tasks.ssh import ssh_banner
from tasks.stage import Outcome, RunRef, pause, stage, waiting
from tasks.watch import BOUNDS, Bounds, Phase, Sight, Watch

T = TypeVar("T")

# Seconds between two looks: a share of the time waited so far, so that no wait is longer than it
# must be by more than that. An installation of half an hour costs some 350 looks, a packet each.
SHARE = 0.03
FIRST_LOOK = 0.1
LAST_LOOK = 10.0
# Seconds between two reads of the status, which are calls: an installation of half an hour costs
# some 120. A lab, or a clone, is up before the first.
STATUS_SHARE = 0.05
FIRST_STATUS = 0.5
LAST_STATUS = 20.0
# Seconds between two words on an installation that goes on in the same phase.
SAY_AGAIN = 60.0
# The agent comes up with the system; one that is not there some minutes after SSH is not installed.
AGENT_GRACE = 180.0

_ASKS = "the installer waits for somebody to answer a question, or shows an error"
_HANGS = "the installed system does not get as far as its SSH server"
# What a guest that does nothing waits for. The restart at the end of an installation is not seen
# from outside, so one that has written much may be either.
_WAITS_FOR: dict[Phase, str] = {
    "starting": _ASKS,
    "installing": f"{_ASKS}; or, where it is done, {_HANGS}",
    "installing again": _ASKS,
    "restarted": f"{_ASKS}; or, where it is done, {_HANGS}",
}


@stage("wait", retries=3)
def wait(run: RunRef, node: str) -> Outcome:
    """Wait for the SSH banner, then for the guest agent where one is declared, then the marker."""
    here = session(run)
    guest = here.guest(node)
    live = here.live(guest)
    if live is not None and live.ready:
        return Outcome(status="skipped", detail="installed already")
    return wait_for_guest(here, guest)


def bounds_of(here: Session, guest: Guest) -> Bounds:
    """How patient to be with a guest: by its installer, the total by the run if that says so."""
    family = distro(guest.install.installation.distro).family if guest.install else None
    bounds = BOUNDS[family]
    asked = here.boot_timeout
    return bounds if asked is None else replace(bounds, total=asked)


def wait_for_guest(here: Session, guest: Guest) -> Outcome:
    """Wait until the guest is installed and answers.

    Raises StageError, with the phase, when the time is over, or earlier where the installer is
    booted again and again, waits for somebody, or the guest is off.
    """
    if not guest.ssh_addresses and not guest.agent:
        return Outcome(status="skipped", detail="no address and no agent to look for SSH with")
    address, banner = _watched(here, guest, bounds_of(here, guest))
    detail = f"{address} says {banner}"
    if not guest.agent:
        return Outcome(status="done", detail=detail)
    waiting(f"{detail}; waiting for the guest agent")
    if not wait_until(lambda: agent_answers(here.client, guest), AGENT_GRACE):
        return Outcome(
            status="done",
            detail=detail,
            warnings=(
                f"the guest agent did not answer within {AGENT_GRACE:.0f} s of SSH; "
                "is qemu-guest-agent installed and enabled?",
            ),
        )
    if guest.install is None:
        return Outcome(status="done", detail=f"{detail}, agent up")
    return Outcome(status="done", detail=f"{detail}, agent up, {_marked(here, guest)}")


def _watched(here: Session, guest: Guest, bounds: Bounds) -> tuple[str, str]:
    """Address and banner of the guest, once it answers. Raises StageError."""
    began = time.monotonic()
    watch = Watch(began)
    next_status, next_word, said = FIRST_STATUS, 0.0, ""
    while True:
        answer = any_banner(here, guest)
        if answer is not None:
            return answer
        waited = time.monotonic() - began
        over = waited >= bounds.total
        if over or waited >= next_status:
            _see(here, guest, watch)
            next_status = waited + min(LAST_STATUS, max(FIRST_STATUS, STATUS_SHARE * waited))
            _check(guest, watch, bounds)
            if watch.phase != said or waited >= next_word:
                waiting(str(watch))
                next_word, said = waited + SAY_AGAIN, watch.phase
        if over:
            _late(here, guest, watch, bounds)
        pause(min(between_looks(waited), bounds.total - waited))


def _see(here: Session, guest: Guest, watch: Watch) -> None:
    """Look at the guest's status; a node that does not answer is looked at again next time."""
    try:
        status = here.client.get(f"/nodes/{guest.node}/qemu/{guest.vmid}/status/current")
    except ProxmoxError as error:
        if not error.transient:
            raise
        return
    watch.see(Sight.of(status, time.monotonic()))


def _check(guest: Guest, watch: Watch, bounds: Bounds) -> None:
    """Raise StageError where waiting longer is no use."""
    now = time.monotonic()
    name = f"VM {guest.vmid} on {guest.node}"
    if watch.medium.boots >= bounds.restarts:
        raise StageError(
            "the installation goes round in circles: the installer of "
            f"{guest.label} was booted {watch.medium.boots + 1} times, by what was read from its "
            "ISO, and its SSH server never answered",
            advice=f"look at the console of {name}: the disk does not boot and the firmware goes "
            "on to the ISO (is the disk before the ISO in the boot order, and did the boot loader "
            "get onto it?)",
        )
    if watch.looping(bounds):
        raise StageError(
            f"{guest.label} was stopped and started {watch.restarts} times, and its SSH server "
            "never answered",
            advice=f"a guest that restarts by itself stays one process, and {name} did not: its "
            "tasks tell who stops and starts it; let it be, and run `up` again",
        )
    if watch.stuck(bounds, now):
        minutes = f"{(now - watch.changed) / 60:.0f} min"
        raise StageError(
            f"nothing was written and nothing restarted for {minutes}; {guest.label} is {watch}",
            advice=f"look at the console of {name}: {_WAITS_FOR[watch.phase]}",
        )
    if watch.off(now):
        raise StageError(
            f"the guest does not run any more; {guest.label} was switched off before it answered",
            advice=f"if nobody did that, the installer of {name} has switched it off in the end: "
            "start it, and run `up` again, which goes on from there",
        )


def _late(here: Session, guest: Guest, watch: Watch, bounds: Bounds) -> NoReturn:
    where = " or ".join(map(str, guest.ssh_addresses)) or "any address that its agent reports"
    if watch.phase == "switched off":
        state, look = "the guest does not run any more", "start it, and run `up` again"
    elif guest.agent and guest.ssh_addresses and agent_answers(here.client, guest):
        state = "its agent answers, so the system runs"
        look = (
            "look at its addresses (`ip address`), its SSH server and its firewall; and can this "
            "machine reach that network?"
        )
    else:
        state, look = f"it stopped in this phase: {watch}", "the console shows what it waits for"
    raise StageError(
        f"no SSH server answered at {where} within {bounds.total:.0f} s; {state}",
        advice=f"look at the console of VM {guest.vmid} on {guest.node}: {look}; a longer wait is "
        "--boot-timeout",
    )


def _marked(here: Session, guest: Guest) -> str:
    """What the marker of the installed system says, in words. Raises StageError."""
    marker = read_marker(here.client, guest)
    if marker.state == "missing":
        waiting("the guest agent answers; waiting for the end of the installation")
        grace = bounds_of(here, guest).marker
        wait_until(lambda: read_marker(here.client, guest).state != "missing", grace)
        marker = read_marker(here.client, guest)
    if marker.state == "unread":
        return f"its marker could not be looked at: {marker.why}"
    wanted = here.rendered(guest).digest
    if marker.state == "missing":
        raise StageError(
            f"the system of {guest.label} answers, but has no {PATH}: either its installation did "
            "not come to its end, or the disk held a system before",
            advice=f"look at the installer's log in VM {guest.vmid}; to install it anew, take the "
            "guest down and bring it up again",
        )
    if marker.content != wanted:
        raise StageError(
            f"the system of {guest.label} was installed with other answers than the manifest gives "
            f"now: {PATH} says {marker.content[:12]}, and it should be {wanted[:12]}",
            advice="take the guest down and bring it up again, or set the manifest back",
        )
    return f"marker {wanted[:12]} found"


def wait_until(look: Callable[[], T], bound: float) -> T | None:
    """Look until it finds something, ever more seldom; None after ``bound`` seconds.

    Raises StageCancelled when the run stops meanwhile.
    """
    began = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        waited = time.monotonic() - began
        if waited >= bound:
            return None
        pause(min(between_looks(waited), bound - waited))


def between_looks(waited: float) -> float:
    """Seconds until the next look, after so many seconds."""
    return min(LAST_LOOK, max(FIRST_LOOK, SHARE * waited))


def any_banner(here: Session, guest: Guest) -> tuple[str, str] | None:
    """Address and banner of the first of the guest's addresses that answers."""
    for address in addresses(here.client, guest):
        banner = ssh_banner(address, proxy=here.connection.guest_proxy)
        if banner:
            return address, banner
    return None


def agent_answers(client: Client, guest: Guest) -> bool:
    """Whether the guest agent answers a ping. One call, which the server may hold for seconds."""
    try:
        client.post(f"/nodes/{guest.node}/qemu/{guest.vmid}/agent/ping")
    except ProxmoxError:
        return False
    return True
