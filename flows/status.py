"""Show an environment as it is: guests, power, installation, addresses, differences."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Guest
from blocks.manifest.plans import Action, Change
from blocks.manifest.recipe import TEMPLATE, Recipe
from blocks.model import Model
from blocks.proxmox.client import Client
from blocks.proxmox.inventory import GuestRow, Inventory, read_inventory
from flows.opening import Opened, reading
from flows.parameters import ClusterName, Json, Manifest, Only
from flows.plan_text import counted
from flows.removal import label_of
from flows.terminal import (
    advise,
    command,
    command_line,
    faults_shown,
    out,
    print_json,
    show_notices,
)
from tasks.found import FoundGuest, all_guests, of_environment
from tasks.pending import pending_changes
from tasks.session import Session
from tasks.stage import RunRef
from tasks.survey import Survey, survey
from tasks.template.judged import judged
from tasks.template.seen import as_it_is

app = command_line("status", __doc__)

# What only reads is no run, and its session wants the name of one.
_NO_RUN = "00000000"


class GuestStatus(Model):
    """One guest as it is.

    ``state`` is absent, installing, ready, foreign, offline, older (a generation of a template), or
    undeclared: the environment's by its mark, and no longer in the manifest. ``pending``: changes
    of a running guest that wait until it is stopped and started.
    """

    label: str
    vmid: int
    node: str
    name: str
    power: str
    state: str
    run: str | None = None
    addresses: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


def guest_status(guest: Guest, seen: Survey, pending: Sequence[Change] = ()) -> GuestStatus:
    """Put together what the survey and ``pending_changes`` know of a guest. No call."""
    row = seen.rows.get(guest.label)
    live = seen.lives.get(guest.label)
    plan = seen.plan.guest(guest.label)
    mark = live.mark if live else None
    if row is None:
        state = "absent"
    elif live is None:
        state = "offline"
    elif plan.action is Action.FOREIGN:
        state = "foreign"
    else:
        state = "ready" if live.ready else "installing"
    return GuestStatus(
        label=guest.label,
        vmid=guest.vmid,
        node=row.node if row else guest.node,
        name=guest.name,
        power=row.status if row else "",
        state=state,
        run=mark.run if mark else None,
        addresses=tuple(map(str, guest.ssh_addresses)),
        differences=tuple(map(str, plan.changes)) or ((plan.reason,) if plan.reason else ()),
        pending=tuple(map(str, pending)),
    )


def readable(seen: Survey) -> dict[str, GuestRow]:
    """The environment's own guests whose configuration could be read, by label."""
    return {
        label: row
        for label, row in seen.rows.items()
        if label in seen.lives and seen.plan.guest(label).action is not Action.FOREIGN
    }


def undeclared(
    client: Client, everyone: Environment, inventory: Inventory
) -> tuple[GuestStatus, ...]:
    """Guests with the environment's mark whose number the manifest does not have, by number.

    One call for each guest of the cluster that is not declared; those that cannot be read are
    left out.
    """
    known = {guest.vmid for guest in everyone.guests}
    others = tuple(row for row in inventory.guests if row.vmid not in known)
    found = all_guests(client, inventory.model_copy(update={"guests": others}))
    return tuple(
        GuestStatus(
            label=label_of(guest),
            vmid=guest.row.vmid,
            node=guest.row.node,
            name=guest.row.name,
            power=guest.row.status,
            state="older" if _is_generation(guest) else "undeclared",
            run=guest.mark.run if guest.mark else None,
            differences=(
                "an older generation" if _is_generation(guest) else "no longer in the manifest",
            ),
        )
        for guest in sorted(of_environment(found, everyone.name), key=lambda guest: guest.row.vmid)
    )


def _is_generation(found: FoundGuest) -> bool:
    return found.mark is not None and found.mark.guest == TEMPLATE and found.row.template


@app.default
def main(
    manifest: Manifest,
    *,
    cluster: ClusterName = None,
    only: Only = None,
    json: Json = False,
) -> None:
    """Show an environment as it is: guests, power, installation, addresses, differences.

    Guests of the environment that are no longer in the manifest are shown too, as undeclared,
    except with --only. One call, and one more for each guest of the cluster; with --only one for
    each guest named; for each declared guest that runs, another one tells which changes wait for a
    restart. Exit codes: 0 done, 1 failed, 2 bad input.
    """
    with faults_shown(), reading(manifest, cluster, only) as here:
        show_notices(here.client.notices)
        inventory = read_inventory(here.client)
        environment = as_it_is(here.client, inventory, here.environment)
        seen = survey(here.client, environment, cluster=here.connection.label, inventory=inventory)
        recipe = here.everyone.recipe
        if recipe is not None:
            seen = judged(_session(here, inventory), seen)
        waiting = pending_changes(here.client, readable(seen))
        rows = [
            guest_status(guest, seen, waiting.get(guest.label, ())) for guest in environment.guests
        ]
        strays = () if only else undeclared(here.client, environment, seen.inventory)
        rows.extend(strays)
        if json:
            print_json([row.model_dump(mode="json") for row in rows])
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("guest", "vmid", "node", "power", "state", "run", "address", "differences"):
            table.add_column(column)
        for row in rows:
            table.add_row(
                row.name if row.state == "older" or _of_recipe(recipe, row) else row.label,
                str(row.vmid),
                row.node,
                _power("" if _never_runs(seen.inventory, row) else row.power),
                row.state,
                row.run or "",
                row.addresses[0] if row.addresses else "",
                escape("\n".join(_differences(row, seen, waiting.get(row.label, ())))),
            )
        out.print(table)
        out.print()
        what = "to change" if recipe is None else "not as declared"
        said = counted(seen, differing=what)
        out.print(f"[bold]{here.environment.name}[/] on {here.connection.label}: {said}")
        if late := [row.label for row in rows if _waits(row, seen, waiting.get(row.label, ()))]:
            out.print(_restart(late), markup=False, soft_wrap=True)
        if recipe is not None and not seen.nothing_to_do:
            advise(command("template build", manifest, cluster) + " --reconcile --dry-run")
        if lost := [stray for stray in strays if stray.state == "undeclared"]:
            advice = _advice(lost, command("down", manifest, cluster))
            out.print(advice, markup=False, soft_wrap=True)


def _advice(strays: Sequence[GuestStatus], down: str) -> str:
    """How to be rid of guests that nobody declares; one at a time needs its node declared."""
    names = ", ".join(f"{stray.label} (VM {stray.vmid})" for stray in strays)
    return (
        f"No longer in the manifest: {names}. `{down}` removes them with all others; for them "
        "alone, put them back into the manifest and use `down --only NAME`."
    )


def _session(here: Opened, inventory: Inventory) -> Session:
    """A session that reads, about the newest generation of a template and its clones."""
    environment = as_it_is(here.client, inventory, here.everyone)
    run = RunRef(manifest=str(environment.path), env=environment.name, run_id=_NO_RUN)
    return Session(run, environment, here.connection, here.client, everyone=here.everyone)


def _of_recipe(recipe: Recipe | None, row: GuestStatus) -> bool:
    """Whether it is the template itself, which people know by its name."""
    return recipe is not None and row.label == TEMPLATE


def _never_runs(inventory: Inventory, row: GuestStatus) -> bool:
    live = inventory.guest(row.vmid)
    return live is not None and live.template


def _differences(row: GuestStatus, seen: Survey, pending: Sequence[Change]) -> list[str]:
    """A line a difference; one that is in the configuration only, and not in use yet, says so."""
    late = {change.target: change for change in pending}
    told = _told_of(row, seen)
    lines = [text for text in row.differences if text not in map(str, told)]
    for change in told:
        waits = late.pop(change.target, None)
        note = "" if waits is None else _unused(waits)
        lines.append(str(change.model_copy(update={"note": note}) if note else change))
    return [*lines, *(f"{change} (after a restart)" for change in late.values())]


def _unused(waits: Change) -> str:
    before = str(waits.model_copy(update={"kind": "remove", "note": ""})).partition(": ")[2]
    return f"configured only: until a restart it runs with {before}"


def _waits(row: GuestStatus, seen: Survey, pending: Sequence[Change]) -> bool:
    """Whether a restart is to be wished for: it brings what is declared."""
    differing = {change.target for change in _told_of(row, seen)}
    return any(change.target not in differing for change in pending)


def _told_of(row: GuestStatus, seen: Survey) -> tuple[Change, ...]:
    declared = {guest.label for guest in seen.environment.guests if guest.vmid == row.vmid}
    return seen.plan.guest(row.label).changes if row.label in declared else ()


def _restart(labels: Sequence[str]) -> str:
    return (
        f"Changes wait for a restart of {', '.join(labels)}: Proxmox VE takes them over when the "
        "guest is stopped and started (or rebooted in its page), not when it reboots by itself."
    )


def _power(status: str) -> str:
    colour = {"running": "green", "stopped": "yellow"}.get(status, "dim")
    return f"[{colour}]{status or '-'}[/]"


if __name__ == "__main__":
    app()
