"""With a real server, work pool, deployments and worker."""

import inspect
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client

from flows.runtime import pointed_at
from flows.up import up
from tests.flows.processes import ROOT, Program, eventually
from tests.flows.served import Served, served
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory", "served"]

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

OF_TESTS = """
name: proxflow-tests
deployments:
  - {name: test, entrypoint: "tests/flows/runtime_program.py:instant", work_pool: {name: local}}
  - {name: test, entrypoint: "tests/flows/runtime_program.py:hold", work_pool: {name: local}}
  - {name: test, entrypoint: "tests/flows/runtime_program.py:broken", work_pool: {name: local}}
"""


@pytest.fixture(scope="module")
def worker(served: Served) -> Iterator[Program]:
    (served.clone / "tests.yaml").write_text(OF_TESTS)
    code, lines = served.prefect("--no-prompt", "deploy", "--prefect-file", "tests.yaml", "--all")
    assert code == 0, "\n".join(lines)
    with served.start("worker", "start", "--pool", "local", cwd=served.home) as worker:
        yield worker
        worker.stop()


@pytest.fixture(scope="module")
def deployed(served: Served) -> Served:
    code, lines = served.prefect("--no-prompt", "deploy", "--all")
    assert code == 0, "\n".join(lines)
    return served


def held(worker: Program) -> int:
    """The process of a run that now holds the lane."""
    return int(worker.until("holding pid=").split("=")[1])


def test_the_deployments_can_be_made_from_a_clone_in_any_place(deployed: Served) -> None:
    with pointed_at(deployed.url), get_client(sync_client=True) as client:
        deployments = {name: client.read_deployment_by_name(f"{name}/local") for name in FLOWS}
    assert {d.work_pool_name for d in deployments.values()} == {"local-process"}
    schema = deployments["up"].parameter_openapi_schema
    assert schema is not None
    assert schema["required"] == ["manifest"]


FLOWS = ("up", "verify", "down")


def test_what_is_deployed_names_no_place_of_a_machine() -> None:
    text = (ROOT / "prefect.yaml").read_text()

    assert not re.search(r"/(home|root|work|srv|opt)/|https?://", text)


def test_a_run_by_a_worker_completes_and_is_waited_for(served: Served, worker: Program) -> None:
    code, lines = served.prefect(
        "deployment", "run", "instant/test", "-p", "notes=/dev/null", "-p", "count=3", "--watch"
    )

    assert code == 0, "\n".join(lines)


def test_a_failed_run_of_a_worker_runs_the_hook_and_exits_1(
    served: Served, worker: Program, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"

    code, _ = served.prefect("deployment", "run", "broken/test", "-p", f"notes={notes}", "--watch")

    assert code == 1
    assert notes.read_text().startswith("FAILED pid=")


def test_the_hook_of_up_can_be_called_by_name_as_a_worker_does() -> None:
    for hook in {*up.on_failure_hooks, *up.on_crashed_hooks, *up.on_cancellation_hooks}:
        assert [*inspect.signature(hook).parameters] == ["flow", "flow_run", "state"]


def test_a_cancelled_run_runs_the_hook_in_another_process(
    served: Served, worker: Program, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    run = served.begin("hold/test", notes=str(notes))
    pid = held(worker)

    served.cancel(run)

    assert eventually(notes.exists, 120)
    assert eventually(lambda: notes.read_text().endswith("\n"), 60)
    assert notes.read_text().startswith("CANCELLING pid=")
    assert notes.read_text() != f"CANCELLING pid={pid}\n"
    assert eventually(lambda: not Path(f"/proc/{pid}").exists(), 60)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_whose_process_is_killed_runs_the_hook_as_crashed(
    served: Served, worker: Program, tmp_path: Path, number: signal.Signals
) -> None:
    notes = tmp_path / "notes"
    served.begin("hold/test", notes=str(notes))
    pid = held(worker)

    os.kill(pid, number)

    assert eventually(notes.exists, 120)
    assert eventually(lambda: notes.read_text().endswith("\n"), 60)
    same = notes.read_text() == f"CRASHED pid={pid}\n"
    assert notes.read_text().startswith("CRASHED pid=")
    assert same is (number == signal.SIGTERM)


def test_an_environment_comes_up_and_is_verified_and_goes_down_by_deployments(
    deployed: Served, lab_factory: LabFactory
) -> None:
    manifest = ROOT / "deployments/environments/lab/env.yaml"
    lab_factory(state=deployed.lab_state, time_scale=0.02)

    with deployed.working("local-process") as said:
        for name in FLOWS:
            begun = deployed.begin(f"{name}/local", manifest=str(manifest), cluster="lab")
            ended = deployed.ended(begun)
            assert ended.state_name == "Completed", "\n".join([*said, str(ended.state)])
