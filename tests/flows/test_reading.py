"""``plan``, ``status`` and ``verify``: they tell what is, and change nothing."""

from __future__ import annotations

import pytest

from flows.verify import verify
from tests.environments import RUN, Place, brought_up
from tests.flows.commands import Commands


def test_plan_shows_what_would_be_created(place: Place, run: Commands) -> None:
    said = run.good("plan", place.write(count=2, shared=True, ovmf=True))

    assert f"+ n1  {place.vmid(1)} on pve1  to be created" in said.out
    assert "1 core, 1024 MiB, ovmf, q35" in said.out
    assert "scsi0: 4 GiB on local-lvm" in said.out
    assert f"scsi1: 2 GiB on shared, of guest {place.vmid(1)}" in said.out
    assert "installed from local:iso/Rocky-9.6-x86_64-dvd.iso, seed ISO on local" in said.out
    assert said.out.rstrip().endswith("Plan: 2 to create")


def test_plan_as_json_is_one_document_with_its_findings(place: Place, run: Commands) -> None:
    place.strange(2)
    said = run("plan", place.write(count=2), "--json")

    document = said.json()
    assert said.code == 2
    assert [(g["label"], g["action"]) for g in document["guests"]] == [
        ("n1", "create"),
        ("n2", "foreign"),
    ]
    assert document["findings"][0]["guest"] == "n2"


@pytest.mark.parametrize("name", ["plan", "status", "verify"])
def test_reading_changes_nothing(place: Place, run: Commands, name: str) -> None:
    manifest = brought_up(place)
    before = place.lab.snapshot()
    place.lab.forget_requests()

    run.good(name, manifest)

    assert place.changes() == []
    assert place.lab.snapshot() == before


def test_an_environment_that_is_as_declared_has_nothing_to_do(place: Place, run: Commands) -> None:
    manifest = brought_up(place, count=2, shared=True, second_nic=True, ovmf=True)

    assert "nothing to do, 2 guests as declared" in run.good("plan", manifest).out
    said = run.good("verify", manifest)
    assert f"{place.env}: 2 guests as declared" in said.out
    rows = run.good("status", manifest, "--json").json()
    assert [(r["power"], r["state"], r["run"]) for r in rows] == [("running", "ready", RUN)] * 2
    assert [r["addresses"][:1] for r in rows] == [[place.address(1)], [place.address(2)]]
    assert [r["differences"] for r in rows] == [[], []]


def test_status_shows_guests_that_the_manifest_has_no_longer_and_how_they_go(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, count=2)
    place.write(count=1)
    place.strange(3)

    rows = run.good("status", manifest, "--json").json()
    shown = run.good("status", manifest)
    one = run.good("status", manifest, "--only", "n1", "--json").json()

    assert [(r["label"], r["vmid"], r["state"]) for r in rows] == [
        ("n1", place.vmid(1), "ready"),
        ("n2", place.vmid(2), "undeclared"),
    ]
    assert f"No longer in the manifest: n2 (VM {place.vmid(2)})" in shown.out
    assert f"`python -m flows.down {manifest}` removes them" in shown.out
    assert [r["label"] for r in one] == ["n1"]


def test_drift_is_found_by_verify_shown_by_plan_and_mended_by_up(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, count=2)
    card = place.config(1)["net0"].replace("vmbr0", "vmbr1")
    place.edit(1, memory=2048, tags="mine", net0=card)
    place.edit(2, ide2="local:iso/Rocky-9.6-x86_64-dvd.iso,media=cdrom")

    found = run("verify", manifest, "--json")
    plan = run("plan", manifest)
    mended = run("up", manifest, "--yes", "--json")
    after = run("verify", manifest)

    assert found.code == 3
    by_label = {guest["label"]: guest["deviations"] for guest in found.json()["guests"]}
    assert any("memory" in text for text in by_label["n1"])
    assert any("net0.bridge" in text for text in by_label["n1"])
    assert "ide2 holds local:iso/Rocky-9.6-x86_64-dvd.iso" in by_label["n2"]
    assert "~ n1" in plan.out
    assert "memory" in plan.out
    assert mended.code == 0
    assert (after.code, place.config(1)["memory"]) == (0, "1024")
    assert "bridge=vmbr0" in place.config(1)["net0"]
    assert place.config(1)["tags"] == "mine"
    assert place.config(2)["boot"] == "order=scsi0"


def test_what_verify_says_names_guest_and_next_step(place: Place, run: Commands) -> None:
    manifest = brought_up(place)
    place.edit(memory=2048)

    said = run("verify", manifest)

    assert said.code == 3
    assert "! n1" in said.out
    assert f"python -m flows.plan {manifest}" in said.out


def test_verify_finds_guests_that_are_missing_foreign_or_off(place: Place, run: Commands) -> None:
    manifest = brought_up(place)
    place.write(count=3)
    place.strange(3)
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid(1)}/status/stop")

    said = run("verify", manifest, "--json")

    assert said.code == 3
    assert [guest["deviations"] for guest in said.json()["guests"]] == [
        ["does not run"],
        [f"VM {place.vmid(2)} is not on pve2"],
        [f"VM {place.vmid(3)} on pve3 is not this environment's"],
    ]


def test_a_guest_that_cannot_be_checked_is_no_drift(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = brought_up(place)
    place.lab.fault(path=".*/config", times=0, status=403, reason="Permission check failed")

    said = run("verify", manifest)

    assert said.code == 1
    assert "Permission check failed" in said.out
    assert "1 could not be checked" in said.out


def test_status_tells_absent_installing_foreign_and_stopped(place: Place, run: Commands) -> None:
    manifest = place.write(count=3)
    brought = run("up", manifest, "--only", "n2", "--skip-finalize", "--yes")
    place.strange(3)

    rows = run.good("status", manifest, "--json").json()
    said = run.good("status", manifest)

    assert brought.code == 0
    assert [(r["label"], r["state"], r["power"]) for r in rows] == [
        ("n1", "absent", ""),
        ("n2", "installing", "running"),
        ("n3", "foreign", "stopped"),
    ]
    for word in ("absent", "installing", "foreign", place.address(2)):
        assert word in said.out


def test_status_tells_which_changes_wait_for_a_restart(place: Place, run: Commands) -> None:
    manifest = brought_up(place, count=2)
    card = place.config(1)["net0"]
    document = place.document(count=2)
    nodes = document["spec"]["hypervisor"]["nodes"]
    nodes["n1"]["resources"]["memory"] = 2048
    place.write(document)
    run.good("up", manifest, "--yes")

    first, second = run.good("status", manifest, "--json").json()
    said = run.good("status", manifest)
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid(1)}/status/stop")
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid(1)}/status/start")
    restarted = run.good("status", manifest)

    assert place.config(1)["net0"] == card
    assert first["differences"] == second["pending"] == second["differences"] == []
    assert first["pending"] == ["~ memory: 1024 MiB -> 2048 MiB"]
    assert "memory: 1024 MiB -> 2048 MiB (after a restart)" in " ".join(said.out.split())
    assert "Changes wait for a restart of n1: " in said.out
    assert "restart" not in restarted.out


def test_status_asks_once_for_each_declared_guest_that_runs(place: Place, run: Commands) -> None:
    manifest = brought_up(place, count=2)
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid(1)}/status/stop")
    place.lab.forget_requests()

    run.good("status", manifest)

    paths = [call["path"] for call in place.lab.requests()]
    assert [path for path in paths if path.endswith("/pending")] == [
        f"/nodes/pve2/qemu/{place.vmid(2)}/pending"
    ]


def test_status_tells_of_guests_on_a_node_that_is_offline(place: Place, run: Commands) -> None:
    manifest = brought_up(place)
    place.lab.node_offline("pve1")

    assert run.good("status", manifest, "--json").json()[0]["state"] == "offline"


def test_the_verify_flow_fails_where_something_deviates(place: Place, prefect_api: str) -> None:
    manifest = brought_up(place)
    place.edit(memory=2048)

    state = verify(str(manifest), return_state=True)

    assert state.is_failed()
    assert state.message == "0 guests as declared, 1 deviates"
