"""Stage announce: the hooks that wait for a guest to stand."""

from __future__ import annotations

from prefect import get_run_logger

from blocks.words import count
from tasks.hooks import fire
from tasks.session import session
from tasks.stage import Outcome, RunRef, stage


@stage("announce")
def announce(run: RunRef, node: str) -> Outcome:
    """Run the ``on_vm_ready`` hooks for one guest; a hook that fails is a warning."""
    here = session(run)
    log = get_run_logger().log
    troubles = fire("on_vm_ready", here.environment, guest=here.guest(node), log=log)
    hooks = len(here.environment.hooks.on_vm_ready)
    return Outcome(status="done", detail=count(hooks, "hook"), warnings=troubles)
