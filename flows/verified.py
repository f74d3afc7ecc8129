"""What a verification says in the end."""

from __future__ import annotations

from blocks.manifest.environment import Environment
from blocks.manifest.recipe import TEMPLATE
from blocks.model import Model
from blocks.words import count
from flows.terminal import Exit
from tasks.fleet import FleetResult
from tasks.verify import Deviates


class VerifiedGuest(Model):
    """A guest that was checked: its deviations, or why it could not be checked.

    ``name``: of a template, whose label is the same for every one.
    """

    label: str
    vmid: int
    node: str
    name: str = ""
    detail: str = ""
    deviations: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """As declared."""
        return not self.deviations and not self.errors


class Verified(Model):
    """All guests that were checked, in the order of the manifest."""

    env: str
    guests: tuple[VerifiedGuest, ...]

    @property
    def ok(self) -> bool:
        """Everything is as declared."""
        return all(guest.ok for guest in self.guests)

    @property
    def summary(self) -> str:
        """``3 guests as declared, 1 deviates``."""
        good = sum(guest.ok for guest in self.guests)
        odd = sum(bool(guest.deviations) for guest in self.guests)
        lost = sum(bool(guest.errors) for guest in self.guests)
        words = [f"{count(good, 'guest')} as declared"]
        if odd:
            words.append(count(odd, "deviates", "deviate"))
        if lost:
            words.append(f"{lost} could not be checked")
        return ", ".join(words)

    @property
    def exit_code(self) -> Exit:
        """Failed where a guest could not be checked, drift where one deviates."""
        if any(guest.errors for guest in self.guests):
            return Exit.FAILED
        return Exit.DONE if self.ok else Exit.DRIFT


def verified(environment: Environment, checks: FleetResult) -> Verified:
    """Put the checks of all guests together."""
    guests = []
    for node in checks.nodes:
        guest = environment.guest(node.node)
        failure = node.failure
        cause = failure.cause if failure else None
        guests.append(
            VerifiedGuest(
                label=guest.label,
                vmid=guest.vmid,
                node=guest.node,
                name=guest.name if environment.recipe and guest.label == TEMPLATE else "",
                detail="; ".join(outcome.detail for outcome in node.outcomes.values()),
                deviations=tuple(map(str, cause.deviations)) if isinstance(cause, Deviates) else (),
                errors=(failure.words,) if failure and not isinstance(cause, Deviates) else (),
            )
        )
    return Verified(env=environment.name, guests=tuple(guests))


def verified_markdown(result: Verified) -> str:
    """The result as a Prefect artifact."""
    rows = [
        f"| {g.name or g.label} | {g.vmid} | {g.node} | "
        f"{'as declared' if g.ok else '<br>'.join((*g.deviations, *g.errors))} |"
        for g in result.guests
    ]
    return "\n".join(
        [
            f"### {result.env}: {result.summary}",
            "",
            "| guest | vmid | node | state |",
            "|---|---|---|---|",
            *rows,
        ]
    )
