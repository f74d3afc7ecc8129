"""Command line for manifests of environments and templates: ``python -m flows.manifest``.

Prefect stays unimported here: an editor that validates at each save does not wait for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from blocks.manifest.environment import Environment
from blocks.manifest.faults import Fault, ManifestError, suggestion
from blocks.words import count

BAD_INPUT = 2

app = App(
    name="python -m flows.manifest",
    help="Check, show and describe manifests of environments and templates.",
    version_flags=[],
)


@app.command
def validate(
    files: Annotated[list[Path], Parameter(negative="")],
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Check environments and templates, and say everything that is wrong with them.

    Parameters
    ----------
    files
        Master files (kind: Env or Template).
    as_json
        Print the result as JSON on standard output.
    """
    from blocks.manifest.loader import load_environment

    results = []
    faults: list[Fault] = []
    for file in files:
        try:
            environment = load_environment(file)
        except ManifestError as error:
            faults += error.faults
            found = [fault.model_dump() for fault in error.faults]
            results.append({"file": str(file), "valid": False, "faults": found})
            continue
        guests = [guest.label for guest in environment.guests]
        notices = [*environment.notices, *_absent(environment)]
        results.append(
            {
                "file": str(file),
                "valid": True,
                "name": environment.name,
                "guests": guests,
                "notices": notices,
            }
        )
        if not as_json:
            print(f"{file}: {environment.name} is valid, {_holds(environment)}")
            for notice in notices:
                print(f"  note: {notice}")
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        _complain(faults)
    return BAD_INPUT if faults else 0


@app.command
def render(
    file: Path,
    *,
    guests: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show an environment with its layers, profile and defaults in place; secrets are ***.

    Parameters
    ----------
    file
        Master file (kind: Env or Template).
    guests
        Add the guests that it compiles to.
    as_json
        Print JSON in place of YAML.
    """
    from blocks.manifest.loader import load
    from blocks.manifest.render import rendered, to_yaml

    try:
        document = rendered(load(file), guests=guests)
    except ManifestError as error:
        _complain(error.faults)
        return BAD_INPUT
    print(json.dumps(document, indent=2) if as_json else to_yaml(document), end="\n" * as_json)
    return 0


@app.command
def schema(kind: str | None = None) -> int:
    """Print the JSON Schema of a kind of document, or list the kinds.

    Parameters
    ----------
    kind
        Such as Env, Hypervisor or Networks.
    """
    from blocks.manifest.schema import KINDS
    from blocks.manifest.schema import schema as schema_of

    if kind is None:
        print("\n".join(KINDS))
        return 0
    known = {name.lower(): name for name in KINDS}
    if kind.lower() not in known:
        print(f"unknown kind {kind!r}; {suggestion(kind, KINDS, 'kinds')}", file=sys.stderr)
        return BAD_INPUT
    print(json.dumps(schema_of(known[kind.lower()]), indent=2))
    return 0


def _complain(faults: list[Fault] | tuple[Fault, ...]) -> None:
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        print(f"{count(len(faults), 'fault')}; nothing was changed", file=sys.stderr)


def _absent(environment: Environment) -> Iterator[str]:
    """What a build reads on this machine and is not there; the manifest may be for another one."""
    image = environment.recipe.template.image if environment.recipe is not None else None
    if image is not None and "://" not in image.origin and not Path(image.origin).is_file():
        yield f"the image {image.origin} is no file on this machine; `template build` reads it"


def _holds(environment: Environment) -> str:
    """What a manifest declares, in numbers."""
    if environment.recipe is None:
        return count(len(environment.guests), "guest")
    clones = len(environment.recipe.clones)
    return f"1 template, {count(clones, 'clone')}" if clones else "1 template"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0, or 2 where the input is at fault."""
    try:
        result = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        print(f"{str(error).strip()}\nsee: python -m flows.manifest --help", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader has seen enough, as with "| head".
        sys.stdout = None
        return 0
    except OSError as error:
        print(f"the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
