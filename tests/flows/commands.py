"""Command lines as a shell calls them, without the price of a process each."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort

from flows.environment import run_id_of
from flows.runtime.history import settle
from tests.history import runs_of_this_test


@dataclass(frozen=True)
class Said:
    """How a command ended: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Everything that was said."""
        return self.err + self.out

    def json(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)


class Commands:
    """``run("up", manifest, "--yes")`` is ``python -m flows.up manifest --yes``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, name: str, *words: object) -> Said:
        """Call a command; whatever it raises beside its exit is a failure of the test."""
        app = importlib.import_module(f"flows.{name}").app
        self._capsys.readouterr()
        code: object = 0
        try:
            app([str(word) for word in words])
        except SystemExit as leaving:
            code = leaving.code or 0
        out, err = self._capsys.readouterr()
        assert isinstance(code, int), code
        assert "Traceback" not in out + err, out + err
        return Said(code, out, err)

    def good(self, name: str, *words: object) -> Said:
        """A command that must end with 0."""
        said = self(name, *words)
        assert said.code == 0, said.text
        return said


def flow_run(run_id: str) -> FlowRun:
    """The flow run of a run id, as Prefect has it."""
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=50)
    return next(run for run in runs if run_id_of(run.id) == run_id)


def states(run_id: str) -> dict[str, str]:
    """Task run name to state name, of the flow run of a run id."""
    settle(runs_of_this_test(), 30)
    found = flow_run(run_id)
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(
            flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [found.id]}}),
            task_run_filter=TaskRunFilter(),
            limit=200,
        )
    return {run.name: str(run.state_name) for run in runs}
