"""What the client does when the way to the cluster, or whatever is there, is bad."""

import http.server
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from blocks.proxmox.client import Client, api_path
from blocks.proxmox.connection import Connection
from blocks.proxmox.errors import (
    AuthenticationFailed,
    InvalidParameter,
    Locked,
    NotProxmox,
    Unreachable,
)
from tests.blocks.proxmox.standin import (
    VERSION,
    Reply,
    Request,
    Reset,
    closed_port,
    in_turn,
    standin,
)

GOOD = Reply(data=VERSION)
FILE_LOCK = "can't lock file '/var/lock/qemu-server/lock-1200.conf' - got timeout"


def refused(text: str, status: int = 500) -> Reply:
    return Reply(status=status, reason=text, message=text + "\n")


def test_a_read_survives_a_broken_connection(tmp_path: Path) -> None:
    with standin(tmp_path, in_turn(Reset, Reset, GOOD)) as server, server.client() as client:
        assert client.version().version == "9.2.11"
        assert client.calls == {"GET": 3}


def test_a_write_whose_connection_broke_is_not_repeated_and_says_that_its_effect_is_unknown(
    tmp_path: Path,
) -> None:
    with standin(tmp_path, in_turn(Reset, GOOD)) as server, server.client() as client:
        with pytest.raises(Unreachable, match="whether the POST had its effect is unknown") as told:
            client.post("/nodes/pve1/qemu", vmid=100)
        assert told.value.effect_unknown
        assert len(server.requests) == 1


def test_a_write_that_may_be_repeated_is(tmp_path: Path) -> None:
    with standin(tmp_path, in_turn(Reset, Reply(data=None))) as server, server.client() as client:
        client.request("PUT", "/nodes/pve1/qemu/100/config", {"cores": 2}, idempotent=True)
        assert len(server.requests) == 2


def test_a_write_that_never_reached_its_node_is_repeated(tmp_path: Path) -> None:
    never_sent = refused("No route to host", 595)
    replies = in_turn(never_sent, Reply(data="x"))
    with standin(tmp_path, replies) as server, server.client() as client:
        assert client.post("/nodes/pve2/qemu", vmid=100) == "x"


def test_a_write_that_a_gateway_lost_is_not_repeated(tmp_path: Path) -> None:
    with standin(tmp_path, in_turn(refused("Broken pipe", 596))) as server:
        with server.client() as client, pytest.raises(Unreachable):
            client.post("/nodes/pve2/qemu", vmid=100)
        assert len(server.requests) == 1


def test_a_read_gives_up_after_its_retries(tmp_path: Path) -> None:
    with standin(tmp_path, in_turn(refused("down", 503))) as server:
        with server.client(retries=2) as client, pytest.raises(Unreachable) as told:
            client.get("/version")
        assert len(server.requests) == 3
        assert not told.value.effect_unknown


def test_a_file_lock_is_waited_out_even_by_writes(tmp_path: Path) -> None:
    with standin(tmp_path, in_turn(refused(FILE_LOCK), Reply())) as server:
        with server.client() as client:
            client.put("/nodes/pve1/qemu/1200/config", description="x")
        assert len(server.requests) == 2


def test_a_guest_lock_fails_at_once(tmp_path: Path) -> None:
    with standin(tmp_path, in_turn(refused("VM is locked (backup)"))) as server:
        with server.client() as client, pytest.raises(Locked) as told:
            client.put("/nodes/pve1/qemu/1200/config", description="x")
        assert told.value.lock == "backup"
        assert len(server.requests) == 1


def test_an_answer_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    release = threading.Event()

    def silent(_: Request) -> Reply:
        release.wait(10)
        return GOOD

    with standin(tmp_path, silent) as server:
        with server.client(read_timeout=0.2) as client, pytest.raises(Unreachable) as told:
            client.post("/nodes/pve1/qemu", vmid=100)
        release.set()
        assert told.value.effect_unknown
        assert "did not answer in time" in str(told.value)


def test_a_refused_connection_says_so_and_was_tried_again() -> None:
    connection = Connection(
        endpoint=f"localhost:{closed_port()}", token_id="a@pve!b", token_secret=SecretStr("x")
    )
    with Client(connection, retries=2) as client, pytest.raises(Unreachable) as told:
        client.post("/nodes/pve1/qemu", vmid=100)
    assert "refuses connections" in str(told.value)
    assert "8006" in str(told.value.advice)
    assert client.calls == {"POST": 3}


def test_an_unknown_name_says_so_at_once() -> None:
    connection = Connection(endpoint="pve.invalid", token_id="a@pve!b", token_secret=SecretStr("x"))
    with Client(connection) as client, pytest.raises(Unreachable, match=r"pve\.invalid") as told:
        client.version()
    assert "cannot be resolved" in str(told.value)
    assert client.calls.total() == 1


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (Reply(body=b"<html>hello</html>", content_type="text/html"), "a body of type text/html"),
        (Reply(body=b"", content_type="text/plain"), "a body of type text/plain"),
        (Reply(body=b'{"answer": 42}'), "answered 200"),
        (Reply(status=404, reason="Not Found", body=b"{}"), "answered 404"),
        (
            Reply(status=401, reason="Unauthorized", body=b"<html>", content_type="text/html"),
            "web page",
        ),
        (Reply(status=302, reason="Found", headers={"Location": "/login"}), "redirects to /login"),
        (Reply(data={"product": "something else"}), "has no version of Proxmox VE"),
    ],
)
def test_a_host_that_is_no_proxmox_is_told_as_that(tmp_path: Path, reply: Reply, what: str) -> None:
    with (
        standin(tmp_path, in_turn(reply)) as server,
        server.client() as client,
        pytest.raises(NotProxmox, match=what) as told,
    ):
        client.check()
    assert server.endpoint in str(told.value)
    assert "8006" in str(told.value.advice)


def test_a_port_that_speaks_plain_http_is_told_as_that() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    connection = Connection(
        endpoint=f"127.0.0.1:{server.server_address[1]}",
        token_id="a@pve!b",
        token_secret=SecretStr("x"),
        verify=False,
    )
    try:
        with Client(connection) as client, pytest.raises(NotProxmox, match="does not speak TLS"):
            client.check()
    finally:
        server.shutdown()
        server.server_close()


def test_a_bad_token_names_the_token_but_not_its_secret(tmp_path: Path) -> None:
    reply = Reply(status=401, reason="Authentication failed!", body=b"", content_type="")
    with standin(tmp_path, in_turn(reply)) as server, server.client() as client:
        with pytest.raises(AuthenticationFailed) as told:
            client.check()
        assert "root@pam!test" in str(told.value)
        assert "s3cret" not in f"{told.value} {told.value.advice} {client!r} {client.connection!r}"
        assert len(server.requests) == 1


def test_parameters_travel_as_the_server_wants_them(tmp_path: Path) -> None:
    with standin(tmp_path, in_turn(Reply())) as server, server.client() as client:
        client.post(
            "/nodes/pve1/qemu", onboot=True, agent=False, tags=None, cipassword=SecretStr("pw")
        )
        client.get("/access/permissions", path="/vms/1", full=True, userid=None)
    assert server.requests[0].body == b"onboot=1&agent=0&cipassword=pw"
    assert server.requests[1].path == "/api2/json/access/permissions?path=%2Fvms%2F1&full=1"


def test_a_volume_id_is_one_segment_of_a_path(tmp_path: Path) -> None:
    path = api_path("nodes", "pve1", "storage", "local", "content", "local:iso/a b#1.iso")
    with standin(tmp_path, in_turn(Reply())) as server, server.client() as client:
        client.delete(path)
    assert server.requests[0].path.endswith("/content/local%3Aiso%2Fa%20b%231.iso")


@pytest.mark.parametrize("segment", ["", ".", ".."])
def test_a_path_never_climbs(segment: str) -> None:
    with pytest.raises(ValueError, match="no path"):
        api_path("nodes", segment, "qemu")


def test_the_body_of_a_refusal_is_read_and_not_only_its_first_line(tmp_path: Path) -> None:
    reply = Reply(
        status=400,
        reason="Parameter verification failed.",
        message="Parameter verification failed.\n",
        errors={"cores": "value must have a minimum value of 1"},
    )
    with (
        standin(tmp_path, in_turn(reply)) as server,
        server.client() as client,
        pytest.raises(InvalidParameter) as told,
    ):
        client.put("/nodes/pve1/qemu/1/config", cores=0)
    assert told.value.fields == {"cores": "value must have a minimum value of 1"}


def test_nothing_that_is_sent_or_answered_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("proxmoxer", "proxmoxer.core", "proxmoxer.backends.https"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    with standin(tmp_path, in_turn(Reply(data="t0ken"))) as server, server.client() as client:
        client.post("/nodes/pve1/qemu", cipassword=SecretStr("hidden"))
    assert "hidden" not in caplog.text
    assert "t0ken" not in caplog.text
    assert "s3cret" not in caplog.text


def test_the_environment_decides_neither_route_nor_trust_nor_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no certificate")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login eve password wrong\n")
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(variable, str(rubbish))
    monkeypatch.setenv("NETRC", str(netrc))
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{closed_port()}")
    with standin(tmp_path, in_turn(GOOD)) as server, server.client() as client:
        client.check()
    assert server.requests[0].headers["Authorization"] == "PVEAPIToken=root@pam!test=s3cret"


def test_cookies_of_a_load_balancer_are_not_sent_back(tmp_path: Path) -> None:
    reply = Reply(data=VERSION, headers={"Set-Cookie": "lb=1; Path=/"})
    with standin(tmp_path, in_turn(reply)) as server, server.client() as client:
        client.version()
        client.version()
    assert "Cookie" not in server.requests[1].headers


def test_thirty_two_threads_share_one_client_and_its_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def echo(request: Request) -> Reply:
        return Reply(data=request.path.rpartition("/")[2])

    with standin(tmp_path, echo) as server, server.client() as client:
        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda n: client.get(f"/echo/{n}"), range(320)))
        assert answers == [str(n) for n in range(320)]
        assert client.calls == {"GET": 320}
        assert len(server.connections) <= 32
    assert "pool is full" not in caplog.text


def test_a_message_with_umlauts_arrives_as_it_was_written(tmp_path: Path) -> None:
    reply = Reply(status=500, reason="kaputt", message="Größe fehlt\n")
    with (
        standin(tmp_path, in_turn(reply)) as server,
        server.client() as client,
        pytest.raises(Exception, match="Größe fehlt"),
    ):
        client.get("/x")


def test_a_version_needs_one_call_and_check_makes_no_second_attempt(tmp_path: Path) -> None:
    with standin(tmp_path, in_turn(refused("down", 503))) as server, server.client() as client:
        with pytest.raises(Unreachable):
            client.check()
        assert len(server.requests) == 1
    assert json.dumps(client.calls) == '{"GET": 1}'
