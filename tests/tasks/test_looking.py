"""Looking: surveys, addresses, banners, sessions, and which privileges are needed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest

from blocks.manifest.environment import UnknownGuest
from blocks.manifest.guest import Nic
from blocks.manifest.plans import Action
from blocks.proxmox.inventory import Permissions
from tasks.addresses import addresses, reported
from tasks.rights import AGENT, check_rights, needed
from tasks.session import close_session, session
from tasks.ssh import ssh_banner
from tasks.survey import chosen, survey
from tests.environments import OTHER_RUN, Place, brought_up, install, opened
from tests.tasks.test_installation import made


def test_a_survey_needs_one_call_and_one_for_each_guest_that_exists(place: Place) -> None:
    manifest = brought_up(place, count=2, iso=False)
    place.write(count=3, iso=False)
    with opened(manifest) as here:
        place.lab.forget_requests()
        seen = survey(here.client, here.environment)
        calls = [row["path"] for row in place.lab.requests()]

    assert sorted(calls) == [
        "/cluster/resources",
        f"/nodes/pve1/qemu/{place.vmid(1)}/config",
        f"/nodes/pve2/qemu/{place.vmid(2)}/config",
    ]
    assert [guest.label for guest in seen.building()] == ["n3"]
    assert set(seen.lives) == set(seen.rows) == {"n1", "n2"}


def test_a_survey_tells_what_is_to_be_done_with_each_guest(place: Place) -> None:
    manifest = place.write(count=4)
    with opened(manifest) as here:
        install(here, "n1")
        install(here, "n2")
        made(here, "n3")
    place.edit(2, memory=2048)
    with opened(manifest, OTHER_RUN) as here:
        seen = survey(here.client, here.environment)

    assert [plan.action for plan in seen.plan.guests] == [
        Action.UNCHANGED,
        Action.UPDATE,
        Action.RESUME,
        Action.CREATE,
    ]
    assert not seen.nothing_to_do


def test_a_finished_guest_that_is_off_is_to_be_started(place: Place) -> None:
    manifest = brought_up(place)
    with place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{place.vmid()}/status/stop")
    with opened(manifest) as here:
        seen = survey(here.client, here.environment)

    assert seen.to_start("n1")
    assert not seen.nothing_to_do


def test_guests_are_chosen_by_label_name_or_number_in_the_order_of_the_manifest(
    place: Place,
) -> None:
    with opened(place.write(count=3)) as here:
        some = chosen(here.environment, [str(place.vmid(3)), place.name(1)])
        assert [guest.label for guest in some.guests] == ["n1", "n3"]
        assert chosen(here.environment, None) is here.environment
        with pytest.raises(UnknownGuest, match="has no node 'n9'"):
            chosen(here.environment, ["n9"])


def test_declared_addresses_cost_no_call(place: Place) -> None:
    with opened(place.write()) as here:
        place.lab.forget_requests()
        assert addresses(here.client, here.guest("n1")) == (place.address(),)
    assert place.lab.requests() == []


def test_the_agents_addresses_are_those_of_the_declared_cards_ipv4_first(place: Place) -> None:
    with opened(place.write(dhcp=True)) as here:
        guest = here.guest("n1")
    mac = guest.nics[0].mac
    second = Nic(slot="net1", bridge="vmbr1", mac="02:00:00:00:00:02")
    guest = guest.model_copy(update={"nics": (*guest.nics, second)})

    def interface(mac: str | None, *ips: str) -> dict[str, object]:
        own = [{"ip-address": ip} for ip in ips]
        return {"hardware-address": str(mac).lower(), "ip-addresses": own}

    found = reported(
        guest,
        [
            interface("00:00:00:00:00:00", "127.0.0.1", "::1"),
            interface("02:42:00:00:00:01", "172.17.0.1"),
            interface("02:00:00:00:00:02", "10.9.9.9"),
            interface(mac, "fe80::1", "2001:db8::5", "10.8.8.8"),
        ],
    )

    assert found == ("10.8.8.8", "2001:db8::5", "10.9.9.9")
    assert [ip_address(text).version for text in found] == [4, 6, 4]


def test_no_address_is_known_before_the_agent_answers(place: Place) -> None:
    with opened(place.write(dhcp=True)) as here:
        assert addresses(here.client, here.guest("n1")) == ()


@contextmanager
def server(says: bytes | None) -> Iterator[int]:
    """A port of the loopback interface that says something, or nothing, to each caller."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                kept.append(connection)
                if says is not None:
                    connection.sendall(says)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        for connection in kept:
            connection.close()


@pytest.mark.parametrize(
    ("says", "banner"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\nmore", "SSH-2.0-OpenSSH_9.6"),
        (b"HTTP/1.1 400 Bad Request\r\n", None),
        (b"", None),
        (None, None),
    ],
)
def test_only_an_ssh_server_has_a_banner(
    monkeypatch: pytest.MonkeyPatch, says: bytes | None, banner: str | None
) -> None:
    with server(says) as port:
        monkeypatch.setattr("tasks.ssh.PORT", port)
        assert ssh_banner("127.0.0.1", timeout=30 if banner else 0.3) == banner


def test_nobody_there_has_no_banner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ssh.PORT", 1)
    assert ssh_banner("127.0.0.1", timeout=0.3) is None
    assert ssh_banner("127.0.0.1", proxy="socks5://127.0.0.1:1", timeout=0.3) is None


def test_a_guest_is_reached_through_the_proxy_of_its_network(place: Place) -> None:
    with opened(brought_up(place)) as here:
        proxy = here.connection.guest_proxy
    banner = ssh_banner(place.address(), proxy=proxy)

    assert banner is not None
    assert banner.startswith("SSH-2.0-")
    assert ssh_banner(f"{place.subnet}.250", proxy=proxy, timeout=1) is None


def test_a_session_is_opened_once_a_run_and_again_in_another_process(place: Place) -> None:
    with opened(place.write()) as here:
        run = here.run
        assert session(run) is here
    try:
        anew = session(run)
        assert anew is not here
        assert session(run) is anew
        assert anew.guest("n1") == here.guest("n1")
    finally:
        close_session(run)


def test_the_privileges_of_a_guest_are_named_on_their_paths(place: Place) -> None:
    document = place.document(count=2, shared=True, second_nic=True, ovmf=True)
    document["spec"]["hypervisor"]["nodes"]["n1"]["pool"] = "web"
    with opened(place.write(document)) as here:
        wants = needed(here.environment.guests)

    assert set(wants) == {
        "/pool/web",
        "/sdn/zones/localnetwork/vmbr0",
        "/sdn/zones/localnetwork/vmbr1",
        "/storage/local",
        "/storage/local-lvm",
        "/storage/shared",
        f"/vms/{place.vmid(1)}",
        f"/vms/{place.vmid(2)}",
    }
    assert wants["/storage/shared"] == {"Datastore.Allocate", "Datastore.AllocateSpace"}


def test_each_privilege_that_is_missing_is_named_with_its_path(place: Place) -> None:
    with opened(place.write(second_nic=True)) as here:
        guests = here.environment.guests
    wants = needed(guests)
    everything = {path: dict.fromkeys(held, True) for path, held in wants.items()}
    assert check_rights(guests, Permissions(by_path=everything), "ops@pve!t") == []

    for path, held in wants.items():
        for privilege in held:
            less = everything | {path: dict.fromkeys(held - {privilege}, True)}
            (found,) = check_rights(guests, Permissions(by_path=less), "ops@pve!t")
            assert found.problem == f"ops@pve!t lacks {privilege} on {path}"
            assert f"--privs '{privilege}'" in found.remedy
            assert f"pveum acl modify {path} --tokens 'ops@pve!t'" in found.remedy


@pytest.mark.parametrize("other", ["VM.GuestAgent.Unrestricted", "VM.Monitor"])
def test_other_privileges_let_a_caller_ask_the_agent_too(place: Place, other: str) -> None:
    with opened(place.write()) as here:
        guests = here.environment.guests
    path = f"/vms/{place.vmid()}"
    held = {p: dict.fromkeys(names, True) for p, names in needed(guests).items()}
    assert AGENT in held[path]
    del held[path][AGENT]
    held[path][other] = True

    assert check_rights(guests, Permissions(by_path=held), "ops@pve!t") == []


def test_a_user_is_granted_as_a_user(place: Place) -> None:
    with opened(place.write()) as here:
        found = check_rights(here.environment.guests, Permissions(by_path={}), "ops@pve")
    assert "pveum acl modify / --users 'ops@pve' --roles Proxflow" in found[-1].remedy
