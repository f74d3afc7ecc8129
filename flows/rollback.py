"""Undo a run of `up`: remove exactly what it made, set back what it changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

from cyclopts import Parameter
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from pydantic import Field
from rich.markup import escape

from blocks.words import count
from flows.environment import keep, run_name, running, told
from flows.opening import reading
from flows.parameters import ClusterName, DryRun, Json, Manifest, Yes
from flows.progress import notify
from flows.running import run_locally
from flows.runtime import warm
from flows.terminal import (
    Exit,
    command_line,
    confirm,
    err,
    fail,
    faults_shown,
    out,
    print_json,
    show_notices,
)
from flows.undo import summary, undone_markdown
from tasks.found import FoundGuest, FoundSeed
from tasks.journal import Entry, journals, read_journal
from tasks.rollback import Traces, Undone, traces, undo_run
from tasks.stage import Event

app = command_line("rollback", __doc__)

_RUN_ID = r"[0-9a-f]{8}"


def _check_run_id(_type: object, value: str | None) -> None:
    if value is not None and not re.fullmatch(_RUN_ID, value):
        raise ValueError("a run is named by the eight hexadecimal digits that its result shows")


RunId = Annotated[
    str | None,
    Parameter(
        name="--run",
        help="The run, as marks and results name it. Default: the one unfinished run there is.",
        validator=_check_run_id,
    ),
]


@flow(name="rollback", flow_run_name=run_name, persist_result=False)
def rollback(
    manifest: str,
    run: Annotated[str, Field(pattern=f"^{_RUN_ID}$")],
    cluster: str | None = None,
) -> State[Any]:
    """Undo one run of ``up``; the state's data is an ``Undone`` as a dictionary."""

    def body() -> State[Any]:
        with running(manifest, cluster) as here:
            done = undo_run(
                here.client,
                here.environment.name,
                run,
                declared=here.environment.possible_guests(),
                say=lambda text: notify(
                    Event(node=run, stage="rollback", state="done", detail=text)
                ),
            )
            keep(here.environment, "rollback", undone_markdown(done), summary(done))
        data = done.model_dump(mode="json")
        if done.errors:
            return Failed(message="\n".join([summary(done), *done.errors]), data=data)
        return Completed(message=summary(done), data=data)

    return told(body)


@app.default
def main(
    manifest: Manifest,
    *,
    run: RunId = None,
    cluster: ClusterName = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Undo a run of `up`: remove exactly what it made, set back what it changed.

    A run's guests and seed ISOs are found by its marks on the cluster, so this works after a kill
    and from another machine. Nothing else is touched. Exit codes: 0 done, 1 failed, 2 bad input or
    nothing of that run is left (nothing was changed).
    """
    with faults_shown():
        with reading(manifest, cluster) as here:
            show_notices(here.client.notices)
            found = traces(here.client, here.environment.name)
            name, where = here.environment.name, here.connection.label
        run = run or _only_unfinished(found.guests, found.seeds, name)
        guests, seeds = found.of(run)
        entries = read_journal(name, run)
        if not (guests or seeds or entries):
            _unknown(run, found, name, where)
        show_preview(run, guests, seeds, entries)
        if dry_run:
            if json:
                print_json(preview(run, guests, seeds, entries).model_dump(mode="json"))
            return
        warm()
        confirm(f"Undo run {run} of {name} on {where}?", yes=yes)
        ended = run_locally(rollback, manifest=str(manifest.resolve()), run=run, cluster=cluster)
        done = Undone.model_validate(ended.result)
    if json:
        print_json(done.model_dump(mode="json"))
    else:
        for text in (*done.notes, *done.errors):
            out.print(text, markup=False, soft_wrap=True)
        out.print(summary(done))
    raise SystemExit(int(Exit.DONE if ended.ok else Exit.FAILED))


def preview(
    run: str,
    guests: Sequence[FoundGuest],
    seeds: Sequence[FoundSeed],
    entries: Sequence[Entry],
) -> Undone:
    """What a rollback would say if all went well."""
    return Undone(
        run_id=run,
        guests=tuple(map(str, guests)),
        seeds=tuple(seed.volume.volid for seed in seeds),
        restored=tuple(f"VM {entry.vmid} ({entry.label})" for entry in entries),
    )


def show_preview(
    run: str,
    guests: Sequence[FoundGuest],
    seeds: Sequence[FoundSeed],
    entries: Sequence[Entry],
) -> None:
    """What will be deleted and set back; a guest that was installed is said to be."""
    for guest in guests:
        state = "installed" if guest.mark and guest.mark.ready else "not finished"
        err.print(f"[red]-[/] {escape(str(guest))} [dim]{state}[/]")
    for seed in seeds:
        err.print(f"[red]-[/] {escape(seed.volume.volid)} [dim]on {escape(seed.node)}[/]")
    for entry in entries:
        keys = ", ".join(sorted(entry.before))
        err.print(f"[yellow]~[/] VM {entry.vmid} ({escape(entry.label)}) [dim]{escape(keys)}[/]")
    what = f"{count(len(guests), 'guest')} and {count(len(seeds), 'seed ISO')} to delete"
    back = f", {count(len(entries), 'change')} to set back" if entries else ""
    err.print(f"[bold]Rollback of run {run}:[/] {what}{back}")


def _known(guests: Sequence[FoundGuest], seeds: Sequence[FoundSeed], env: str) -> list[str]:
    """The runs that can be undone: those with marks on the cluster, and those with a journal."""
    made = {guest.mark.run for guest in guests if guest.mark is not None}
    return sorted(made | {seed.name.run for seed in seeds} | set(journals(env)))


def _unknown(run: str, found: Traces, env: str, where: str) -> NoReturn:
    """Leave: a mistyped run must not look like one that was undone."""
    known = _known(found.guests, found.seeds, env)
    there = f"there is: {', '.join(known)}" if known else "there is no run to undo"
    fail(
        f"nothing of run {run} of {env} is on {where}, and no journal of it is here",
        f"{there}; was it undone already, or is it on another cluster (--cluster)?",
        code=Exit.BAD_INPUT,
    )


def _only_unfinished(guests: tuple[FoundGuest, ...], seeds: tuple[FoundSeed, ...], env: str) -> str:
    """The run that left unfinished guests, or seeds of no guest. Leaves where it is not clear."""
    marks = [guest.mark for guest in guests if guest.mark is not None]
    runs = {mark.run for mark in marks if not mark.ready}
    finished = {mark.guest for mark in marks if mark.ready}
    runs |= {seed.name.run for seed in seeds if seed.name.guest not in finished}
    if len(runs) == 1:
        return runs.pop()
    if not runs:
        known = _known(guests, seeds, env)
        fail(
            f"no unfinished run of {env} is on the cluster",
            f"name a run with --run; there is: {', '.join(known)}" if known else None,
            code=Exit.BAD_INPUT,
        )
    return fail(
        f"several unfinished runs of {env} are on the cluster",
        f"choose one with --run: {', '.join(sorted(runs))}",
        code=Exit.BAD_INPUT,
    )


if __name__ == "__main__":
    app()
