"""``up``: from nothing to an environment, again, in part, and with its options."""

from __future__ import annotations

from typing import Any

import pytest

from blocks.manifest.mark import read_mark
from flows.up import up
from tests.environments import Place, brought_up
from tests.flows.commands import Commands, flow_run, states

EVERY_STAGE = [
    "render",
    "build",
    "upload",
    "create",
    "attach",
    "start",
    "wait",
    "finalize",
    "verify",
]


def test_up_brings_an_environment_into_being_and_a_second_one_changes_nothing(
    place: Place, run: Commands
) -> None:
    manifest = place.write(count=3, shared=True, second_nic=True, ovmf=True)

    first = run("up", manifest, "--yes", "--json")
    place.lab.forget_requests()
    second = run("up", manifest, "--yes", "--json")

    result = first.json()
    assert (first.code, second.code) == (0, 0)
    assert result["ok"] is True
    assert [(g["label"], g["state"]) for g in result["guests"]] == [
        ("n1", "done"),
        ("n2", "done"),
        ("n3", "done"),
    ]
    assert [stage["name"] for stage in result["guests"][0]["stages"]] == EVERY_STAGE
    assert result["guests"][0]["address"] == place.address(1)
    assert place.guests() == [place.vmid(1), place.vmid(2), place.vmid(3)]
    assert all(place.running(n) for n in (1, 2, 3))
    marks = [read_mark(place.config(n)["description"]) for n in (1, 2, 3)]
    assert {mark and mark.run for mark in marks} == {result["run_id"]}
    recorded = first.err.index(f"run {result['run_id']} is recorded in ")
    assert recorded < first.err.index(" render "), "a run that is killed can be found"
    assert {guest["state"] for guest in second.json()["guests"]} == {"unchanged"}
    assert place.lab.writes() == []
    assert "nothing to do, 3 guests as declared" in second.err

    again = run("up", manifest, "--yes")
    assert (again.code, place.lab.writes()) == (0, [])


def test_the_flow_run_is_on_record_with_its_task_runs_and_artifacts(
    place: Place, run: Commands
) -> None:
    result = run.good("up", place.write(), "--yes", "--json").json()

    found = flow_run(result["run_id"])
    assert found.name == f"up {place.env}"
    assert found.state_name == "Completed"
    names = {f"{place.env}/n1/{stage}" for stage in EVERY_STAGE}
    seen = states(result["run_id"])
    assert names | {f"{place.env}/plan", f"{place.env}/preflight"} == set(seen)
    assert set(seen.values()) == {"Completed"}


def test_the_result_is_told_to_people_with_what_to_do_next(place: Place, run: Commands) -> None:
    manifest = place.write()

    said = run.good("up", manifest, "--yes")

    assert f"{place.env}: 1 done" in said.out
    for name in ("status", "verify", "down"):
        assert f"python -m flows.{name} {manifest}" in said.out
    assert "Plan: 1 to create" in said.err
    assert "finalize" in said.err


def test_a_dry_run_shows_the_plan_and_changes_nothing(place: Place, run: Commands) -> None:
    manifest = place.write(count=2)
    before = place.lab.snapshot()
    place.lab.forget_requests()

    said = run.good("up", manifest, "--dry-run", "--json")

    document = said.json()
    assert [(guest["label"], guest["action"]) for guest in document["guests"]] == [
        ("n1", "create"),
        ("n2", "create"),
    ]
    assert document["findings"] == []
    assert "Plan: 2 to create" in said.err
    assert place.lab.writes() == []
    assert place.lab.snapshot() == before


def test_a_dry_run_finds_what_the_preflight_would_find(place: Place, run: Commands) -> None:
    document = place.document()
    document["spec"]["hypervisor"]["nodes"]["n1"]["nics"][0]["bridge"] = "vmbr7"

    said = run("up", place.write(document), "--dry-run")

    assert said.code == 2
    assert "node pve1 has no bridge vmbr7" in said.err


def test_only_brings_up_the_nodes_that_are_named(place: Place, run: Commands) -> None:
    manifest = place.write(count=3)

    run.good("up", manifest, "--only", "n2", place.vmid(3), "--yes")

    assert place.guests() == [place.vmid(2), place.vmid(3)]


def test_one_node_at_a_time_does_the_same(place: Place, run: Commands) -> None:
    manifest = place.write(count=3, shared=True)

    run.good("up", manifest, "--parallel", 1, "--yes")

    volumes = {place.config(n)["scsi1"].partition(",")[0] for n in (1, 2, 3)}
    assert len(volumes) == 1
    assert run("verify", manifest).code == 0


def test_a_seed_that_is_there_is_used_where_no_new_one_is_to_be_built(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place)
    seed = place.volumes("iso/")
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid()}/status/stop")
        client.run("DELETE", f"/nodes/pve1/qemu/{place.vmid()}")

    result = run.good("up", manifest, "--skip-kickstart-build", "--yes", "--json").json()

    stages = {stage["name"]: stage["status"] for stage in result["guests"][0]["stages"]}
    assert (stages["build"], stages["upload"]) == ("skipped", "unchanged")
    assert place.volumes("iso/") == seed


def test_a_seed_that_is_not_there_is_missed_before_a_guest_is_made(
    place: Place, run: Commands
) -> None:
    said = run("up", place.write(), "--skip-kickstart-build", "--yes")

    assert said.code == 1
    assert "n1: upload failed: storage local has no seed ISO" in said.out
    assert "next: run `up` without --skip-kickstart-build" in said.out
    assert place.guests() == []


def test_guests_that_were_not_finalized_are_finalized_by_the_next_up(
    place: Place, run: Commands
) -> None:
    manifest = place.write()
    run.good("up", manifest, "--skip-finalize", "--yes")
    between = place.config()

    result = run.good("up", manifest, "--yes", "--json").json()

    assert between["ide2"].startswith("local:iso/")
    assert place.config()["ide2"] == "none,media=cdrom"
    mark = read_mark(place.config()["description"])
    assert mark is not None
    assert mark.ready
    done = [stage["name"] for stage in result["guests"][0]["stages"] if stage["status"] == "done"]
    assert "create" not in done
    assert "finalize" in done


def test_a_guest_that_was_switched_off_is_switched_on(place: Place, run: Commands) -> None:
    manifest = brought_up(place)
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid()}/status/stop")

    said = run.good("up", manifest, "--yes", "--json")

    assert "1 to start" in said.err
    assert place.running()


def test_nobody_is_asked_without_a_terminal(place: Place, run: Commands) -> None:
    said = run("up", place.write())

    assert said.code == 2
    assert f"Bring {place.env} up on lab? There is no terminal to ask." in said.err
    assert "say --yes" in said.err
    assert place.guests() == []


def test_where_nobody_is_ever_to_be_asked_none_is(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXFLOW_CONFIRM", "never")
    run.good("up", place.write())
    assert place.guests() == [place.vmid()]


def test_the_flow_can_be_called_without_the_command_line(place: Place, prefect_api: str) -> None:
    state = up(str(place.write()), return_state=True)

    result: Any = state.result()
    assert state.is_completed()
    assert result["ok"] is True
    assert state.message == "1 done"


def test_a_flow_that_is_only_to_look_changes_nothing(place: Place, prefect_api: str) -> None:
    place.lab.forget_requests()
    state = up(str(place.write()), dry_run=True, return_state=True)

    assert state.is_completed()
    assert state.message == "1 to create"
    assert place.lab.writes() == []


def test_hooks_that_are_declared_run_when_their_time_comes(place: Place, run: Commands) -> None:
    log = place.folder / "hooks.txt"
    told = {"type": "exec", "command": f'echo "$PROXFLOW_EVENT $PROXFLOW_GUEST" >> {log}'}
    events = ["on_validate_success", "on_apply_start", "on_vm_ready", "on_apply_success"]
    hooks = {event: [told] for event in [*events, "on_apply_failure"]}

    run.good("up", place.write(hooks=hooks), "--yes")

    assert [line.strip() for line in log.read_text().splitlines()] == [
        "on_validate_success",
        "on_apply_start",
        "on_vm_ready n1",
        "on_apply_success",
    ]


def test_a_hook_that_fails_at_the_start_stops_the_run_and_later_ones_only_warn(
    place: Place, run: Commands
) -> None:
    broken = {"type": "exec", "command": "echo out of paper >&2; exit 7"}
    document = place.document(hooks={"on_apply_start": [broken]})
    refused = run("up", place.write(document), "--yes")
    nothing = place.guests()

    document["hooks"] = {"on_vm_ready": [broken], "on_apply_success": [broken]}
    warned = run("up", place.write(document), "--yes")

    assert (refused.code, warned.code) == (2, 0)
    assert nothing == []
    assert "hook on_apply_start[1] (exec): ended with 7: out of paper" in refused.err
    assert "hook on_vm_ready[1] (exec): ended with 7: out of paper" in warned.out
    assert "hook on_apply_success[1] (exec): ended with 7: out of paper" in warned.out
