"""Stage start: power on."""

from __future__ import annotations

from tasks.live import is_running
from tasks.session import session
from tasks.stage import Outcome, RunRef, stage


@stage("start", retries=3)
def start(run: RunRef, node: str) -> Outcome:
    """Start the guest unless it runs. A task that ends in warnings has started it.

    Whose it is was read moments ago, by the plan or by an earlier stage: no call more.
    """
    here = session(run)
    guest = here.guest(node)
    live = here.live(guest)
    if live is not None:
        here.require_ours(guest, live)
    if is_running(here.client, guest):
        return Outcome(status="unchanged", detail="runs")
    result = here.client.run("POST", f"/nodes/{guest.node}/qemu/{guest.vmid}/status/start")
    return Outcome(status="done", detail="started", warnings=result.warnings)
