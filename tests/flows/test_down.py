"""``down``: what goes, in which order, what stays, and what is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest

from flows.down import down
from tests.environments import RUN, Place, brought_up, opened
from tests.flows.commands import Commands
from tests.tasks.template.clones import make, make_template
from tests.templates import Golden


class Terminal(io.StringIO):
    """A person's answer."""

    def isatty(self) -> bool:
        return True


def deletions(place: Place) -> list[int]:
    """Numbers of the guests that were deleted, in order."""
    parts = [row.split("/") for row in place.changes() if row.startswith("DELETE /nodes")]
    return [int(part[-1].partition("?")[0]) for part in parts if part[-2] == "qemu"]


def test_down_removes_guests_disks_and_seeds_and_a_second_one_has_nothing_to_do(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, count=2, storages=("local-lvm", "shared"))

    first = run("down", manifest, "--yes", "--json")
    place.lab.forget_requests()
    second = run("down", manifest, "--yes", "--json")

    result = first.json()
    assert (first.code, second.code) == (0, 0)
    assert (result["ok"], result["removed"]) == (True, ["n2", "n1"])
    assert place.guests() == []
    assert place.volumes() == []
    assert place.lab.writes() == []
    assert f"nothing to do, {place.env} has no guests here" in second.err


def test_guests_go_in_reverse_order_and_users_of_a_disk_before_its_owner(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, count=3, shared=True, iso=False)
    with opened(manifest) as here:
        assert here.environment.guest("n2").disk("scsi1") is not None
    place.lab.forget_requests()

    run.good("down", manifest, "--parallel", 4, "--force", "--yes")

    order = deletions(place)
    assert order[-1] == place.vmid(1)
    assert sorted(order) == [place.vmid(1), place.vmid(2), place.vmid(3)]
    assert place.volumes() == []


def test_a_template_goes_after_all_of_its_clones(place: Place, run: Commands) -> None:
    golden = Golden(place)
    manifest = golden.write(golden.document(golden.image_file(place.folder), clones=2))
    clones = (golden.clone(1, autostart=False), golden.clone(2, autostart=False))
    with golden.opened(golden.recipe(*clones)) as here:
        make_template(here)
        for clone in clones:
            make(here, clone.label)
    place.lab.forget_requests()

    run.good("down", manifest, "--parallel", 4, "--yes")

    assert deletions(place)[-1] == golden.vmid
    assert len(deletions(place)) == 3


def test_what_will_go_is_shown_with_every_disk_and_a_dry_run_keeps_it(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place)
    before = place.lab.snapshot()

    said = run.good("down", manifest, "--dry-run", "--json")

    assert said.json()["removed"] == ["n1"]
    assert f"- n1  {place.vmid()} on pve1" in said.err
    assert f"local-lvm:vm-{place.vmid()}-disk-0" in said.err
    assert "1 guest and 1 seed ISO to delete" in said.err
    assert place.lab.snapshot() == before


def test_only_the_nodes_that_are_named_go(place: Place, run: Commands) -> None:
    manifest = brought_up(place, count=2)

    run.good("down", manifest, "--only", "n2", "--yes")

    assert place.guests() == [place.vmid(1)]
    assert [name for name in place.volumes("iso/") if "_n2_" in name] == []
    assert len(place.volumes("iso/")) == 1


def test_guests_that_the_manifest_has_no_longer_go_too_and_are_named(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, count=2, iso=False)
    place.write(count=1, iso=False)

    shown = run("down", manifest, "--dry-run")
    one = run.good("down", manifest, "--only", "n1", "--yes")
    stays = place.guests()
    run.good("down", manifest, "--yes")

    assert f"- n2  {place.vmid(2)} on pve2" in shown.err
    assert "(no longer in the manifest)" in shown.err
    assert "n2" not in one.out
    assert stays == [place.vmid(2)]
    assert place.guests() == []


def test_a_guest_that_is_not_ours_stays_although_its_number_is_declared(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, iso=False)
    place.write(count=3, iso=False)
    place.strange(2, name="payroll")
    place.of_another_environment(3)
    theirs = (place.config(2), place.config(3))

    said = run.good("down", manifest, "--yes")

    assert f"VM {place.vmid(2)} (payroll) on pve2 is not this environment's" in said.err
    assert place.guests() == [place.vmid(2), place.vmid(3)]
    assert (place.config(2), place.config(3)) == theirs


def test_an_owner_whose_disk_somebody_else_uses_is_refused(place: Place, run: Commands) -> None:
    manifest = brought_up(place, storages=("local-lvm", "shared"), iso=False)
    volume = place.config()["scsi1"].partition(",")[0]
    place.strange(5, name="reader", scsi1=volume)
    before = place.lab.snapshot()

    said = run("down", manifest, "--force", "--yes")

    assert said.code == 2
    assert f"owns a disk that is attached to VM {place.vmid(5)} (reader) on pve2" in said.err
    assert "take those down too, or detach the disk from them first" in said.err
    assert place.lab.snapshot() == before


def test_an_owner_is_refused_while_a_user_of_the_same_environment_stays(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, count=2, shared=True, iso=False)

    said = run("down", manifest, "--only", "n1", "--yes")

    assert said.code == 2
    assert f"attached to VM {place.vmid(2)}" in said.err
    assert place.guests() == [place.vmid(1), place.vmid(2)]


def test_an_orderly_shutdown_comes_first_and_force_pulls_the_power(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, count=2)
    place.lab.forget_requests()
    run.good("down", manifest, "--only", "n1", "--yes")
    gently = place.changes()
    place.lab.forget_requests()
    run.good("down", manifest, "--only", "n2", "--force", "--yes")
    roughly = place.changes()

    assert any(row.endswith("/status/shutdown") for row in gently)
    assert not any(row.endswith("/status/shutdown") for row in roughly)
    assert any(row.endswith("/status/stop") for row in roughly)


def test_a_guest_that_cannot_be_deleted_is_told_and_the_rest_goes_where_asked(
    place: Place, run: Commands
) -> None:
    manifest = brought_up(place, count=2, iso=False)
    place.lab.fault(
        kind="task", type="qmdestroy", id=str(place.vmid(2)), exitstatus="volume is busy"
    )

    said = run("down", manifest, "--continue-on-error", "--yes")

    assert said.code == 1
    assert "error: n2: destroy failed: volume is busy" in said.out
    assert f"python -m flows.down {manifest}` again" in said.out
    assert place.guests() == [place.vmid(2)]


def test_a_user_that_stays_keeps_its_owner(place: Place, run: Commands) -> None:
    manifest = brought_up(place, count=2, shared=True, iso=False)
    place.lab.fault(
        kind="task", type="qmdestroy", id=str(place.vmid(2)), exitstatus="volume is busy"
    )

    said = run("down", manifest, "--continue-on-error", "--force", "--yes", "--json")

    assert said.code == 1
    assert said.json()["left"] == ["n2", "n1"]
    assert place.guests() == [place.vmid(1), place.vmid(2)]
    assert len(place.volumes("shared:")) == 1


def test_seeds_without_a_guest_go_with_the_environment(place: Place, run: Commands) -> None:
    manifest = brought_up(place, count=2)
    place.write(count=1)
    with place.client() as client:
        client.run("POST", f"/nodes/pve2/qemu/{place.vmid(2)}/status/stop")
        client.run("DELETE", f"/nodes/pve2/qemu/{place.vmid(2)}")

    said = run.good("down", manifest, "--only", "n1", "--yes", "--json")
    assert (said.json()["removed"], len(said.json()["swept"])) == (["n1"], 1)
    (left,) = place.volumes()
    said = run.good("down", manifest, "--yes")

    assert place.volumes() == []
    assert f"{place.env}: 1 seed ISO removed" in said.out
    assert "guest" not in said.out
    assert left.partition("/")[2] in said.err


def test_hooks_that_are_declared_for_the_end_run_around_it(place: Place, run: Commands) -> None:
    log = place.folder / "hooks.txt"
    told = {"type": "exec", "command": f"echo $PROXFLOW_EVENT >> {log}"}
    hooks = {"on_teardown_start": [told], "on_teardown_success": [told]}
    manifest = brought_up(place, iso=False, hooks=hooks)

    run.good("down", manifest, "--yes")

    assert log.read_text().split() == ["on_teardown_start", "on_teardown_success"]


def test_a_hook_that_fails_at_the_start_keeps_everything(place: Place, run: Commands) -> None:
    hooks = {"on_teardown_start": [{"type": "exec", "command": "exit 3"}]}
    manifest = brought_up(place, iso=False, hooks=hooks)

    said = run("down", manifest, "--yes")

    assert said.code == 2
    assert "hook on_teardown_start[1] (exec): ended with 3" in said.err
    assert place.guests() == [place.vmid()]


def test_nothing_is_deleted_without_a_yes(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = brought_up(place, iso=False)
    refused = run("down", manifest)

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    said = run("down", manifest)

    assert (refused.code, said.code) == (2, 1)
    assert "There is no terminal to ask" in refused.err
    assert f"Delete 1 guest of {place.env} on lab with all their disks? [y/N]" in said.err
    assert place.guests() == [place.vmid()]


def test_the_flow_tells_what_it_removed(place: Place, prefect_api: str) -> None:
    state = down(str(brought_up(place, iso=False)), return_state=True)

    result: Any = state.result()
    assert state.message == "1 guest removed"
    assert result["removed"] == ["n1"]
    assert RUN not in str(place.lab.snapshot()["guests"].get(str(place.vmid())))
