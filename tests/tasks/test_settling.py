"""What a dead run's calls are still doing, before a rollback looks for its traces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from tasks.rollback import Undone, undo_run
from tests.blindlab import SECRET, lab
from tests.environments import RUN, Place
from tests.meanwhile import lasting_until_asked_for
from tests.templates import Golden

__all__ = ["lab"]


@pytest.fixture
def slow(place: Place) -> Iterator[Place]:
    """The place while a guest is made in ten minutes."""
    place.lab.set_time(scale=1, qmcreate=600)
    yield place
    place.lab.set_time(scale=0, qmcreate=2)
    place.lab.settle()


@pytest.fixture
def maker(place: Place) -> Iterator[Client]:
    """A token that may make guests and lacks Sys.Audit."""
    token = {"token_id": "maker@pve!t", "token_secret": SecretStr(SECRET)}
    with Client(lab_connection().model_copy(update=token)) as client:
        yield client


def begin(client: Client, guest: Guest, description: str) -> None:
    client.post(f"/nodes/{guest.node}/qemu", vmid=guest.vmid, description=description)


def undo(client: Client, golden: Golden, guest: Guest) -> Undone:
    return undo_run(client, golden.name, RUN, declared=(guest,))


def test_a_caller_without_rights_on_nodes_waits_for_the_guest_that_its_own_call_makes(
    slow: Place, maker: Client
) -> None:
    golden = Golden(slow)
    guest = golden.template()
    mark = str(Mark(env=golden.name, guest="c", vmid=guest.vmid, run=RUN))
    begin(maker, guest, mark)

    with lasting_until_asked_for(slow.lab):
        undone = undo(maker, golden, guest)

    assert undone.errors == ()
    assert slow.guests() == []


def test_a_guest_that_others_are_still_making_keeps_a_rollback_from_saying_that_all_is_gone(
    slow: Place, maker: Client
) -> None:
    golden = Golden(slow)
    guest = golden.template()
    with slow.client() as another:
        begin(another, guest, "")

    undone = undo(maker, golden, guest)

    (error,) = undone.errors
    assert f"VM {guest.vmid}" in error
    assert "is still being made" in error
    assert slow.guests() == [guest.vmid]


def test_a_guest_that_moves_while_a_rollback_looks_at_it_is_told_of_and_goes_the_next_time(
    place: Place,
) -> None:
    golden = Golden(place)
    guest = golden.template()
    with place.client() as client:
        begun = (
            f"<!-- proxflow env={golden.name} guest=c vmid={guest.vmid} run={RUN} state=ready -->"
        )
        client.run("POST", f"/nodes/{guest.node}/qemu", vmid=guest.vmid, description=begun)
        place.lab.fault(
            method="GET",
            path=f"/nodes/{guest.node}/qemu/{guest.vmid}/config",
            status=500,
            reason=f"Configuration file 'nodes/pve1/qemu-server/{guest.vmid}.conf' does not exist",
        )

        first = undo(client, golden, guest)
        second = undo(client, golden, guest)

    assert "was moved away from" in first.errors[0]
    assert second.errors == ()
    assert place.guests() == []
