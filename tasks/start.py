"""Stage start: power on."""

from __future__ import annotations

from tasks.live import is_running
from tasks.session import session
from tasks.stage import Outcome, RunRef, stage


@stage("start", retries=3)
def start(run: RunRef, node: str) -> Outcome:
    """Start the guest unless it runs. A task that ends in warnings has started it.

    Whose it is is read anew: somebody may have put another guest under the number since.
    """
    here = session(run)
    guest = here.guest(node)
    here.require(guest)
    if is_running(here.client, guest):
        return Outcome(status="unchanged", detail="runs")
    result = here.client.run("POST", f"/nodes/{guest.node}/qemu/{guest.vmid}/status/start")
    return Outcome(status="done", detail="started", warnings=result.warnings)
