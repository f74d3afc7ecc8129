"""Stage wait: until the installed system answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from blocks.manifest.guest import Guest
from blocks.proxmox.client import Client
from blocks.proxmox.errors import ProxmoxError
from tasks.addresses import addresses
from tasks.errors import StageError
from tasks.live import is_running
from tasks.session import Session, session
from tasks.ssh import ssh_banner
from tasks.stage import Outcome, RunRef, pause, stage

T = TypeVar("T")

# Seconds between two looks: a share of the time waited so far, so that no wait is longer than it
# must be by more than that. An installation of half an hour costs some 350 looks, a packet each.
SHARE = 0.03
FIRST_LOOK = 0.1
LAST_LOOK = 10.0
# The agent comes up with the system; one that is not there some minutes after SSH is not installed.
AGENT_GRACE = 180.0


@stage("wait", retries=3)
def wait(run: RunRef, node: str) -> Outcome:
    """Wait for the SSH banner, then for the guest agent where one is declared."""
    here = session(run)
    guest = here.guest(node)
    live = here.live(guest)
    if live is not None and live.ready:
        return Outcome(status="skipped", detail="installed already")
    return wait_for_guest(here, guest)


def wait_for_guest(here: Session, guest: Guest) -> Outcome:
    """Wait, bounded by the run's ``boot_timeout``. Raises StageError when it is over."""
    if not guest.ssh_addresses and not guest.agent:
        return Outcome(status="skipped", detail="no address and no agent to look for SSH with")
    bound = here.boot_timeout
    answer = wait_until(lambda: any_banner(here, guest), bound)
    if answer is None:
        raise StageError(
            f"no SSH server answered at {_where(guest)} within {bound:.0f} s{_state(here, guest)}",
            advice=f"look at the console of VM {guest.vmid} on {guest.node}: the installer shows "
            "there what it waits for; a longer wait is --boot-timeout",
        )
    detail = f"{answer[0]} says {answer[1]}"
    if guest.agent and not wait_until(lambda: agent_answers(here.client, guest), AGENT_GRACE):
        return Outcome(
            status="done",
            detail=detail,
            warnings=(
                f"the guest agent did not answer within {AGENT_GRACE:.0f} s of SSH; "
                "is qemu-guest-agent installed and enabled?",
            ),
        )
    return Outcome(status="done", detail=detail)


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


def _where(guest: Guest) -> str:
    declared = " or ".join(map(str, guest.ssh_addresses))
    return declared or "any address that its agent reports"


def _state(here: Session, guest: Guest) -> str:
    try:
        return "" if is_running(here.client, guest) else "; the guest does not run any more"
    except ProxmoxError as error:
        return f"; its state cannot be read: {error.message}"
