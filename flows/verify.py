"""Check that an environment, or a template with its clones, is as declared."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from blocks.proxmox.inventory import read_inventory
from blocks.words import count
from flows.environment import keep, run_name, running, told
from flows.jobs import verify_jobs
from flows.parameters import ClusterName, Json, Manifest, Only, Parallel
from flows.progress import Listener, listener
from flows.running import run_locally
from flows.runtime import warm
from flows.terminal import Exit, advise, command, command_line, faults_shown, out, print_json
from flows.verified import Verified, verified, verified_markdown
from tasks.fleet import NodeJob, run_fleet
from tasks.masking import open_environment
from tasks.session import Session
from tasks.stage import Event
from tasks.template.seen import as_it_is
from tasks.template.verify import verify_built

app = command_line("verify", __doc__)


@flow(name="verify", flow_run_name=run_name, persist_result=False)
def verify(
    manifest: str,
    cluster: str | None = None,
    only: list[str] | None = None,
    parallel: Parallel = 4,
) -> State[Any]:
    """Check every guest of a manifest, several at once; all deviations are reported.

    The state's data is a ``Verified`` as a dictionary; a deviation makes the run fail.
    """

    def body() -> State[Any]:
        with running(manifest, cluster, only) as here:
            checks = run_fleet(
                _jobs(here),
                parallel=parallel,
                continue_on_error=True,
                on_event=_brief(listener()),
            )
            result = verified(here.environment, checks)
            keep(here.environment, "verify", verified_markdown(result), result.summary)
        data = result.model_dump(mode="json")
        if result.ok:
            return Completed(message=result.summary, data=data)
        return Failed(message=result.summary, data=data)

    return told(body)


def _brief(listener: Listener) -> Listener:
    """The same without what each deviating guest has to say of the way on: the end says it once."""

    def take(event: Event) -> None:
        words = event.detail.partition("\n  next: ")[0]
        listener(event.model_copy(update={"detail": words}))

    return take


def _jobs(here: Session) -> tuple[NodeJob, ...]:
    """The checks of the chosen guests; of a template, those of its newest generation."""
    chosen, everyone = here.environment.guests, here.everyone or here.environment
    if everyone.recipe is None:
        return verify_jobs(here.run, chosen)
    # Clones are compared with their template, also where it was not chosen itself.
    here.environment = as_it_is(here.client, read_inventory(here.client), everyone)
    labels = {guest.label for guest in chosen}
    present = [guest for guest in here.environment.guests if guest.label in labels]
    return verify_jobs(here.run, present, verify_built)


@app.default
def main(
    manifest: Manifest,
    *,
    cluster: ClusterName = None,
    only: Only = None,
    parallel: Parallel = 4,
    json: Json = False,
) -> None:
    """Check that all is as declared: configuration, power, media, SSH, guest agent.

    Changes nothing. Exit codes: 0 as declared, 1 failed to check, 2 bad input, 3 drift found.
    """
    with faults_shown():
        recipe = open_environment(manifest).recipe
        warm()
        ended = run_locally(
            verify,
            manifest=str(manifest.resolve()),
            cluster=cluster,
            only=only,
            parallel=parallel,
        )
        result = Verified.model_validate(ended.result)
    plan = command("plan", manifest, cluster)
    if recipe is not None:
        plan = command("template build", manifest, cluster) + " --reconcile --dry-run"
    show(result, plan, json=json)
    raise SystemExit(int(result.exit_code))


def show(result: Verified, plan: str, *, json: bool) -> None:
    """A line a guest; all deviations below it. ``plan``: the command that shows what to do."""
    if json:
        print_json(result.model_dump(mode="json"))
        return
    for guest in result.guests:
        if guest.ok:
            out.print(f"[green]=[/] {guest.name or guest.label}  [dim]{guest.detail}[/]")
            continue
        out.print(f"[red]![/] {guest.name or guest.label}")
        for text in (*guest.deviations, *guest.errors):
            out.print(f"    {text}", markup=False, soft_wrap=True)
    out.print()
    out.print(f"[bold]{result.env}:[/] {result.summary}")
    if result.exit_code is Exit.DRIFT:
        advise(f"{plan}  # shows what would be changed")
    elif result.exit_code is Exit.FAILED:
        trouble = count(sum(bool(guest.errors) for guest in result.guests), "guest")
        advise(f"{trouble} could not be checked; see the errors above")


if __name__ == "__main__":
    app()
