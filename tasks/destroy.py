"""Stage destroy: a guest and its own disks, never those of others."""

from __future__ import annotations

from blocks.manifest.mark import Mark, read_mark
from blocks.model import Model
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import AlreadyExists, NotFound, TaskFailed, TaskTimeout, WrongState
from blocks.proxmox.inventory import read_inventory
from tasks.errors import StageError
from tasks.found import FoundGuest, FoundSeed, look, uses
from tasks.live import Live
from tasks.session import session
from tasks.stage import Outcome, RunRef, stage

# Seconds that an orderly shutdown may take before the power goes.
SHUTDOWN_SECONDS = 60


class Target(Model):
    """Which guest is to go: where it is, and the mark that it must carry until the last moment.

    ``shares``: a disk of it is declared as shared, so that others are expected to use it.
    """

    node: str
    kind: str
    vmid: int
    mark: Mark
    shares: bool = False

    @classmethod
    def of(cls, found: FoundGuest, *, shares: bool = False) -> Target:
        """The target that a found guest is. Raises ValueError for one without a mark."""
        if found.mark is None:
            raise ValueError(f"{found} carries no mark")
        row = found.row
        return cls(node=row.node, kind=row.kind, vmid=row.vmid, mark=found.mark, shares=shares)

    @property
    def path(self) -> str:
        """Its place in the API."""
        return f"/nodes/{self.node}/{self.kind}/{self.vmid}"


@stage("destroy", retries=3)
def destroy(run: RunRef, node: str, target: Target, force: bool) -> Outcome:
    """Delete a guest that carries the environment's mark; gone already is fine."""
    warnings = remove(session(run).client, target, force=force)
    if warnings is None:
        return Outcome(status="unchanged", detail="is not there")
    return Outcome(status="done", detail=f"VM {target.vmid} deleted", warnings=warnings)


def remove(client: Client, target: Target, *, force: bool) -> tuple[str, ...] | None:
    """Power off and delete. Returns warnings, None where the guest is gone already.

    A guest that was moved to another node meanwhile is followed there. Its mark is read before it
    is touched and again before it is deleted: the guest of that number may have become another.
    Raises AlreadyExists then, StageError where somebody uses a disk of it, or ProxmoxError.
    """
    here = locate(client, target)
    if here is None:
        return None
    try:
        if power_off(client, here, force=force):
            require_mark(here, client.get(f"{here.path}/config").get("description", ""))
        if here.shares:
            refuse_users(client, here)
        result = client.run("DELETE", here.path, purge=1)
    except NotFound:
        if locate(client, here) is not None:
            raise
        return ()
    return tuple(result.warnings)


def locate(client: Client, target: Target) -> Target | None:
    """The target where it is now, None where it is nowhere. Raises AlreadyExists for another's."""
    here = target
    try:
        config = client.get(f"{here.path}/config")
    except NotFound:
        row = read_inventory(client).guest(target.vmid)
        if row is None or row.node == target.node:
            return None
        here = target.model_copy(update={"node": row.node, "kind": row.kind})
        config = client.get(f"{here.path}/config")
    require_mark(here, config.get("description", ""))
    return here


def require_mark(target: Target, description: object) -> None:
    """Refuse a guest that does not carry the mark that was found. Raises AlreadyExists."""
    mark = read_mark(str(description))
    wanted = target.mark
    if mark is None or mark.model_copy(update={"ready": wanted.ready}) != wanted:
        raise AlreadyExists(
            f"VM {target.vmid} on {target.node} does not carry the mark of {wanted.guest} any more",
            advice="somebody changed it since; look at it before you delete it yourself",
        )


def refuse_users(client: Client, target: Target) -> None:
    """Refuse to delete the owner of shared disks while another guest uses one, or might.

    One call, and one for each guest. Raises StageError.
    """
    looked = look(client, read_inventory(client))
    owner = next((found for found in looked.guests if found.row.vmid == target.vmid), None)
    if owner is not None:
        refuse_known_users(owner, looked.guests)
    if looked.hidden:
        unknown = ", ".join(f"VM {row.vmid} on {row.node}" for row in looked.hidden)
        raise StageError(
            f"VM {target.vmid} owns shared disks, and whether {unknown} uses them cannot be seen",
            advice="bring the node back, or take a token that may see the guest, and try again",
        )


def refuse_known_users(doomed: FoundGuest, others: tuple[FoundGuest, ...]) -> None:
    """Refuse a guest that owns a disk which one of these uses. No call. Raises StageError."""
    users = [str(other) for other in others if uses(other, doomed)]
    if users:
        raise StageError(
            f"{doomed} owns a disk that is attached to {', '.join(users)}",
            advice="remove those guests, or detach the disk from them, first",
        )


def power_off(client: Client, target: Target, *, force: bool) -> bool:
    """Stop a running guest; whether it ran. A shutdown that does not end in time ends in a stop.

    ``force`` pulls the power at once.
    """
    status = f"{target.path}/status"
    if client.get(f"{status}/current")["status"] != "running":
        return False
    if not force:
        # The guest may have no ACPI, or be an installer that ignores it: then it is stopped.
        try:
            upid = client.post(f"{status}/shutdown", timeout=SHUTDOWN_SECONDS, forceStop=1)
            client.wait(upid, timeout=SHUTDOWN_SECONDS + 30)
        except (TaskFailed, TaskTimeout, WrongState):
            pass
        else:
            return True
    client.run("POST", f"{status}/stop")
    return True


def delete_seed(client: Client, seed: FoundSeed) -> None:
    """Delete a seed ISO; gone already is fine. Raises ProxmoxError."""
    path = api_path("nodes", seed.node, "storage", seed.storage, "content", seed.volume.volid)
    client.run("DELETE", path)


def drives_with(volid: str, guests: tuple[FoundGuest, ...]) -> tuple[FoundGuest, ...]:
    """The guests that have a volume in one of their drives."""
    return tuple(found for found in guests if _holds(found.live, volid))


def _holds(live: Live, volid: str) -> bool:
    return any(
        isinstance(line, str) and line.partition(",")[0] == volid for line in live.config.values()
    )
