"""What in a plan forbids to begin."""

from __future__ import annotations

from blocks.manifest.plans import Action
from tasks.capacity import check_changes, check_inventory, next_free
from tasks.findings import Finding, error, warning
from tasks.iso.checks import RenderError
from tasks.iso.distros import UnknownDistro, distro
from tasks.iso.remaster import is_remastered
from tasks.iso.render import render
from tasks.masking import masked
from tasks.survey import Survey


def plan_findings(seen: Survey) -> tuple[Finding, ...]:
    """Refused guests, missing owners of shared disks, and what the bulk read shows. No call."""
    found = [
        error(plan.reason, _remedy(plan.action, seen, plan.vmid), guest=plan.label)
        for plan in seen.plan.refused
    ]
    return (
        *found,
        *_owners(seen),
        *_installations(seen),
        *check_inventory(seen.building(), seen.inventory),
        *check_changes(seen.changing(), seen.inventory),
    )


def _remedy(action: Action, seen: Survey, vmid: int) -> str:
    if action is Action.FOREIGN:
        free = next_free(vmid, [row.vmid for row in seen.inventory.guests])
        return f"give it another vm_id, such as {free}"
    return "set it back in the manifest, or take the guest down and bring it up anew"


def _installations(seen: Survey) -> list[Finding]:
    """Installer files that cannot be written, and install media that will ask questions."""
    found = []
    for guest in seen.building():
        if guest.install is None:
            continue
        try:
            render(guest, env=seen.environment.name)
        except (RenderError, UnknownDistro) as refusal:
            words = masked(str(refusal), seen.environment)
            found.append(error(words, guest=guest.label))
            continue
        wanted = distro(guest.install.installation.distro)
        untouched = guest.install.origin is None and not is_remastered(guest.install.iso)
        if wanted.remaster and untouched:
            found.append(
                warning(
                    f"an untouched ISO of {wanted.title} asks questions, or does not start its "
                    f"installer by itself, and {guest.install.iso} looks like one",
                    "say in `iso.source` where it comes from, and it will be rewritten; or "
                    "rewrite it with `python -m flows.iso remaster` and name the result in `image`",
                    guest=guest.label,
                )
            )
    return found


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
