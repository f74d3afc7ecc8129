"""What a flow says in the end: small, complete, safe to be stored and printed as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Guest
from blocks.model import Model
from blocks.words import count
from tasks.fleet import FleetResult, NodeResult


class StageResult(Model):
    """How one stage of a guest ended; ``seconds`` is wall time."""

    name: str
    status: str
    detail: str = ""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0


class GuestResult(Model):
    """What became of a guest in a run."""

    label: str
    vmid: int
    node: str
    address: str | None = None
    state: Literal["done", "unchanged", "failed", "cancelled"]
    failed_stage: str | None = None
    error: str | None = None
    stages: tuple[StageResult, ...] = ()
    cancelled: tuple[str, ...] = ()
    seconds: float = 0.0


class UpResult(Model):
    """What a run did: guests in the order of the manifest, errors and warnings one line each."""

    env: str
    run_id: str
    ok: bool
    guests: tuple[GuestResult, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    api_calls: int = 0

    @property
    def summary(self) -> str:
        """``3 done, 1 unchanged, 1 failed``."""
        states = [guest.state for guest in self.guests]
        counts = [(states.count(s), s) for s in ("done", "unchanged", "failed", "cancelled")]
        return ", ".join(f"{number} {state}" for number, state in counts if number) or "no guests"


class DownResult(Model):
    """What was removed, by the operator's names; errors and warnings one line each.

    ``removed`` and ``left``: guests, and in ``left`` also guests that are gone but whose seed ISOs
    are not. ``swept``: volume ids of the seed ISOs that were removed.
    """

    env: str
    run_id: str
    ok: bool
    removed: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    api_calls: int = 0

    @property
    def summary(self) -> str:
        """``3 guests removed, 3 seed ISOs removed, 1 left``."""
        parts = []
        if self.removed or not self.swept:
            parts.append(f"{count(len(self.removed), 'guest')} removed")
        if self.swept:
            parts.append(f"{count(len(self.swept), 'seed ISO')} removed")
        if self.left:
            parts.append(f"{len(self.left)} left")
        return ", ".join(parts)

    def markdown(self) -> str:
        """The result as a Prefect artifact."""
        lines = [f"### {self.env} down: {self.summary}", ""]
        for title, names in (
            ("Removed", self.removed),
            ("Seed ISOs removed", self.swept),
            ("Left", self.left),
            ("Errors", self.errors),
            ("Warnings", self.warnings),
        ):
            if names:
                lines += [f"#### {title}", "", *(f"- {name}" for name in names), ""]
        return "\n".join(lines)


def up_result(
    environment: Environment,
    run_id: str,
    fleet: FleetResult,
    checks: FleetResult | None,
    *,
    warnings: Iterable[str] = (),
    api_calls: int = 0,
) -> UpResult:
    """Put together what the stages and the verification said; a failed check is a warning."""
    built = {node.node: node for node in fleet.nodes}
    checked = {node.node: node for node in checks.nodes} if checks else {}
    guests = []
    for guest in environment.guests:
        ways = [way for way in (built.get(guest.label), checked.get(guest.label)) if way]
        guests.append(guest_result(guest, built.get(guest.label), ways))
    said = [
        f"{g.label}: {stage.name}: {text}"
        for g in guests
        for stage in g.stages
        for text in stage.warnings
    ]
    deviations = [str(failure) for failure in (checks.failures if checks else ())]
    return UpResult(
        env=environment.name,
        run_id=run_id,
        ok=fleet.ok,
        guests=tuple(guests),
        errors=tuple(str(failure) for failure in fleet.failures),
        warnings=(*warnings, *said, *deviations),
        api_calls=api_calls,
    )


def guest_result(guest: Guest, built: NodeResult | None, ways: Sequence[NodeResult]) -> GuestResult:
    """What became of a guest: ``ways`` is all that was done, ``built`` the part that counts."""
    stages = tuple(
        StageResult(
            name=name,
            status=outcome.status,
            detail=outcome.detail,
            warnings=outcome.warnings,
            seconds=round(outcome.seconds, 3),
        )
        for way in ways
        for name, outcome in way.outcomes.items()
    )
    failure = built.failure if built else None
    cancelled = built.cancelled if built else ()
    busy = built is not None and any(o.status == "done" for o in built.outcomes.values())
    return GuestResult(
        label=guest.label,
        vmid=guest.vmid,
        node=guest.node,
        address=str(guest.ssh_addresses[0]) if guest.ssh_addresses else None,
        state="failed"
        if failure
        else "cancelled"
        if cancelled
        else "done"
        if busy
        else "unchanged",
        failed_stage=failure.stage if failure else None,
        error=str(failure) if failure else None,
        stages=stages,
        cancelled=cancelled,
        seconds=round(sum(way.seconds for way in ways), 3),
    )
