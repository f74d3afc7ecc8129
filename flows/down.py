"""Take an environment down: its guests with their disks, and its seed ISOs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from blocks.manifest.environment import Environment
from blocks.words import count
from flows.environment import happen, keep, run_name, running, told
from flows.opening import reading
from flows.parameters import (
    ClusterName,
    ContinueOnError,
    DryRun,
    Force,
    Json,
    Manifest,
    Only,
    Parallel,
    Yes,
)
from flows.progress import listener
from flows.removal import Removal, job_names, label_of, plan_removal
from flows.results import DownResult
from flows.running import run_locally
from flows.runtime import warm
from flows.terminal import (
    Exit,
    advise,
    command,
    command_line,
    confirm,
    err,
    faults_shown,
    out,
    print_json,
    show_findings,
    show_notices,
)
from tasks.destroy import Target, destroy
from tasks.findings import error, refuse
from tasks.fleet import NodeJob, StageCall, run_fleet
from tasks.found import uses
from tasks.stage import RunRef
from tasks.sweep import sweep

app = command_line("down", __doc__)


@flow(name="down", flow_run_name=run_name, persist_result=False)
def down(
    manifest: str,
    cluster: str | None = None,
    only: list[str] | None = None,
    parallel: Parallel = 4,
    continue_on_error: bool = False,
    force: bool = False,
) -> State[Any]:
    """Remove the guests of an environment, those that use others' disks before the owners.

    Only guests that carry the environment's mark are touched. The state's data is a
    ``DownResult`` as a dictionary.
    """

    def body() -> State[Any]:
        with running(manifest, cluster, only) as here:
            everyone = here.everyone or here.environment
            removal = plan_removal(
                here.client, everyone, here.environment, whole=not only, go_on=continue_on_error
            )
            refuse((*removal.findings, *map(error, happen("on_teardown_start", everyone))))
            fleet = run_fleet(
                down_jobs(here.run, removal, force=force),
                parallel=parallel,
                continue_on_error=continue_on_error,
                on_event=listener(),
            )
            troubles = happen("on_teardown_success", everyone) if fleet.ok else ()
            guests = set(job_names(removal.guests).values())
            gone = tuple(node.node for node in fleet.nodes if node.ok)
            result = DownResult(
                env=here.environment.name,
                run_id=here.run.run_id,
                ok=fleet.ok,
                removed=tuple(label for label in gone if label in guests),
                swept=swept(removal, gone),
                left=tuple(node.node for node in fleet.nodes if not node.ok),
                errors=tuple(map(str, fleet.failures)),
                warnings=(*map(str, removal.findings), *troubles),
                api_calls=here.client.calls.total(),
            )
            keep(here.environment, "down", result.markdown(), result.summary)
        data = result.model_dump(mode="json")
        if result.ok:
            return Completed(message=result.summary, data=data)
        return Failed(message="\n".join([result.summary, *result.errors]), data=data)

    return told(body)


def swept(removal: Removal, labels: Collection[str]) -> tuple[str, ...]:
    """Volume ids of the seed ISOs that go with these guests."""
    return tuple(seed.volume.volid for seed in removal.seeds if seed.name.guest in labels)


def down_jobs(run: RunRef, removal: Removal, *, force: bool) -> tuple[NodeJob, ...]:
    """One job a guest, in the order of removal: the guest, then its seeds.

    A template goes when every clone is gone: while one is left, it can be made anew from it.
    Seeds of several guests with one label, and of none, have a job of their own.
    """
    names = job_names(removal.guests)
    jobs = []
    for owner in removal.guests:
        name = names[owner.row.vmid]
        users = tuple(
            (names[user.row.vmid], "destroy")
            for user in removal.guests
            if uses(user, owner) or (owner.row.template and not user.row.template)
        )
        target = Target.of(owner, shares=owner.row.vmid in removal.sharing)
        stages = [
            StageCall(
                name="destroy", act=destroy.call(target, force), cancel=destroy.cancel, after=users
            )
        ]
        if name == label_of(owner):
            stages.append(StageCall(name="sweep", act=sweep.call(), cancel=sweep.cancel))
        jobs.append(NodeJob(node=name, run=run, stages=tuple(stages)))
    alone = {seed.name.guest for seed in removal.seeds} - {job.node for job in jobs}
    for label in sorted(alone):
        owners = tuple(
            (names[found.row.vmid], "destroy")
            for found in removal.guests
            if label_of(found) == label
        )
        call = StageCall(name="sweep", act=sweep.call(), cancel=sweep.cancel, after=owners)
        jobs.append(NodeJob(node=label, run=run, stages=(call,)))
    return tuple(jobs)


@app.default
def main(
    manifest: Manifest,
    *,
    cluster: ClusterName = None,
    only: Only = None,
    parallel: Parallel = 4,
    continue_on_error: ContinueOnError = False,
    dry_run: DryRun = False,
    force: Force = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Take an environment down: its guests with their disks, and its seed ISOs.

    Names what it will delete and asks. Only guests that carry the environment's mark are touched;
    they are shut down in an orderly way first, unless --force pulls the power. Exit codes: 0 done,
    1 failed, 2 bad input (nothing was changed).
    """
    with faults_shown():
        with reading(manifest, cluster, only) as here:
            show_notices(here.client.notices)
            removal = plan_removal(
                here.client,
                here.everyone,
                here.environment,
                whole=not only,
                go_on=continue_on_error,
            )
            name, where = here.environment.name, here.connection.label
        show_removal(removal, here.environment)
        refuse(removal.findings)
        show_findings(removal.findings)
        if dry_run or not (removal.guests or removal.seeds):
            if json:
                gone = tuple(job_names(removal.guests).values())
                seeds = tuple(seed.volume.volid for seed in removal.seeds)
                would = DownResult(env=name, run_id="", ok=True, removed=gone, swept=seeds)
                print_json(would.model_dump(mode="json"))
            return
        warm()
        confirm(question(removal, f"of {name} on {where}"), yes=yes)
        ended = run_locally(
            down,
            manifest=str(manifest.resolve()),
            cluster=cluster,
            only=only,
            parallel=parallel,
            continue_on_error=continue_on_error,
            force=force,
        )
        result = DownResult.model_validate(ended.result)
    show(result, manifest=str(manifest), cluster=cluster, json=json)
    raise SystemExit(int(Exit.DONE if ended.ok else Exit.FAILED))


def question(removal: Removal, whose: str) -> str:
    """What is to be confirmed: guests with their disks, or only seed ISOs that were left."""
    if removal.guests:
        return f"Delete {count(len(removal.guests), 'guest')} {whose} with all their disks?"
    return f"Delete {count(len(removal.seeds), 'seed ISO')} {whose}?"


def show_removal(removal: Removal, environment: Environment) -> None:
    """Every guest, its disks and every seed that will go."""
    for found in removal.guests:
        label = label_of(found)
        stray = " (no longer in the manifest)" if label in removal.undeclared else ""
        # Generations share a label.
        name = found.row.name if found.row.template else label
        err.print(
            f"[red]- {name}[/]  [dim]{found.row.vmid} on {found.row.node}[/]  "
            f"{found.row.status}{stray}"
        )
        for volume in found.volumes():
            err.print(f"    {volume}", markup=False)
    for seed in removal.seeds:
        err.print(f"[red]-[/] {seed.volume.volid} [dim]on {seed.node}[/]")
    err.print()
    what = count(len(removal.guests), "guest"), count(len(removal.seeds), "seed ISO")
    if removal.guests or removal.seeds:
        err.print(f"[bold]Down:[/] {' and '.join(what)} to delete")
    else:
        err.print(f"[bold]Down:[/] nothing to do, {environment.name} has no guests here")


def show(result: DownResult, *, manifest: str, cluster: str | None, json: bool) -> None:
    """What went, what did not, and what to do next."""
    if json:
        print_json(result.model_dump(mode="json"))
        return
    out.print()
    for text in result.errors:
        out.print("[red]error:[/] ", end="")
        out.print(text, markup=False, soft_wrap=True)
    tail = f"run {result.run_id}, {count(result.api_calls, 'API call')}"
    out.print(f"[bold]{result.env}:[/] {result.summary} [dim]({tail})[/]")
    if not result.ok:
        advise(f"mend the cause and run `{command('down', manifest, cluster)}` again")


if __name__ == "__main__":
    app()
