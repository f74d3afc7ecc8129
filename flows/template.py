"""Build golden templates from cloud images, and clone guests from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from cyclopts import Parameter
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from blocks.words import count
from flows.environment import keep, open_session, run_name, running, told
from flows.opening import templates_only
from flows.parameters import ClusterName, DryRun, Json, KeepFailed, Parallel, Yes
from flows.progress import listener, notify
from flows.running import run_locally
from flows.runtime import warm
from flows.template_images import add_images
from flows.template_jobs import template_jobs
from flows.template_plan import plan_document, plan_lines, plan_markdown, planned_summary
from flows.template_results import (
    NOT_ASKED,
    StageLine,
    TemplateResult,
    machine_table,
    result_markdown,
    stage_table,
    template_result,
)
from flows.template_stages import refuse_rebuild, select
from flows.terminal import (
    Exit,
    advise,
    command,
    command_line,
    confirm,
    err,
    fail,
    faults_shown,
    out,
    print_json,
    print_text,
    say,
    show_findings,
    show_new_findings,
    show_notices,
    will_ask,
)
from flows.undo import undo_template
from tasks.errors import StageError
from tasks.findings import Finding, forbids, refuse
from tasks.fleet import FleetResult, run_fleet
from tasks.preflight import joined
from tasks.session import Session
from tasks.stage import Event, Scope, StageFailed
from tasks.template.clone import clean_up
from tasks.template.preflight import check_template
from tasks.template.seen import TemplateSurvey, require_recipe, survey_template
from tasks.template.stages import (
    is_published,
    leave_others_alone,
    publish,
    refuse_others,
    surveyed,
    template_preflight,
)

app = command_line("template", __doc__)
add_images(app)

Recipe = Annotated[
    Path, Parameter(help="The template's file, such as TEMPLATE.yaml.", show_default=False)
]
Stages = Annotated[
    list[str] | None,
    Parameter(
        name="--stages",
        negative="",
        help="Only these stages, such as image,create. The stages are preflight, image, create, "
        "configure, template, clones; vm is create and configure.",
    ),
]
Skip = Annotated[
    list[str] | None,
    Parameter(name="--skip", negative="", help="Not these stages, such as clones."),
]
From = Annotated[
    str | None, Parameter(name="--from", help="This stage and those after it, such as configure.")
]
Reconcile = Annotated[
    bool,
    Parameter(
        negative="",
        help="Change finished clones that differ from the manifest, and start those that were "
        "stopped; else they are only shown.",
    ),
]
Rebuild = Annotated[
    bool,
    Parameter(
        negative="",
        help="Make a new generation now, whether one is due or not; for a template with `rebuild`.",
    ),
]


@flow(
    name="template",
    flow_run_name=run_name,
    persist_result=False,
    on_failure=[undo_template],
    on_crashed=[undo_template],
    on_cancellation=[undo_template],
)
def template(
    manifest: str,
    cluster: str | None = None,
    stages: list[str] | None = None,
    skip: list[str] | None = None,
    start_with: str | None = None,
    parallel: Parallel = 4,
    reconcile: bool = False,
    rebuild: bool = False,
    dry_run: bool = False,
    rollback: bool = True,
) -> State[Any]:
    """Build a golden template and its clones, as the manifest declares them.

    ``stages``, ``skip`` and ``start_with`` choose among preflight, image, create, configure,
    template and clones; ``rebuild`` makes a new generation whether one is due or not. A run that
    fails before the template is finished is rolled back; a clone that fails is removed alone, and
    the others go on. The state's data is a ``TemplateResult`` as a dictionary.
    """

    def body() -> State[Any]:
        chosen = select(stages, skip, start_with)
        options = {"reconcile": reconcile, "rebuild": rebuild}
        with running(manifest, cluster, options=options) as here:
            templates_only(here.environment)
            if rebuild:
                refuse_rebuild(require_recipe(here.environment), chosen)
            seen = surveyed(here.run, chosen)
            planned = planned_summary(seen, chosen, reconcile=reconcile)
            shown = plan_markdown(seen, chosen, reconcile=reconcile)
            keep(here.environment, "plan", shown, planned)
            pending = seen.pending(chosen, reconcile=reconcile)
            if not dry_run and unfinished(seen):
                leave_others_alone(here.run, seen, pending)
            began = time.monotonic()
            findings = refuse(seen.findings(chosen))
            line = StageLine(name="preflight", status="unchanged", detail="nothing to check")
            if checking := seen.checking(chosen, reconcile=reconcile):
                findings = template_preflight(here.run, seen, checking, reconcile)
                show_new_findings(findings)
                seconds = round(time.monotonic() - began, 3)
                words = count(len(findings), "warning") if findings else "nothing found"
                line = StageLine(name="preflight", status="done", seconds=seconds, detail=words)
            if dry_run:
                return Completed(message=planned)
            result = make(
                here,
                seen,
                chosen,
                pending,
                line,
                findings,
                parallel=parallel,
                reconcile=reconcile,
                rollback=rollback,
            )
            keep(here.environment, "result", result_markdown(result), result.summary)
        data = result.model_dump(mode="json")
        if result.ok:
            return Completed(message=result.summary, data=data)
        return Failed(message="\n".join([result.summary, *result.errors]), data=data)

    return told(body)


def unfinished(seen: TemplateSurvey) -> bool:
    """Whether there is something that an earlier run began, or another one is at."""
    return any(seen.standing(guest) == "unfinished" for guest in seen.environment.guests)


def make(
    here: Session,
    seen: TemplateSurvey,
    chosen: Sequence[str],
    pending: frozenset[str],
    preflight: StageLine,
    findings: Sequence[Finding],
    *,
    parallel: int,
    reconcile: bool,
    rollback: bool,
) -> TemplateResult:
    """The stages of the template and of its clones; failed clones are removed at the end."""
    jobs = template_jobs(here.run, seen, pending, here.connection.label, reconcile=reconcile)
    began = time.monotonic()
    fleet = FleetResult(())
    if jobs:
        fleet = run_fleet(jobs, parallel=parallel, continue_on_error=True, on_event=listener())
    own = sum(node.seconds for node in fleet.nodes if node.node == seen.template.label)
    elapsed = time.monotonic() - began
    cleaned = clean_clones(here, seen, fleet) if rollback else ()
    left = () if reconcile else seen.differing()
    errors, warnings = [], [*map(str, findings), *left, *cleaned]
    recipe = require_recipe(here.environment)
    built = all(node.ok for node in fleet.nodes if node.node == seen.template.label)
    if "template" in chosen and built and is_published(recipe):
        try:
            with Scope(emit=listener())():
                published = publish(here.run, seen.template.label)
        except StageFailed as failure:
            errors.append(str(failure))
        else:
            warnings += published.warnings
    return template_result(
        here.environment.name,
        here.run.run_id,
        seen.template,
        seen.clones,
        fleet,
        chosen=chosen,
        preflight=preflight,
        standing=seen.standing(seen.template),
        clone_seconds=max(0.0, elapsed - own),
        errors=errors,
        warnings=warnings,
        api_calls=here.client.calls.total(),
    )


def clean_clones(here: Session, seen: TemplateSurvey, fleet: FleetResult) -> tuple[str, ...]:
    """Remove the clones that this run made and could not finish; what was done, a line each."""
    labels = {clone.label for clone in seen.clones}
    said = []
    for node in fleet.nodes:
        if node.node in labels and node.failure is not None:
            text = clean_up(here, node.node, node.failure)
            if text:
                notify(Event(node=node.node, stage="cleanup", state="done", detail=text))
                said.append(f"{node.node}: {text}")
    return tuple(said)


def nothing_done(
    here: Session, seen: TemplateSurvey, chosen: Sequence[str], run_id: str = ""
) -> TemplateResult:
    """The result where everything is there already."""
    return template_result(
        here.environment.name,
        run_id,
        seen.template,
        seen.clones,
        FleetResult(()),
        chosen=chosen,
        preflight=StageLine(name="preflight", status="unchanged", detail="nothing to check"),
        standing=seen.standing(seen.template),
        clone_seconds=0.0,
        warnings=seen.differing(),
        api_calls=here.client.calls.total(),
    )


@app.command
def build(
    manifest: Recipe,
    *,
    cluster: ClusterName = None,
    stages: Stages = None,
    skip: Skip = None,
    start_with: From = None,
    parallel: Parallel = 4,
    reconcile: Reconcile = False,
    rebuild: Rebuild = False,
    dry_run: DryRun = False,
    no_rollback: KeepFailed = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Build a template and its clones: preflight, image, create, configure, template, clones.

    Every stage looks first and skips what is done, so a second run changes nothing and an
    interrupted one is taken up where it stopped. A clone that fails does not stop the others. Exit
    codes: 0 done, 1 failed, 2 bad input (nothing was changed).
    """
    with faults_shown():
        chosen = select(stages, skip, start_with)
        options = {"reconcile": reconcile, "rebuild": rebuild}
        here = open_session(uuid4().hex[:8], manifest, cluster, options=options)
        try:
            templates_only(here.environment)
            if rebuild:
                refuse_rebuild(require_recipe(here.environment), chosen)
            show_notices((*here.environment.notices, *here.client.notices))
            seen = _survey(here, chosen)
            pending = seen.pending(chosen, reconcile=reconcile)
            findings = tuple(seen.findings(chosen))
            checking = seen.checking(chosen, reconcile=reconcile)
            # Before the question, or a refusal: what the run's preflight would find, too.
            if checking and (dry_run or forbids(findings) or will_ask(yes=yes)):
                more = check_template(
                    here.client,
                    here.connection,
                    seen.environment,
                    seen.inventory,
                    stages=checking,
                    reconcile=reconcile,
                )
                # It knows more of the guests of others than what was read for the plan.
                findings = joined(seen.findings(set(chosen) - checking), more)
            if unfinished(seen):
                try:
                    refuse_others(here, seen, pending)
                except StageError as error:
                    if not dry_run:
                        raise
                    show_notices((error.message,))
            where = here.connection.label
            err.print(plan_lines(seen, chosen, reconcile=reconcile))
            show_findings(refuse(findings))
            if dry_run:
                if json:
                    print_json(plan_document(seen, pending, findings))
                return
            if not pending and not checking and not ("template" in chosen and seen.unpublished):
                result = nothing_done(here, seen, chosen)
                show_result(result, manifest=str(manifest), cluster=cluster, json=json)
                return
            name = here.environment.name
        finally:
            here.close()
        warm()
        confirm(f"Build {name} on {where}?", yes=yes or set(chosen) == {"preflight"})
        ended = run_locally(
            template,
            manifest=str(manifest.resolve()),
            cluster=cluster,
            stages=stages,
            skip=skip,
            start_with=start_with,
            parallel=parallel,
            reconcile=reconcile,
            rebuild=rebuild,
            rollback=not no_rollback,
        )
        result = TemplateResult.model_validate(ended.result)
        show_result(result, manifest=str(manifest), cluster=cluster, json=json, reconcile=reconcile)
    raise SystemExit(int(Exit.DONE if ended.ok else Exit.FAILED))


def _survey(here: Session, chosen: Sequence[str]) -> TemplateSurvey:
    """Leaves with 2 where what the manifest names cannot be had: nothing was changed."""
    try:
        return survey_template(here, datetime.now(UTC).date(), chosen)
    except StageError as error:
        code = Exit.FAILED if error.transient else Exit.BAD_INPUT
        fail(error.message, error.advice, code=code)


@app.command(name="import")
def import_(variables: Annotated[Path, Parameter(help="The variable file.")]) -> None:
    """Print the manifest that flat Ansible variables describe; what is not known is listed.

    Such files drive playbooks of `qm` commands: vm_id, vm_name, image_url, create_clones and so
    on. Nothing on a cluster is asked or changed.
    """
    from blocks.manifest.template.ansible_vars import convert_file, to_yaml

    with faults_shown():
        converted = convert_file(variables)
    print_text(to_yaml(converted.document))
    for text in converted.notes:
        say(f"note: {text}")
    for key in converted.unknown:
        say(f"not converted: {key}")
    raise SystemExit(int(Exit.DONE))


def show_result(
    result: TemplateResult,
    *,
    manifest: str,
    cluster: str | None,
    json: bool,
    reconcile: bool = False,
) -> None:
    """The stages, the machines, what went wrong, and what to do next."""
    if json:
        print_json(result.model_dump(mode="json"))
        return
    out.print()
    out.print(stage_table(result))
    out.print()
    out.print(machine_table(result))
    _each("[yellow]warning:[/] ", result.warnings)
    _each("[red]error:[/] ", result.errors)
    out.print()
    run = f"run {result.run_id}, " if result.run_id else ""
    tail = f"{run}{count(result.api_calls, 'API call')}"
    out.print(f"[bold]{result.env}:[/] {result.summary} [dim]({tail})[/]")
    again = command("template build", manifest, cluster) + " --reconcile" * reconcile
    if not result.ok:
        advise(
            f"mend the cause and run `{again}` again; it goes on where this one stopped;",
            f"what a run left is removed by `{command('rollback', manifest, cluster)}`",
        )
    elif result.run_id:
        advise(*_next_steps(result, manifest, cluster))


def _next_steps(result: TemplateResult, manifest: str, cluster: str | None) -> list[str]:
    left_out = {line.name for line in result.stages if line.detail == NOT_ASKED}
    build_all = f"{command('template build', manifest, cluster)}  # the stages left out"
    if len(left_out) == len(result.stages) - 1 and "preflight" not in left_out:
        return [build_all]
    steps = [build_all] if left_out & {"template", "clones"} else []
    steps.append(command("status", manifest, cluster))
    steps.append(command("verify", manifest, cluster))
    steps.append(command("down", manifest, cluster))
    return steps


def _each(head: str, texts: Sequence[str]) -> None:
    show: Callable[..., None] = out.print
    for text in texts:
        show(head, end="")
        show(text, markup=False, soft_wrap=True)


if __name__ == "__main__":
    app()
