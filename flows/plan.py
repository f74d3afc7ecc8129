"""Show what `up` would do."""

from __future__ import annotations

from flows.opening import environments_only, reading
from flows.parameters import ClusterName, Json, Manifest, Only
from flows.plan_text import plan_document, plan_lines
from flows.terminal import (
    Exit,
    command_line,
    faults_shown,
    out,
    print_json,
    show_findings,
    show_notices,
)
from tasks.findings import forbids
from tasks.planning import plan_findings
from tasks.survey import survey

app = command_line("plan", __doc__)


@app.default
def main(
    manifest: Manifest,
    *,
    cluster: ClusterName = None,
    only: Only = None,
    json: Json = False,
) -> None:
    """Show what `up` would do, and change nothing.

    Reads the cluster with one call, and one more for each declared guest that exists. Exit codes:
    0 done, 1 failed, 2 bad input, or a plan that `up` would refuse.
    """
    with faults_shown(), reading(manifest, cluster, only) as here:
        environments_only(here.everyone)
        show_notices((*here.environment.notices, *here.client.notices))
        seen = survey(here.client, here.environment, cluster=here.connection.label)
        findings = plan_findings(seen)
        if json:
            print_json(plan_document(seen, findings))
        else:
            out.print(plan_lines(seen))
        show_findings(findings)
    if forbids(findings):
        raise SystemExit(int(Exit.BAD_INPUT))


if __name__ == "__main__":
    app()
