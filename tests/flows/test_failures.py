"""``up`` when something fails: what is undone, what stays, what is said, and how it goes on."""

from __future__ import annotations

import threading

import pytest

from blocks.proxmox.client import Client
from flows.up import up
from tasks import settling
from tests.defaults import set_default
from tests.environments import OTHER_RUN, Place, brought_up, install, opened
from tests.flows.commands import Commands, states


def breaks(place: Place, index: int = 1, **fault: object) -> None:
    """The start of a guest fails."""
    rule = {"exitstatus": "start failed: no KVM", "log": ["kvm: not there"]} | fault
    place.lab.fault(kind="task", type="qmstart", id=str(place.vmid(index)), **rule)


def test_a_failed_run_is_rolled_back_completely_and_leaves_what_was_there(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, OTHER_RUN, count=1)
    before = place.lab.snapshot()
    place.write(count=3, shared=False)
    breaks(place, 2)

    said = run("up", manifest, "--yes", "--json")

    result = said.json()
    assert said.code == 1
    assert result["ok"] is False
    assert [text.splitlines()[0] for text in result["errors"]] == [
        "n2: start failed: start failed: no KVM"
    ]
    assert "kvm: not there" in result["errors"][0]
    after = place.lab.snapshot()
    assert (after["guests"], after["volumes"]) == (before["guests"], before["volumes"])
    assert "removed VM" in said.err
    assert "run {}:".format(result["run_id"]) in said.err


def test_the_rest_of_a_failed_run_is_shown_as_cancelled(place: Place, run: Commands) -> None:
    breaks(place, 1)

    said = run("up", place.write(count=3), "--parallel", 1, "--yes", "--json")

    result = said.json()
    assert [(g["label"], g["state"]) for g in result["guests"]] == [
        ("n1", "failed"),
        ("n2", "cancelled"),
        ("n3", "cancelled"),
    ]
    assert result["guests"][0]["failed_stage"] == "start"
    assert result["guests"][0]["cancelled"] == ["wait", "finalize"]
    recorded = states(result["run_id"])
    assert recorded[f"{place.env}/n1/start"] == "Failed"
    assert recorded[f"{place.env}/n1/finalize"] == "Cancelled"
    assert recorded[f"{place.env}/n3/render"] == "Cancelled"
    assert place.guests() == []


def test_the_others_finish_and_stay_where_errors_do_not_stop_the_run(
    place: Place, run: Commands
) -> None:
    breaks(place, 1)
    breaks(place, 3, exitstatus="start failed: no memory")

    said = run("up", place.write(count=3), "--continue-on-error", "--yes")

    assert said.code == 1
    errors = [line for line in said.out.splitlines() if line.startswith("error:")]
    assert errors == [
        "error: n1: start failed: start failed: no KVM",
        "error: n3: start failed: start failed: no memory",
    ]
    assert place.guests() == [place.vmid(2)]
    assert place.running(2)
    assert run("verify", place.folder / "env.yaml", "--only", "n2").code == 0


def test_a_guest_whose_owner_failed_is_cancelled_and_the_reason_is_told(
    place: Place, run: Commands
) -> None:
    place.lab.fault(kind="task", type="qmcreate", id=str(place.vmid(1)), exitstatus="no space")

    said = run("up", place.write(count=2, shared=True), "--continue-on-error", "--yes")

    assert said.code == 1
    assert "create of n1 did not succeed" in said.err
    assert place.guests() == []
    assert place.volumes() == []


def test_a_failed_run_that_is_kept_is_taken_up_by_the_next_one(place: Place, run: Commands) -> None:
    manifest = place.write()
    breaks(place)

    kept = run("up", manifest, "--no-rollback", "--yes", "--json")
    left = (place.guests(), len(place.volumes("iso/")))
    plan = run("plan", manifest)
    resumed = run("up", manifest, "--yes", "--json")

    assert kept.code == 1
    assert left == ([place.vmid()], 1)
    assert f"to be finished: run {kept.json()['run_id']} did not finish its install" in plan.out
    assert resumed.code == 0
    stages = {stage["name"]: stage["status"] for stage in resumed.json()["guests"][0]["stages"]}
    assert (stages["upload"], stages["create"], stages["start"]) == (
        "unchanged",
        "unchanged",
        "done",
    )


def test_the_rollback_of_a_resuming_run_leaves_what_another_run_made(
    place: Place, run: Commands
) -> None:
    manifest = place.write()
    breaks(place, times=2)
    run("up", manifest, "--no-rollback", "--yes")

    again = run("up", manifest, "--yes")

    assert again.code == 1
    assert place.guests() == [place.vmid()]


def test_warnings_of_tasks_are_shown_and_fail_nothing(place: Place, run: Commands) -> None:
    place.lab.fault(kind="task", type="qmstart", warnings=1, log=["WARN: EFI keys are old."])

    said = run.good("up", place.write(), "--yes")

    assert "warning: n1: start: EFI keys are old." in said.out


@pytest.mark.parametrize("path", ["/nodes/pve1/qemu", "/nodes/pve1/storage/local/upload"])
def test_a_stage_whose_answer_was_lost_is_tried_again_and_finds_its_own_work(
    place: Place, run: Commands, path: str
) -> None:
    place.lab.fault(method="POST", path=path, reset="after")

    said = run.good("up", place.write(), "--yes", "--json")

    assert "try 2 of 4 in 2 s" in said.err
    assert said.json()["guests"][0]["state"] == "done"
    assert len(place.volumes("iso/")) == 1


def test_a_locked_configuration_is_waited_for(place: Place, run: Commands) -> None:
    place.lab.fault(
        method="PUT",
        path=".*/config",
        status=500,
        reason=f"can't lock file '/var/lock/qemu-server/lock-{place.vmid()}.conf' - got timeout",
    )
    run.good("up", place.write(), "--yes")


def test_a_task_that_never_ends_fails_the_run_in_time_and_is_named(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_default(monkeypatch, Client.wait, "timeout", 3)
    set_default(monkeypatch, Client.run, "timeout", 3)
    monkeypatch.setattr(settling, "SECONDS", 0.2)
    place.lab.fault(kind="task", type="qmstart", endless=True)

    said = run("up", place.write(), "--yes")

    assert said.code == 1
    assert f":qmstart:{place.vmid()}:" in said.out
    assert "task list" in said.out


def test_a_node_that_goes_between_plan_and_create_fails_the_run_with_its_name(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.upload.upload.task.retry_delay_seconds", [0, 0, 0])
    set_default(monkeypatch, Client.__init__, "retries", 0)
    manifest = place.write()

    def began(*arguments: object) -> tuple[str, ...]:
        place.lab.node_offline("pve1")
        return ()

    monkeypatch.setattr("flows.up.happen", began)

    said = run("up", manifest, "--yes")

    assert said.code == 1
    assert "n1: " in said.out
    assert "pve1" in said.out
    place.lab.node_offline("pve1", on=False)
    assert place.guests() == []


def test_a_run_that_never_began_has_nothing_to_roll_back(
    place: Place, prefect_api: str, caplog: pytest.LogCaptureFixture
) -> None:
    place.strange()
    place.lab.forget_requests()

    refused = up(str(place.write()), return_state=True)
    missing = up(str(place.folder / "none.yaml"), return_state=True)

    assert refused.is_failed()
    assert missing.is_failed()
    assert place.lab.writes() == []
    assert "roll" not in caplog.text.replace("undo", "").lower()


def test_hooks_are_told_of_a_failure_with_its_words(place: Place, run: Commands) -> None:
    log = place.folder / "failed.txt"
    hook = {"type": "exec", "command": f'printf "%s" "$PROXFLOW_DETAIL" > {log}'}
    breaks(place)

    run("up", place.write(hooks={"on_apply_failure": [hook]}), "--yes")

    assert log.read_text().startswith("n1: start failed: start failed: no KVM")


def test_what_a_failing_run_changed_in_place_is_set_back(place: Place, run: Commands) -> None:
    manifest = brought_up(place, OTHER_RUN)
    before = place.config()
    document = place.document(count=2)
    document["spec"]["hypervisor"]["nodes"]["n1"]["resources"]["memory"] = 2048
    document["spec"]["hypervisor"]["nodes"]["n1"]["nics"][0]["bridge"] = "vmbr1"
    document["spec"]["hypervisor"]["nodes"]["n1"]["tags"] = ["blue"]
    place.write(document)
    breaks(place, 2)

    said = run("up", manifest, "--parallel", 1, "--yes")

    assert said.code == 1
    assert f"set back VM {place.vmid(1)} (n1)" in said.err
    after = place.config()
    assert {k: v for k, v in after.items() if k != "digest"} == {
        k: v for k, v in before.items() if k != "digest"
    }
    assert place.guests() == [place.vmid(1)]


def test_two_environments_come_up_on_one_storage_at_once(place: Place, prefect_api: str) -> None:
    other = place.neighbour()
    ends: list[object] = []

    def bring(there: Place) -> None:
        ends.append(up(str(there.write(count=2)), return_state=True).message)

    threads = [threading.Thread(target=bring, args=(one,)) for one in (place, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert ends == ["2 done", "2 done"]
    assert len(place.guests()) == len(other.guests()) == 2


def test_a_guest_that_vanishes_meanwhile_is_missed_in_words(place: Place, run: Commands) -> None:
    manifest = place.write()
    with opened(manifest, OTHER_RUN) as here:
        install(here)
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid()}/status/stop")
        client.run("DELETE", f"/nodes/pve1/qemu/{place.vmid()}")
    assert run("verify", manifest).code == 3
    run.good("up", manifest, "--yes")
