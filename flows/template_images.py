"""``template images``: the cached images and seed ISOs, listed and cleared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.markup import escape
from rich.table import Table

from blocks.proxmox.client import Client
from blocks.proxmox.connection import resolve
from blocks.proxmox.errors import BadSettings, ProxmoxError
from blocks.units import human_size
from blocks.words import count
from flows.opening import templates_only
from flows.parameters import ClusterName, Json, Yes
from flows.terminal import Exit, confirm, err, faults_shown, out, print_json, say, show_notices
from tasks.masking import open_environment
from tasks.template.cached import Cached, Wanted, list_cached, remove_cached, wanted_by

Recipes = Annotated[
    list[Path] | None,
    Parameter(help="Templates whose images stay.", show_default=False, negative=""),
]
Clear = Annotated[bool, Parameter(name="--clear", negative="", help="Delete what nobody needs.")]
OlderThan = Annotated[
    float,
    Parameter(
        name="--older-than",
        help="Days that a file must be old to be deleted; a build may need a younger one.",
        validator=Number(gte=0),
    ),
]


_SUBJECT = re.compile(r"VM \d+ \([^)]*\) on [^\s,]+|template [^\s,]+")
_GUEST_NAME = re.compile(r"VM \d+ \((?P<name>[^)]*)\)")
_DECLARES = re.compile(r"template \S+, which declares (?P<name>\S+)")


def add_images(app: App) -> None:
    """Put the command into the command line of templates."""
    app.command(images)


def images(
    recipes: Recipes = None,
    *,
    cluster: ClusterName = None,
    clear: Clear = False,
    older_than: OlderThan = 1.0,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """List the disk images and seed ISOs that Proxflow keeps, or delete those that nobody needs.

    On the cluster's storages, and in this machine's cache. What is not certainly Proxflow's is
    listed and stays. Exit codes: 0 done, 1 failed, 2 bad input (nothing was changed).
    """
    with faults_shown(), ExitStack() as stack:
        wanted, context = _read(recipes or ())
        connection = resolve(cluster, context=context)
        client = stack.enter_context(Client(connection))
        show_notices(client.notices)
        found = list_cached(client, wanted)
        going = tuple(each for each in found if each.may_go(older_than))
        gone: list[str] = []
        errors: list[str] = []
        if not json:
            out.print(_table(found, older_than))
            size = human_size(sum(each.size for each in going))
            err.print(f"{count(len(going), 'file')}, {size}, may go")
            young = sum(each.may_go(0) for each in found) - len(going)
            if young and not going:
                few = "file that nobody needs is", "files that nobody needs are"
                say(f"  next: {count(young, *few)} too young; --older-than 0 spares none")
        if clear and going:
            confirm(f"Delete {count(len(going), 'file')} of {connection.label}?", yes=yes)
            gone, errors = _clear(client, going if yes else _still(client, wanted, going))
        if json:
            print_json(_document(found, older_than, gone, errors))
    for text in errors:
        err.print("[red]error:[/] ", end="")
        err.print(text, markup=False, soft_wrap=True)
    raise SystemExit(int(Exit.FAILED if errors else Exit.DONE))


def _read(recipes: Sequence[Path]) -> tuple[list[Wanted], str | None]:
    """What the manifests need, and the context that they name. Raises ManifestError, BadSettings.

    One cluster is looked at, so templates of different ones have to be given apart.
    """
    environments = [open_environment(path) for path in recipes]
    for environment in environments:
        templates_only(environment)
    contexts = {environment.context for environment in environments if environment.context}
    if len(contexts) > 1:
        raise BadSettings(
            [f"these templates are for different clusters: {', '.join(sorted(contexts))}"],
            advice="give those of one cluster at a time",
        )
    wanted = [each for environment in environments if (each := wanted_by(environment))]
    return wanted, next(iter(contexts), None)


def _still(client: Client, wanted: Sequence[Wanted], going: Sequence[Cached]) -> list[Cached]:
    """Those that nobody has begun to need while the question stood."""
    needed = {(each.name, each.place) for each in list_cached(client, wanted) if each.needed_by}
    return [each for each in going if (each.name, each.place) not in needed]


def _clear(client: Client, going: Sequence[Cached]) -> tuple[list[str], list[str]]:
    """Names of what went, and errors."""
    gone, errors = [], []
    for each in going:
        try:
            if remove_cached(client, each):
                gone.append(each.name)
                err.print(f"deleted {each.name}", markup=False, soft_wrap=True)
            else:
                err.print(f"{each.name} is used by a run, and stays", markup=False, soft_wrap=True)
        except (ProxmoxError, OSError) as error:
            errors.append(f"{each.name}: {error}")
    return gone, errors


def state_of(each: Cached, older_than: float) -> str:
    """Why a file stays, or that nobody needs it, in words."""
    if each.kind == "unclear":
        return "not certainly Proxflow's"
    if each.needed_by:
        return "; ".join(_once_each(each.needed_by))
    if each.may_go(older_than):
        return "nobody"
    return f"nobody, but younger than {older_than:g} {'day' if older_than == 1 else 'days'}"


def _once_each(reasons: Sequence[str]) -> list[str]:
    """The first reason of each guest and manifest; a guest stands for the manifest it is of."""
    first: dict[str, str] = {}
    for text in reasons:
        subject = _SUBJECT.match(text)
        first.setdefault(subject[0] if subject else text, text)
    named = {found["name"] for text in first if (found := _GUEST_NAME.match(text))}
    return [
        text
        for text in first.values()
        if not ((made := _DECLARES.match(text)) and made["name"] in named)
    ]


def _table(found: Sequence[Cached], older_than: float) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in ("kind", "where", "name", "size", "days", "needed by"):
        table.add_column(column, overflow="fold")
    for each in found:
        table.add_row(
            each.kind,
            escape(each.place),
            escape(each.name),
            human_size(each.size),
            f"{each.days:.0f}",
            escape(state_of(each, older_than)),
        )
    return table


def _document(
    found: Sequence[Cached], older_than: float, gone: Sequence[str], errors: Sequence[str]
) -> dict[str, object]:
    return {
        "files": [
            {**each.model_dump(mode="json"), "may_go": each.may_go(older_than)} for each in found
        ],
        "deleted": list(gone),
        "errors": list(errors),
    }
