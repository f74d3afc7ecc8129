"""Golden templates by deployments: a real server, a real worker, and runs in its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
    TaskRunFilter,
)
from prefect.client.schemas.objects import FlowRun, TaskRun

from deployments.lab.testing import RunningLab
from flows.environment import run_id_of
from flows.runtime import pointed_at
from tests.environments import NODES, Place, make_place
from tests.flows.commands import Commands
from tests.flows.processes import eventually
from tests.flows.served import Served, served
from tests.labfixture import LabFactory, lab_factory
from tests.meanwhile import lasting_until_asked_for
from tests.templates import Golden

__all__ = ["lab_factory", "served"]

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

RUN = ("--yes", "--json")


@pytest.fixture(scope="module")
def lab(served: Served, lab_factory: LabFactory) -> RunningLab:
    """The lab that the worker's runs find."""
    return lab_factory(state=served.lab_state)


@pytest.fixture(scope="module")
def deployed(served: Served) -> Served:
    code, lines = served.prefect("--no-prompt", "deploy", "--all")
    assert code == 0, "\n".join(lines)
    return served


@pytest.fixture(scope="module")
def worker(deployed: Served, lab: RunningLab) -> Iterator[list[str]]:
    """What the worker and the runs in it have said so far."""
    with deployed.working("local-process") as lines:
        yield lines


@pytest.fixture
def place(lab: RunningLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from make_place(lab, tmp_path, monkeypatch)
    lab.set_time(0)


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


@pytest.fixture
def image(golden: Golden, tmp_path: Path) -> Path:
    return golden.image_file(tmp_path / "images")


@pytest.fixture
def run(served: Served, capsys: pytest.CaptureFixture[str]) -> Iterator[Commands]:
    """Commands of this process, whose runs are kept by the same server."""
    with pointed_at(served.url):
        yield Commands(capsys)


def ran(served: Served, manifest: Path, **parameters: object) -> FlowRun:
    """A run of ``template/local`` that has ended."""
    return served.ended(served.begin("template/local", manifest=str(manifest), **parameters))


def ran_by_command(served: Served, manifest: Path, *parameters: str) -> tuple[int, FlowRun]:
    """Run ``template/local`` and wait, as from a shell; how the command ended, and the run."""
    known = {run.id for run in served.runs()}
    code, lines = served.prefect(
        *("deployment", "run", "template/local", "-p", f"manifest={manifest}"),
        *(word for text in parameters for word in ("-p", text)),
        "--watch",
    )
    new = [run for run in served.runs() if run.id not in known]
    assert len(new) == 1, "\n".join(lines)
    return code, new[0]


def task_runs(served: Served, run: FlowRun) -> dict[str, TaskRun]:
    with pointed_at(served.url), get_client(sync_client=True) as client:
        found = client.read_task_runs(
            flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run.id])),
            task_run_filter=TaskRunFilter(),
        )
    return {task.name: task for task in found}


def artifacts(served: Served, run: FlowRun) -> dict[str, str]:
    """Text by key, of the artifacts of a run."""
    chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
    with pointed_at(served.url), get_client(sync_client=True) as client:
        return {str(a.key): str(a.data) for a in client.read_artifacts(artifact_filter=chosen)}


def there(golden: Golden) -> dict[int, dict[str, Any]]:
    """The guests of the test, by number counted from the template's."""
    guests = golden.place.lab.snapshot()["guests"]
    numbers = range(golden.vmid, golden.vmid + 10)
    return {int(vmid) - golden.vmid: row for vmid, row in guests.items() if int(vmid) in numbers}


def test_the_weekly_deployment_has_a_schedule_that_is_switched_off(deployed: Served) -> None:
    with pointed_at(deployed.url), get_client(sync_client=True) as client:
        weekly = client.read_deployment_by_name("template/weekly")
        local = client.read_deployment_by_name("template/local")

    assert [schedule.active for schedule in weekly.schedules] == [False]
    assert weekly.parameters["manifest"].endswith("template.yaml")
    assert (deployed.clone / weekly.parameters["manifest"]).exists()
    assert local.schedules == []
    assert local.parameter_openapi_schema is not None
    assert local.parameter_openapi_schema["required"] == ["manifest"]


def test_a_template_and_its_clones_are_built_by_a_worker(
    deployed: Served, worker: list[str], golden: Golden, image: Path
) -> None:
    manifest = golden.write(golden.document(image, clones=2))

    code, run = ran_by_command(deployed, manifest, "cluster=lab", "parallel=2")

    assert code == 0, "\n".join(worker)
    assert run.name == f"template {golden.name}"
    assert sorted(there(golden)) == [0, 1, 2]
    tasks = task_runs(deployed, run)
    assert f"{golden.name}/template/image" in tasks
    assert f"{golden.name}/c2-{golden.place.number}/start" in tasks
    assert {task.state_name for task in tasks.values()} == {"Completed"}
    said = artifacts(deployed, run)
    assert "template to be built" in said[f"{golden.name}-plan"]
    assert "6 stages done; 2 clones done" in said[f"{golden.name}-result"]


def test_the_image_is_brought_in_the_upload_lane_that_runs_of_all_machines_share(
    deployed: Served, worker: list[str], golden: Golden, image: Path
) -> None:
    manifest = golden.write(golden.document(image, clones=1))

    run = ran(deployed, manifest, stages=["image"])

    lane = f"proxflow:upload:lab:local:{NODES[0]}"
    with pointed_at(deployed.url), get_client(sync_client=True) as client:
        limit = client.read_global_concurrency_limit_by_name(f"tag:{lane}")
    assert run.state_name == "Completed", "\n".join(worker)
    assert lane in task_runs(deployed, run)[f"{golden.name}/template/image"].tags
    assert (limit.limit, limit.active_slots) == (1, 0)
    assert there(golden) == {}, "no other stage was asked for"


def test_a_stage_that_there_is_not_is_refused_without_a_traceback(
    deployed: Served, worker: list[str], golden: Golden, image: Path
) -> None:
    manifest = golden.write(golden.document(image))
    golden.place.lab.forget_requests()
    heard = len(worker)

    run = ran(deployed, manifest, stages=["imgae"])

    assert run.state is not None
    assert run.state.name == "Refused"
    assert "there is no stage 'imgae'; did you mean 'image'?" in str(run.state.message)
    assert golden.place.lab.requests() == []
    assert "Traceback" not in "\n".join(worker[heard:])


def test_a_parameter_of_the_wrong_kind_makes_no_run(deployed: Served, golden: Golden) -> None:
    known = len(deployed.runs())

    code, lines = deployed.prefect(
        *("deployment", "run", "template/local"),
        *("-p", "manifest=/nowhere/template.yaml", "-p", "parallel=0"),
    )

    assert code == 1
    assert "parallel" in "\n".join(lines)
    assert len(deployed.runs()) == known


def test_a_clone_that_fails_ends_the_run_as_failed_and_the_hook_keeps_the_rest(
    deployed: Served, worker: list[str], golden: Golden, image: Path
) -> None:
    manifest = golden.write(golden.document(image, clones=3))
    golden.place.lab.fault(
        kind="task", type="qmstart", id=str(golden.vmid + 2), exitstatus="no memory for you"
    )
    heard = len(worker)

    run = ran(deployed, manifest)

    assert run.state_name == "Failed"
    assert "no memory for you" in str(run.state and run.state.message)
    undone = f"run {run_id_of(run.id)}: nothing to undo"
    assert eventually(said(worker, heard, undone), 120), "\n".join(worker)
    assert sorted(there(golden)) == [0, 1, 3]
    assert "Traceback" not in "\n".join(worker[heard:])


def test_a_run_that_is_cancelled_among_its_clones_takes_back_its_own_and_nothing_older(
    deployed: Served, worker: list[str], golden: Golden, image: Path, run: Commands
) -> None:
    run.good("template", "build", golden.write(golden.document(image, clones=1)), *RUN)
    manifest = golden.write(golden.document(image, clones=3))
    golden.place.lab.set_time(1, qmclone=0, qmstart=600)
    heard = len(worker)
    going = deployed.begin("template/local", manifest=str(manifest))
    assert eventually(lambda: sorted(there(golden)) == [0, 1, 2, 3], 120), "\n".join(worker)

    deployed.cancel(going)

    undone = f"run {run_id_of(going.id)}: 2 guests removed"
    assert eventually(said(worker, heard, "was terminated"), 180), "\n".join(worker)
    # What the dead run has begun goes on: a guest that is being started is removed after that.
    with lasting_until_asked_for(golden.place.lab):
        assert eventually(said(worker, heard, undone), 180), "\n".join(worker)
    assert sorted(there(golden)) == [0, 1]
    assert f"{golden.name}-rollback" in artifacts(deployed, going)
    assert eventually(lambda: state_of(deployed, going) == "Cancelled", 60)


def state_of(served: Served, run: FlowRun) -> str | None:
    return next(each.state_name for each in served.runs() if each.id == run.id)


def said(lines: list[str], begin: int, words: str) -> Callable[[], bool]:
    return lambda: any(words in line for line in lines[begin:])
