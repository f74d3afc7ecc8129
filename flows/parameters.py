"""The parameters that the commands share, with the words of their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from pydantic import Field

Manifest = Annotated[
    Path, Parameter(help="The environment's master file, such as env.yaml.", show_default=False)
]
ClusterName = Annotated[
    str | None,
    Parameter(
        name="--cluster",
        help="A context of clusters.yaml, `block:NAME` for a Prefect block, or `lab` for the "
        "embedded lab. Default: PROXMOX_* variables, else the manifest's proxmox_context, else "
        "the current context.",
    ),
]
Only = Annotated[
    list[str] | None,
    Parameter(
        name="--only",
        consume_multiple=True,
        negative="",
        help="Only these nodes of the manifest, by name or vm_id.",
    ),
]
# The same bound for the command line and for runs that Prefect starts.
Parallel = Annotated[
    int,
    Parameter(help="How many guests at once, at most.", validator=Number(gte=1)),
    Field(ge=1),
]
ContinueOnError = Annotated[
    bool,
    Parameter(
        negative="",
        help="Go on with the other nodes when one fails. Finished nodes then stay, too.",
    ),
]
DryRun = Annotated[bool, Parameter(negative="", help="Show the plan and change nothing.")]
SkipBuild = Annotated[
    bool,
    Parameter(
        name="--skip-kickstart-build",
        negative="",
        help="Build and upload no seed ISO: it is on its storage already.",
    ),
]
SkipFinalize = Annotated[
    bool,
    Parameter(
        negative="",
        help="Leave the install media in the drives; a later `up` finalizes the guests.",
    ),
]
KeepFailed = Annotated[
    bool,
    Parameter(
        name="--no-rollback",
        negative="",
        help="Leave what a failed run made, to be looked at. The next run goes on from there.",
    ),
]
BootTimeout = Annotated[
    Annotated[float, Field(gt=0)] | None,
    Parameter(
        help="Seconds that an installation may take until SSH answers. Default: by the installer, "
        "45 minutes to an hour.",
        validator=Number(gt=0),
    ),
]
Force = Annotated[
    bool,
    Parameter(negative="", help="Pull the power instead of shutting the guests down first."),
]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="", help="Do not ask.")]
Json = Annotated[
    bool,
    Parameter(name="--json", negative="", help="Print the result as JSON on standard output."),
]
