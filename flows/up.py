"""Bring an environment up: plan, preflight, install the nodes in parallel, finalize, verify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from blocks.manifest.environment import Environment
from blocks.proxmox.client import Client
from blocks.words import count
from flows.environment import happen, keep, run_name, running, told
from flows.jobs import up_jobs, verify_jobs
from flows.opening import environments_only, reading
from flows.parameters import (
    BootTimeout,
    ClusterName,
    ContinueOnError,
    DryRun,
    Json,
    KeepFailed,
    Manifest,
    Only,
    Parallel,
    SkipBuild,
    SkipFinalize,
    Yes,
)
from flows.plan_text import counted, plan_document, plan_lines, plan_markdown
from flows.progress import listener
from flows.result_text import result_markdown, result_table
from flows.results import UpResult, up_result
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
    show_new_findings,
    show_notices,
    will_ask,
)
from flows.undo import undo
from tasks.findings import Finding, error, forbids, refuse
from tasks.fleet import FleetResult, run_fleet
from tasks.hooks import Happening
from tasks.planned import planned
from tasks.planning import plan_findings
from tasks.preflight import find, joined, preflight
from tasks.session import Session
from tasks.survey import Survey, survey

app = command_line("up", __doc__)


@flow(
    name="up",
    flow_run_name=run_name,
    persist_result=False,
    on_failure=[undo],
    on_crashed=[undo],
    on_cancellation=[undo],
)
def up(
    manifest: str,
    cluster: str | None = None,
    only: list[str] | None = None,
    parallel: Parallel = 4,
    continue_on_error: bool = False,
    dry_run: bool = False,
    skip_kickstart_build: bool = False,
    skip_finalize: bool = False,
    rollback: bool = True,
    boot_timeout: BootTimeout = None,
) -> State[Any]:
    """Bring the guests of an environment into being, as its manifest declares them.

    A failed run is rolled back: what it made goes, what it changed is set back; with
    ``continue_on_error`` the finished guests stay. The state's data is an ``UpResult`` as a
    dictionary.
    """

    def body() -> State[Any]:
        options = {
            "skip_kickstart_build": skip_kickstart_build,
            "skip_finalize": skip_finalize,
            "boot_timeout": boot_timeout,
        }
        with running(manifest, cluster, only, options) as here:
            environments_only(here.environment)
            seen = planned(here.run)
            keep(here.environment, "plan", plan_markdown(seen), counted(seen))
            if not seen.nothing_to_do:
                known = plan_findings(seen)
                findings = preflight(
                    here.run, seen.building(), seen.inventory, known, seen.changing()
                )
                show_new_findings(findings)
                if not dry_run:
                    return bring_up(
                        here, seen, findings, parallel=parallel, continue_on_error=continue_on_error
                    )
            result = nothing_done(here.environment, here.client, here.run.run_id)
            return Completed(message=counted(seen), data=result.model_dump(mode="json"))

    return told(body)


def bring_up(
    here: Session,
    seen: Survey,
    findings: Sequence[Finding],
    *,
    parallel: int,
    continue_on_error: bool,
) -> State[Any]:
    """The stages of every guest, then verification; keeps and returns the result.

    ``findings``: the warnings of plan and preflight.
    """
    troubles = happen("on_validate_success", here.environment)
    refuse(map(error, happen("on_apply_start", here.environment)))
    fleet = run_fleet(
        up_jobs(here.run, seen, here.connection.label),
        parallel=parallel,
        continue_on_error=continue_on_error,
        on_event=listener(),
    )
    checks = None
    if fleet.ok and not here.skip_finalize:
        checks = run_fleet(
            verify_jobs(here.run, here.environment.guests),
            parallel=parallel,
            continue_on_error=True,
            on_event=listener(),
        )
    failures = "\n".join(map(str, fleet.failures))
    after: Happening = "on_apply_success" if fleet.ok else "on_apply_failure"
    troubles += happen(after, here.environment, failures)
    result = up_result(
        here.environment,
        here.run.run_id,
        fleet,
        checks,
        warnings=(*map(str, findings), *troubles),
        api_calls=here.client.calls.total(),
    )
    keep(here.environment, "result", result_markdown(result), result.summary)
    data = result.model_dump(mode="json")
    if result.ok:
        return Completed(message=result.summary, data=data)
    return Failed(message="\n".join([result.summary, *result.errors]), data=data)


def nothing_done(environment: Environment, client: Client, run_id: str = "") -> UpResult:
    """The result where there was nothing to do."""
    calls = client.calls.total()
    return up_result(environment, run_id, FleetResult(()), None, api_calls=calls)


@app.default
def main(
    manifest: Manifest,
    *,
    cluster: ClusterName = None,
    only: Only = None,
    parallel: Parallel = 4,
    continue_on_error: ContinueOnError = False,
    dry_run: DryRun = False,
    skip_kickstart_build: SkipBuild = False,
    skip_finalize: SkipFinalize = False,
    no_rollback: KeepFailed = False,
    boot_timeout: BootTimeout = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Bring an environment up: plan, preflight, install the nodes in parallel, finalize, verify.

    Shows the plan and asks before anything is changed. A second run of a finished environment
    changes nothing; a run that was interrupted is taken up where it stopped. Exit codes: 0 done,
    1 failed, 2 bad input (nothing was changed).
    """
    with faults_shown():
        with reading(manifest, cluster, only) as here:
            environments_only(here.everyone)
            show_notices((*here.environment.notices, *here.client.notices))
            seen = survey(here.client, here.environment, cluster=here.connection.label)
            findings = plan_findings(seen)
            looking = dry_run or forbids(findings) or will_ask(yes=yes)
            if looking and not seen.nothing_to_do:
                # Everything at once, before the question: what the run's preflight would find, too.
                more = find(
                    here.client, here.connection, seen.building(), seen.inventory, seen.changing()
                )
                findings = joined(findings, more)
        err.print(plan_lines(seen))
        show_findings(refuse(findings))
        if dry_run and json:
            print_json(plan_document(seen, findings))
        elif json and seen.nothing_to_do:
            print_json(nothing_done(here.environment, here.client).model_dump(mode="json"))
        if dry_run or seen.nothing_to_do:
            return
        warm()
        confirm(f"Bring {here.environment.name} up on {here.connection.label}?", yes=yes)
        ended = run_locally(
            up,
            manifest=str(manifest.resolve()),
            cluster=cluster,
            only=only,
            parallel=parallel,
            continue_on_error=continue_on_error,
            skip_kickstart_build=skip_kickstart_build,
            skip_finalize=skip_finalize,
            rollback=not no_rollback,
            boot_timeout=boot_timeout,
        )
        result = UpResult.model_validate(ended.result)
        show_result(result, manifest=str(manifest), cluster=cluster, json=json)
    raise SystemExit(int(Exit.DONE if ended.ok else Exit.FAILED))


def show_result(result: UpResult, *, manifest: str, cluster: str | None, json: bool) -> None:
    """The table, what went wrong, and what to do next."""
    if json:
        print_json(result.model_dump(mode="json"))
        return
    out.print()
    out.print(result_table(result))
    for text in result.warnings:
        out.print("[yellow]warning:[/] ", end="")
        out.print(text, markup=False, soft_wrap=True)
    for text in result.errors:
        out.print("[red]error:[/] ", end="")
        out.print(text, markup=False, soft_wrap=True)
    out.print()
    tail = f"run {result.run_id}, {count(result.api_calls, 'API call')}"
    out.print(f"[bold]{result.env}:[/] {result.summary} [dim]({tail})[/]")
    if result.ok:
        advise(*(command(name, manifest, cluster) for name in ("status", "verify", "down")))
    else:
        advise(
            f"mend the cause and run `{command('up', manifest, cluster)}` again;",
            f"what a run left is removed by `{command('rollback', manifest, cluster)}`",
        )


if __name__ == "__main__":
    app()
