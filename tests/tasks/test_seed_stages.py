"""Stages render, build and upload: from a declared guest to its seed ISO on a storage."""

from __future__ import annotations

import pytest

from blocks.proxmox.errors import PermissionDenied, Unreachable
from deployments.lab.isos import read_iso
from tasks.build import build
from tasks.errors import StageError
from tasks.iso.build import parse_seed_name
from tasks.render import render
from tasks.seed import current_seed, local_seed, source_of
from tasks.session import Session
from tasks.upload import delete_seeds, upload
from tests.environments import OTHER_RUN, Place, brought_up, opened


def seed_on_storage(here: Session, label: str = "n1") -> str:
    """Render, build and upload; the volume id."""
    for stage in (render, build):
        stage.fn(here.run, label)
    upload.fn(here.run, label)
    found = current_seed(here, here.guest(label))
    assert found is not None
    return found.volid


def test_render_names_the_files_of_the_installer_and_writes_nothing(place: Place) -> None:
    with opened(place.write()) as here:
        place.lab.forget_requests()

        outcome = render.fn(here.run, "n1")

    assert (outcome.status, outcome.detail) == ("done", "ks.cfg for rocky9")
    assert place.lab.writes() == []


def test_an_installed_guest_needs_no_seed(place: Place) -> None:
    with opened(brought_up(place), OTHER_RUN) as here:
        place.lab.forget_requests()

        outcomes = [stage.fn(here.run, "n1") for stage in (render, build, upload)]

    assert {(o.status, o.detail) for o in outcomes} == {("skipped", "installed already")}
    assert place.lab.writes() == []


def test_a_guest_that_is_not_installed_from_an_iso_needs_no_seed(place: Place) -> None:
    with opened(place.write(iso=False)) as here:
        outcomes = [stage.fn(here.run, "n1") for stage in (render, build, upload)]

    assert {(o.status, o.detail) for o in outcomes} == {("skipped", "nothing to install")}


def test_build_makes_an_iso_that_only_its_owner_can_read_and_makes_it_once(place: Place) -> None:
    with opened(place.write()) as here:
        first = build.fn(here.run, "n1")
        path = local_seed(here, here.guest("n1"))
        again = build.fn(here.run, "n1")

        assert (first.status, again.status) == ("done", "unchanged")
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0
        assert place.address() in read_iso(path).files["ks.cfg"]


def test_a_built_seed_does_not_outlive_its_session(place: Place) -> None:
    with opened(place.write()) as here:
        build.fn(here.run, "n1")
        path = local_seed(here, here.guest("n1"))
        assert path.exists()
    assert not path.exists()


def test_build_skips_where_the_seed_is_said_to_be_there(place: Place) -> None:
    with opened(place.write(), skip_kickstart_build=True) as here:
        assert build.fn(here.run, "n1").status == "skipped"
        assert not local_seed(here, here.guest("n1")).exists()


def test_the_uploaded_seed_names_environment_guest_content_and_run(place: Place) -> None:
    with opened(place.write()) as here:
        volid = seed_on_storage(here)
        digest = here.rendered(here.guest("n1")).digest

    name = parse_seed_name(volid.removeprefix("local:iso/"))
    assert name is not None
    assert (name.env, name.guest, name.run) == (place.env, "n1", here.run.run_id)
    assert digest.startswith(name.digest)


def test_a_seed_that_is_there_is_not_uploaded_again(place: Place) -> None:
    with opened(place.write()) as here:
        volid = seed_on_storage(here)
        place.lab.forget_requests()

        outcome = upload.fn(here.run, "n1")

    assert (outcome.status, outcome.detail) == ("unchanged", volid)
    assert place.changes() == []


def test_a_seed_of_the_same_content_serves_another_run(place: Place) -> None:
    manifest = place.write()
    with opened(manifest) as here:
        volid = seed_on_storage(here)
    with opened(manifest, OTHER_RUN) as here:
        assert seed_on_storage(here) == volid
    assert len(place.volumes("iso/")) == 1


def test_a_seed_of_other_content_is_not_taken_for_it(place: Place) -> None:
    with opened(place.write()) as here:
        old = seed_on_storage(here)
    document = place.document()
    document["spec"]["hypervisor"]["kickstart"]["timezone"] = "Asia/Tokyo"
    with opened(place.write(document), OTHER_RUN) as here:
        assert seed_on_storage(here) != old


def test_half_a_seed_of_a_torn_upload_is_replaced(place: Place) -> None:
    manifest = place.write()
    with opened(manifest) as here:
        volid = seed_on_storage(here)
    (torn,) = place.lab.state.rglob(volid.rpartition("/")[2])
    whole = torn.read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])

    with opened(manifest) as here:
        build.fn(here.run, "n1")
        outcome = upload.fn(here.run, "n1")

    assert outcome.status == "done"
    assert torn.read_bytes() == whole


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_upload_that_breaks_off_is_transient_and_the_next_try_ends_it(
    place: Place, moment: str
) -> None:
    with opened(place.write()) as here:
        build.fn(here.run, "n1")
        place.lab.fault(method="POST", path=".*/upload", reset=moment)

        with pytest.raises(Unreachable) as broken:
            upload.fn(here.run, "n1")
        outcome = upload.fn(here.run, "n1")

    assert broken.value.transient
    assert outcome.status == ("done" if moment == "before" else "unchanged")
    assert len(place.volumes("iso/")) == 1


def test_an_upload_that_is_refused_says_so_in_the_words_of_the_server(place: Place) -> None:
    with opened(place.write()) as here:
        build.fn(here.run, "n1")
        place.lab.fault(
            method="POST",
            path=".*/upload",
            status=403,
            reason="Permission check failed (/storage/local, Datastore.AllocateTemplate)",
        )
        with pytest.raises(PermissionDenied, match=r"/storage/local, Datastore\.AllocateTemplate"):
            upload.fn(here.run, "n1")


def test_a_missing_seed_is_named_with_those_that_are_there(place: Place) -> None:
    with opened(place.write()) as here:
        old = seed_on_storage(here)
    document = place.document()
    document["spec"]["hypervisor"]["kickstart"]["timezone"] = "Asia/Tokyo"
    with opened(place.write(document), OTHER_RUN, skip_kickstart_build=True) as here:
        place.lab.forget_requests()
        with pytest.raises(StageError) as refused:
            upload.fn(here.run, "n1")

    assert "storage local has no seed ISO for what the manifest says now" in str(refused.value)
    assert old in str(refused.value)
    assert "--skip-kickstart-build" in (refused.value.advice or "")
    assert place.changes() == []


def test_seeds_are_deleted_by_run_and_those_of_others_stay(place: Place) -> None:
    manifest = place.write(count=2)
    with opened(manifest) as here:
        mine, other = seed_on_storage(here, "n1"), seed_on_storage(here, "n2")
        guest = here.guest("n1")
        assert delete_seeds(here, guest, OTHER_RUN) == []
        assert delete_seeds(here, guest, here.run.run_id) == [mine]
        assert delete_seeds(here, guest) == []
    assert [name.partition("/")[2] for name in place.volumes("iso/")] == [other]


def test_only_a_guest_with_an_iso_has_a_source(place: Place) -> None:
    with (
        opened(place.write(iso=False)) as here,
        pytest.raises(ValueError, match="n1 is not installed from an ISO"),
    ):
        source_of(here.guest("n1"))
