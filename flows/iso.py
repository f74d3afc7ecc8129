"""Command line for installer files and seed ISOs: ``python -m flows.iso``.

What an operator sees here is what an installation would be told. Only ``upload`` asks a cluster,
and only there is Prefect imported, since stages are made of it; nothing is recorded.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter

from blocks.manifest.environment import UnknownGuest
from blocks.manifest.faults import ManifestError

if TYPE_CHECKING:
    from blocks.manifest.environment import Environment
    from blocks.manifest.guest import Guest

BAD_INPUT = 2
MASK = "***"

app = App(
    name="python -m flows.iso",
    help="Show, build and upload what the unattended installation of a node is told.",
    version_flags=[],
)


@app.command(name="list")
def list_(file: Path | None = None) -> int:
    """List the nodes of an environment that are installed from an ISO, or all distributions.

    Parameters
    ----------
    file
        Master file (kind: Env).
    """
    from tasks.iso.distros import DISTROS
    from tasks.iso.render import RenderError, render

    if file is None:
        known: list[tuple[str, ...]] = [
            (distro.name, distro.title, distro.family, distro.label, ", ".join(distro.files))
            for distro in DISTROS.values()
        ]
        _table(("distro", "title", "installer", "label", "files"), known)
        return 0
    environment = _load(file)
    rows: list[tuple[str, ...]] = []
    faults: list[str] = []
    for guest in environment.guests:
        if guest.install is None:
            continue
        try:
            rendered = render(guest, env=environment.name)
        except RenderError as error:
            faults.append(f"{guest.label}: {error}")
            continue
        distro = rendered.distro
        rows.append((guest.label, distro.name, distro.family, rendered.label, rendered.digest[:12]))
    _table(("node", "distro", "installer", "label", "content"), rows)
    if faults:
        raise _Refused("\n".join(faults))
    return 0


@app.command
def render(
    file: Path,
    node: str,
    *,
    show_secrets: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Print the installer files of a node; password hashes are *** unless asked for.

    Parameters
    ----------
    file
        Master file (kind: Env).
    node
        Name of the node in the manifest.
    show_secrets
        Print password hashes as they are.
    """
    from tasks.iso.render import RenderError
    from tasks.iso.render import render as rendered_of

    environment = _load(file)
    guest = environment.guest(node)
    try:
        rendered = rendered_of(guest, env=environment.name)
    except RenderError as error:
        raise _Refused(f"{guest.label}: {error}") from None
    print(f"# volume {rendered.label}, content {rendered.digest}")
    for name, text in rendered.files.items():
        shown = text if show_secrets else masked(guest, text)
        print(f"# --- {name}")
        print(shown, end="" if shown.endswith("\n") else "\n")
    return 0


@app.command
def build(
    file: Path,
    node: str,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Build the seed ISO of a node. It may hold password hashes and is for its owner alone.

    Parameters
    ----------
    file
        Master file (kind: Env).
    node
        Name of the node in the manifest.
    output
        Where to write it; by default a name with environment, node and content, in this folder.
    """
    from blocks.units import human_size
    from tasks.iso.build import build_seed, seed_name
    from tasks.iso.render import RenderError
    from tasks.iso.render import render as rendered_of

    environment = _load(file)
    guest = environment.guest(node)
    try:
        rendered = rendered_of(guest, env=environment.name)
        name = seed_name(environment.name, guest.label, rendered.digest, "manual")
    except RenderError as error:
        raise _Refused(f"{guest.label}: {error}") from None
    target = output if output is not None else Path(name)
    built = build_seed(rendered, target / name if target.is_dir() else target)
    print(f"{built.path}: {human_size(built.size)}, volume {rendered.label}, sha256 {built.sha256}")
    return 0


@app.command
def remaster(
    source: Path,
    distro: str,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Copy an install ISO with boot menus that start its installer (Ubuntu, Debian, SUSE).

    Parameters
    ----------
    source
        The install ISO, as downloaded.
    distro
        Name of the distribution, such as ubuntu2404 or debian12.
    output
        Where to write it; by default beside the source, with a part of its content's hash.
    """
    from blocks.units import human_size
    from tasks.iso.distros import UnknownDistro
    from tasks.iso.distros import distro as known_distro
    from tasks.iso.remaster import IsoError, remaster_key, remaster_name, sha256_of
    from tasks.iso.remaster import remaster as rewrite

    try:
        family = known_distro(distro).family
        if output is None or output.is_dir():
            name = remaster_name(source.name, remaster_key(sha256_of(source), family))
            output = (output or source.parent) / name
        made = rewrite(source, output, family)
    except (UnknownDistro, IsoError) as error:
        raise _Refused(f"{source}: {error}") from None
    print(f"{made.path}: {human_size(made.size)}")
    print(f"rewritten: {', '.join(made.changed) or 'nothing; it was rewritten before'}")
    return 0


@app.command
def upload(file: Path, node: str, *, cluster: str | None = None) -> int:
    """Put what a node is installed from onto its storages: the seed ISO, and the install ISO.

    The install ISO only where the manifest says in `iso.source` where it comes from. It is
    rewritten first where its installer needs it. What is there already, whole, stays.

    Parameters
    ----------
    file
        Master file (kind: Env).
    node
        Name of the node in the manifest.
    cluster
        Where to; by default what the environment or the manifest says.
    """
    from uuid import uuid4

    from blocks.proxmox.errors import ProxmoxError
    from flows.environment import open_session
    from tasks.iso.build import build_seed
    from tasks.iso.render import RenderError
    from tasks.media import provide
    from tasks.seed import local_seed
    from tasks.stage import Event, Scope, in_stage
    from tasks.upload import upload_seed

    def say(event: Event) -> None:
        print(f"{event.stage}: {event.detail}", file=sys.stderr)

    try:
        here = open_session(uuid4().hex[:8], file, cluster)
    except ProxmoxError as error:
        raise _Refused(f"{error.message}{_next(error.advice)}") from None
    try:
        guest = here.guest(node)
        if guest.install is None:
            raise _Refused(f"{guest.label} is not installed from an ISO")
        build_seed(here.rendered(guest), local_seed(here, guest))
        with Scope(emit=say)():
            for name, work in (("media", provide), ("upload", upload_seed)):
                with in_stage(guest.label, name):
                    outcome = work(here, guest)
                print(f"{name}: {outcome.status}: {outcome.detail}")
                for text in outcome.warnings:
                    print(f"warning: {text}", file=sys.stderr)
    except RenderError as error:
        raise _Refused(f"{node}: {error}") from None
    except ProxmoxError as error:
        print(f"{node}: {error.message}{_next(error.advice)}", file=sys.stderr)
        return 1
    finally:
        here.close()
    return 0


def masked(guest: Guest, text: str) -> str:
    """The text without the password hashes of the guest."""
    if guest.install is None:
        return text
    inst = guest.install.installation
    for secret in (inst.root_password_hash, *(user.password_hash for user in inst.users)):
        if secret is not None and secret.get_secret_value():
            text = text.replace(secret.get_secret_value(), MASK)
    return text


def _next(advice: str | None) -> str:
    return f"\n  next: {advice}" if advice else ""


class _Refused(Exception):
    """The input is at fault; the text says how."""


def _load(file: Path) -> Environment:
    from blocks.manifest.loader import load_environment

    return load_environment(file)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0, 1 where nothing can be written, 2 for faulty input."""
    try:
        result = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        print(f"{str(error).strip()}\nsee: python -m flows.iso --help", file=sys.stderr)
        return BAD_INPUT
    except (ManifestError, UnknownGuest, _Refused) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader has seen enough, as with "| head".
        sys.stdout = None
        return 0
    except OSError as error:
        print(f"cannot use {error.filename or 'the output'}: {error.strerror}", file=sys.stderr)
        return 1
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
