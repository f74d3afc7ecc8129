"""Show an environment as it is: guests, power, installation, addresses, differences."""

from __future__ import annotations

from cyclopts import App
from rich.markup import escape
from rich.table import Table

from blocks.manifest.guest import Guest
from blocks.manifest.plans import Action
from blocks.model import Model
from flows.opening import reading
from flows.parameters import ClusterName, Json, Manifest, Only
from flows.plan_text import counted
from flows.terminal import faults_shown, out, print_json, show_notices
from tasks.survey import Survey, survey

app = App(name="python -m flows.status", help=__doc__, help_format="plaintext", version_flags=[])


class GuestStatus(Model):
    """One guest as it is. ``state`` is absent, installing, ready, foreign or offline."""

    label: str
    vmid: int
    node: str
    name: str
    power: str
    state: str
    run: str | None = None
    addresses: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def guest_status(guest: Guest, seen: Survey) -> GuestStatus:
    """Put together what the survey knows of a guest. No call."""
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
    )


@app.default
def main(
    manifest: Manifest,
    *,
    cluster: ClusterName = None,
    only: Only = None,
    json: Json = False,
) -> None:
    """Show an environment as it is: guests, power, installation, addresses, differences.

    One call, and one more for each guest that exists. Exit codes: 0 done, 1 failed, 2 bad input.
    """
    with faults_shown(), reading(manifest, cluster, only) as here:
        show_notices(here.client.notices)
        seen = survey(here.client, here.environment, cluster=here.connection.label)
        rows = [guest_status(guest, seen) for guest in here.environment.guests]
        if json:
            print_json([row.model_dump(mode="json") for row in rows])
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("guest", "vmid", "node", "power", "state", "run", "address", "differences"):
            table.add_column(column)
        for row in rows:
            table.add_row(
                row.label,
                str(row.vmid),
                row.node,
                _power(row.power),
                row.state,
                row.run or "",
                row.addresses[0] if row.addresses else "",
                escape("\n".join(row.differences)),
            )
        out.print(table)
        out.print()
        out.print(f"[bold]{here.environment.name}[/] on {here.connection.label}: {counted(seen)}")


def _power(status: str) -> str:
    colour = {"running": "green", "stopped": "yellow"}.get(status, "dim")
    return f"[{colour}]{status or '-'}[/]"


if __name__ == "__main__":
    app()
