"""A Prefect server with work pools, and a folder that stands for a clone in any place.

A module's fixtures: ``from tests.flows.served import Served, served``.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelling
from prefect.workers.process import ProcessWorker

from flows.runtime import pointed_at
from tests.flows.processes import ROOT, Program, eventually, prefect_server

PACKAGES = ("blocks", "tasks", "flows", "deployments", "tests")


class Served:
    """A server with a folder that stands for a clone in any place."""

    def __init__(self, url: str, home: Path, clone: Path) -> None:
        self.url = url
        self.home = home
        self.clone = clone
        self.lab_state = home / "lab"
        self.lab = {
            "PROXFLOW_LAB_STATE": str(self.lab_state),
            "PROXFLOW_STATE_DIR": str(home / "state"),
        }

    def start(self, *words: str, cwd: Path | None = None) -> Program:
        return Program(
            *("-m", "prefect", *words),
            home=self.home,
            api=self.url,
            cwd=cwd or self.clone,
            variables=self.lab,
        )

    def prefect(self, *words: str, cwd: Path | None = None) -> tuple[int, list[str]]:
        with self.start(*words, cwd=cwd) as command:
            return command.rest(), command.lines

    def begin(self, deployment: str, **parameters: object) -> FlowRun:
        """A run of a deployment as the page makes it, for a worker to take up."""
        with pointed_at(self.url), get_client(sync_client=True) as client:
            found = client.read_deployment_by_name(deployment)
            return client.create_flow_run_from_deployment(found.id, parameters=parameters)

    def ended(self, run: FlowRun) -> FlowRun:
        """The run once it has ended, and whatever it was to say has arrived."""
        found: list[FlowRun] = []

        def look() -> bool:
            with pointed_at(self.url), get_client(sync_client=True) as client:
                found[:] = [client.read_flow_run(run.id)]
            return found[0].state is not None and found[0].state.is_final()

        assert eventually(look, 240), found
        return found[0]

    def runs(self) -> list[FlowRun]:
        with pointed_at(self.url), get_client(sync_client=True) as client:
            return client.read_flow_runs()

    def cancel(self, run: FlowRun) -> None:
        with pointed_at(self.url), get_client(sync_client=True) as client:
            client.set_flow_run_state(run.id, Cancelling())

    @contextmanager
    def working(self, pool: str) -> Iterator[list[str]]:
        """A worker whose output is read all the time; the lines so far, which grow."""
        worker = self.start("worker", "start", "--pool", pool)
        reader = threading.Thread(target=worker.rest, daemon=True)
        reader.start()
        try:
            yield worker.lines
        finally:
            worker.send(signal.SIGTERM)
            reader.join(60)
            worker.process.kill()
            reader.join(60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    clone = tmp_path_factory.mktemp("some") / "clone"
    clone.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, clone / package)
    shutil.copy(ROOT / "prefect.yaml", clone)
    home = tmp_path_factory.mktemp("home")
    with prefect_server(home) as url:
        served = Served(url, home, clone)
        with pointed_at(url), get_client(sync_client=True) as client:
            template = ProcessWorker.get_default_base_job_template()
            for pool in ("local", "local-process"):
                client.create_work_pool(
                    WorkPoolCreate(name=pool, type="process", base_job_template=template)
                )
        yield served
