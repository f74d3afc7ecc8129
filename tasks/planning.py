"""What in a plan forbids to begin."""

from __future__ import annotations

from blocks.manifest.plans import Action
from tasks.capacity import check_inventory, next_free
from tasks.findings import Finding, error
from tasks.survey import Survey


def plan_findings(seen: Survey) -> tuple[Finding, ...]:
    """Refused guests, missing owners of shared disks, and what the bulk read shows. No call."""
    found = [
        error(plan.reason, _remedy(plan.action, seen, plan.vmid), guest=plan.label)
        for plan in seen.plan.refused
    ]
    return (*found, *_owners(seen), *check_inventory(seen.building(), seen.inventory))


def _remedy(action: Action, seen: Survey, vmid: int) -> str:
    if action is Action.FOREIGN:
        free = next_free(vmid, [row.vmid for row in seen.inventory.guests])
        return f"give it another vm_id, such as {free}"
    return "set it back in the manifest, or take the guest down and bring it up anew"


def _owners(seen: Survey) -> list[Finding]:
    """Guests whose shared disk belongs to a guest that neither exists nor is to be created."""
    there = {row.vmid for row in seen.inventory.guests}
    there |= {guest.vmid for guest in seen.environment.guests}
    return [
        error(
            f"disk {disk.slot} belongs to VM {disk.shared_with.vmid}, which does not exist",
            "bring its owner up too: leave --only out, or add the owner to it",
            guest=guest.label,
        )
        for guest in seen.environment.guests
        for disk in guest.disks
        if disk.shared_with is not None and disk.shared_with.vmid not in there
    ]
