"""Logins by user and password."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from blocks.proxmox.auth import RENEW_AFTER
from blocks.proxmox.client import Client
from blocks.proxmox.errors import AuthenticationFailed, NotProxmox, Unreachable
from tests.blocks.proxmox.standin import VERSION, Reply, Request, Reset, StandIn, standin


class Tickets:
    """Gives out tickets t1, t2, ... and takes only those in ``good``."""

    def __init__(self, **answer: object) -> None:
        self.given = 0
        self.good: set[str] = set()
        self.extra = answer
        self.lock = threading.Lock()

    def __call__(self, request: Request) -> Reply:
        if request.path.endswith("/access/ticket"):
            if b"password=right" not in request.body:
                return Reply(status=401, reason="authentication failure", message="x\n")
            with self.lock:
                self.given += 1
                ticket = f"t{self.given}"
                self.good.add(ticket)
            return Reply(data={"ticket": ticket, "CSRFPreventionToken": "c" + ticket, **self.extra})
        ticket = request.headers.get("Cookie", "").removeprefix("PVEAuthCookie=")
        if ticket not in self.good:
            return Reply(status=401, reason="permission denied - invalid ticket", body=b"")
        if request.method != "GET" and request.headers.get("CSRFPreventionToken") != "c" + ticket:
            return Reply(status=401, reason="Permission denied - invalid csrf token", body=b"")
        return Reply(data=VERSION)


def by_password(server: StandIn, password: str = "right") -> Client:
    return server.client(user="root@pam", password=SecretStr(password))


def test_one_login_serves_reads_and_writes(tmp_path: Path) -> None:
    tickets = Tickets()
    with standin(tmp_path, tickets) as server, by_password(server) as client:
        client.get("/version")
        client.post("/pools", poolid="x")
        client.put("/pools", poolid="x")
        client.delete("/pools", poolid="x")
    assert tickets.given == 1


def test_many_threads_at_once_log_in_once(tmp_path: Path) -> None:
    tickets = Tickets()
    with standin(tmp_path, tickets) as server, by_password(server) as client:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda _: client.get("/version"), range(64)))
        assert client.calls == {"GET": 64, "POST": 1}


def test_a_ticket_is_renewed_before_it_expires(tmp_path: Path) -> None:
    tickets = Tickets()
    with standin(tmp_path, tickets) as server, by_password(server) as client:
        client.version()
        started = client._auth.clock()
        client._auth.clock = lambda: started + RENEW_AFTER
        client.version()
        client.version()
    assert tickets.given == 2


def test_a_ticket_that_the_server_takes_no_longer_is_renewed_once_for_all_threads(
    tmp_path: Path,
) -> None:
    tickets = Tickets()
    with standin(tmp_path, tickets) as server, by_password(server) as client:
        client.version()
        tickets.good.clear()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda _: client.post("/pools", poolid="x"), range(32)))
    assert tickets.given == 2


def test_a_wrong_password_names_the_user_and_is_not_tried_again(tmp_path: Path) -> None:
    tickets = Tickets()
    with standin(tmp_path, tickets) as server, by_password(server, "wr0ng") as client:
        with pytest.raises(AuthenticationFailed, match="root@pam") as told:
            client.version()
        assert "wr0ng" not in f"{told.value}{told.value.advice}{told.value.__cause__}{client!r}"
        assert len(server.requests) == 1


def test_an_account_with_a_second_factor_is_told_to_use_a_token(tmp_path: Path) -> None:
    tickets = Tickets(NeedTFA=1)
    with standin(tmp_path, tickets) as server, by_password(server) as client:
        with pytest.raises(AuthenticationFailed, match="second factor") as told:
            client.version()
        assert "API token" in str(told.value.advice)


def test_a_login_answered_without_a_ticket_is_no_proxmox(tmp_path: Path) -> None:
    with (
        standin(tmp_path, lambda _: Reply(data={"session": 1})) as server,
        by_password(server) as client,
        pytest.raises(NotProxmox, match="without a ticket"),
    ):
        client.version()


def test_a_login_that_breaks_off_is_unreachable(tmp_path: Path) -> None:
    def broken(_: Request) -> Reply:
        raise Reset

    with standin(tmp_path, broken) as server, by_password(server) as client:
        with pytest.raises(Unreachable):
            client.check()
        assert len(server.requests) == 1
