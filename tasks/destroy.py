"""Stage destroy: a guest and its own disks, never those of others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from blocks.manifest.mark import read_mark
from blocks.model import Model
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import AlreadyExists, NotFound, ProxmoxError
from tasks.errors import StageError
from tasks.found import FoundGuest, FoundSeed, uses
from tasks.session import session
from tasks.stage import Outcome, RunRef, stage

# Seconds that an orderly shutdown may take before the power goes.
SHUTDOWN_SECONDS = 60


class Target(Model):
    """Which guest is to go."""

    node: str
    kind: str
    vmid: int
    name: str

    @classmethod
    def of(cls, found: FoundGuest) -> Target:
        """The target that a found guest is."""
        row = found.row
        return cls(node=row.node, kind=row.kind, vmid=row.vmid, name=row.name or "")

    @property
    def path(self) -> str:
        """Its place in the API."""
        return f"/nodes/{self.node}/{self.kind}/{self.vmid}"


@stage("destroy", retries=3)
def destroy(run: RunRef, node: str, target: Target, force: bool) -> Outcome:
    """Delete a guest that carries the environment's mark; gone already is fine.

    The mark is read again first: the guest of that number may have become another.
    """
    here = session(run)
    try:
        config = here.client.get(f"{target.path}/config")
    except NotFound:
        return Outcome(status="unchanged", detail="is not there")
    mark = read_mark(str(config.get("description", "")))
    if mark is None or (mark.env, mark.guest) != (here.environment.name, node):
        raise AlreadyExists(
            f"VM {target.vmid} on {target.node} carries no mark of {node} any more",
            advice="somebody changed it since; look at it before you delete it yourself",
        )
    warnings = remove(here.client, target, force=force)
    return Outcome(status="done", detail=f"VM {target.vmid} deleted", warnings=warnings)


def destroy_found(
    client: Client, doomed: FoundGuest, others: Iterable[FoundGuest], *, force: bool
) -> tuple[str, ...]:
    """Delete a guest unless one of the others, which stay, uses a disk of it. Returns warnings.

    Raises StageError before anything happens, or ProxmoxError.
    """
    users = [str(other) for other in others if uses(other, doomed)]
    if users:
        raise StageError(
            f"{doomed} owns a disk that is attached to {', '.join(users)}",
            advice="remove those guests, or detach the disk from them, first",
        )
    return remove(client, Target.of(doomed), force=force)


def remove(client: Client, target: Target, *, force: bool) -> tuple[str, ...]:
    """Power off and delete; gone already is fine. Returns warnings. Raises ProxmoxError."""
    try:
        power_off(client, target, force=force)
        result = client.run("DELETE", target.path, purge=1)
    except NotFound:
        return ()
    return tuple(result.warnings)


def power_off(client: Client, target: Target, *, force: bool) -> None:
    """Stop a running guest. An orderly shutdown that does not end in time ends in a stop.

    ``force`` pulls the power at once.
    """
    status = f"{target.path}/status"
    if client.get(f"{status}/current")["status"] != "running":
        return
    if not force:
        # The guest may have no ACPI, or be an installer that ignores it: then it is stopped.
        with suppress(ProxmoxError):
            upid = client.post(f"{status}/shutdown", timeout=SHUTDOWN_SECONDS, forceStop=1)
            client.wait(upid, timeout=SHUTDOWN_SECONDS + 30)
            return
    client.run("POST", f"{status}/stop")


def delete_seed(client: Client, seed: FoundSeed) -> None:
    """Delete a seed ISO; gone already is fine. Raises ProxmoxError."""
    path = api_path("nodes", seed.node, "storage", seed.storage, "content", seed.volume.volid)
    client.run("DELETE", path)
