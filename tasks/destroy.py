"""Stage destroy: a guest and its own disks, never those of others."""

from __future__ import annotations

from collections.abc import Iterable

from blocks.proxmox.client import Client
from blocks.proxmox.errors import NotFound, ProxmoxError
from tasks.errors import StageError
from tasks.found import FoundGuest, FoundSeed, uses

# Seconds that an orderly shutdown may take before the power goes.
SHUTDOWN_SECONDS = 60


def destroy_guest(
    client: Client, doomed: FoundGuest, others: Iterable[FoundGuest], *, force: bool = False
) -> tuple[str, ...]:
    """Power the guest off and delete it. Returns warnings.

    ``others``: the guests that stay; one that uses a disk of this guest makes it refuse
    (StageError) before anything happens. ``force`` pulls the power instead of an orderly
    shutdown. Gone already is fine.
    """
    users = [str(other) for other in others if uses(other, doomed)]
    if users:
        raise StageError(
            f"{doomed} owns a disk that is attached to {', '.join(users)}",
            advice="remove those guests, or detach the disk from them, first",
        )
    try:
        power_off(client, doomed, force=force)
        result = client.run("DELETE", doomed.path, purge=1)
    except NotFound:
        return ()
    return tuple(result.warnings)


def power_off(client: Client, guest: FoundGuest, *, force: bool) -> None:
    """Stop a running guest. An orderly shutdown that does not end in time ends in a stop."""
    if client.get(f"{guest.path}/status/current")["status"] != "running":
        return
    if not force:
        try:
            upid = client.post(
                f"{guest.path}/status/shutdown", timeout=SHUTDOWN_SECONDS, forceStop=1
            )
            client.wait(upid, timeout=SHUTDOWN_SECONDS + 30)
        except NotFound:
            raise
        except ProxmoxError:
            pass  # the guest may have no ACPI, or an installer that ignores it
        else:
            return
    client.run("POST", f"{guest.path}/status/stop")


def delete_seed(client: Client, seed: FoundSeed) -> None:
    """Delete a seed ISO; gone already is fine."""
    client.run("DELETE", f"/nodes/{seed.node}/storage/{seed.storage}/content/{seed.volume.volid}")
