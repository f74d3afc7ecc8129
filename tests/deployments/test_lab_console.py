"""Consoles over termproxy and a web socket: real framing, a login, a shell (public sources)."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client, eventually
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"""
default_isos: false
files:
  - {{content: vztmpl, name: debian-13-standard_13.1-1_amd64.tar.zst, size: 100}}
users:
  - userid: ops@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /vms, role: PVEAuditor}}]
guests:
  - vmid: 100
    node: pve2
    running: true
    config: {{name: serial1, agent: "1", scsi0: "local:1", serial0: socket}}
  - vmid: 102
    node: pve2
    running: true
    config: {{name: serial2, agent: "1", scsi0: "local:1", serial0: socket}}
  - {{vmid: 101, node: pve2, running: true, config: {{name: mute, scsi0: "local:1"}}}}
"""
TEMPLATE = "local:vztmpl/debian-13-standard_13.1-1_amd64.tar.zst"
CT = "/nodes/pve1/lxc/200"
PASSWORD = "correct horse"
PATIENCE = 60


class Socket:
    """A web socket for tests that do one thing after the other.

    The library's own for threads reads and writes one TLS connection from two of them at once,
    which Python 3.11 does not guard: now and then a handshake was never answered.
    """

    def __init__(self, runner: asyncio.Runner, connection: ClientConnection) -> None:
        self._runner = runner
        self._connection = connection

    @property
    def subprotocol(self) -> str | None:
        return self._connection.subprotocol

    def send(self, data: bytes) -> None:
        self._runner.run(self._connection.send(data))

    def recv(self, timeout: float = PATIENCE) -> str | bytes:
        return self._runner.run(asyncio.wait_for(self._connection.recv(), timeout))

    def close(self) -> None:
        self._runner.run(self._connection.close())


class Console:
    """What a terminal in a browser does, in a few lines."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self.seen = ""

    def type(self, text: str) -> None:
        data = text.encode()
        self._socket.send(b"0:%d:" % len(data) + data)

    def send(self, data: bytes) -> None:
        self._socket.send(data)

    def until(self, pattern: str) -> str:
        """All that is shown until the pattern comes; the next wait begins behind it."""
        deadline = time.monotonic() + PATIENCE
        while not (match := re.search(pattern, self.seen)):
            data = self._socket.recv(timeout=max(0.01, deadline - time.monotonic()))
            self.seen += data.decode() if isinstance(data, bytes) else data
        shown, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return shown

    def run(self, command: str) -> str:
        """The output of one command at a root prompt."""
        self.type(command + "\n")
        shown = self.until(r"root@\S+# ")
        return "\n".join(shown.replace("\r", "").split("\n")[1:-1])


@pytest.fixture(scope="module")
def console_lab(lab_factory: LabFactory) -> RunningLab:
    running = lab_factory(seed=SEED)
    running.set_time(console=PATIENCE)
    client = Client(running)
    made = client.task(
        "POST",
        "/nodes/pve1/lxc",
        vmid=200,
        hostname="ct1",
        ostemplate=TEMPLATE,
        rootfs="local-lvm:1",
        password=PASSWORD,
        start=1,
        **{"ssh-public-keys": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBBBBBBBBBBBBB first"},
    )
    assert made == "OK"
    running.settle()
    return running


@pytest.fixture
def client(console_lab: RunningLab) -> Client:
    return Client(console_lab)


def url(client: Client, path: str, ticket: dict[str, Any]) -> str:
    query = f"port={ticket['port']}&vncticket={quote(ticket['ticket'], safe='')}"
    return f"wss://127.0.0.1:{client.lab.port}/api2/json{path}/vncwebsocket?{query}"


@contextmanager
def socket(
    client: Client, path: str, ticket: dict[str, Any], header: str | None = None
) -> Iterator[Socket]:
    trust = ssl.create_default_context(cafile=client.lab.connection["ca_file"])
    headers = {"Authorization": header or client.lab.token_header}

    async def opening() -> ClientConnection:
        return await connect(
            url(client, path, ticket),
            ssl=trust,
            additional_headers=headers,
            subprotocols=[Subprotocol("binary")],
            proxy=None,
            open_timeout=PATIENCE,
            ping_interval=None,
        )

    with asyncio.Runner() as runner:
        opened = Socket(runner, runner.run(opening()))
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def console(client: Client, path: str = CT, **options: object) -> Iterator[Console]:
    ticket = client.call("POST", f"{path}/termproxy", **options)
    with socket(client, path, ticket) as opened:
        assert opened.subprotocol == "binary"
        opened.send(f"{ticket['user']}:{ticket['ticket']}\n".encode())
        assert opened.recv() == b"OK"
        # A guest without a line may have hung up by now; what it said is still to be read.
        with suppress(ConnectionClosed):
            opened.send(b"1:120:40:")
        yield Console(opened)


@contextmanager
def nobody_calls(client: Client) -> Iterator[None]:
    """The time that a proxy waits for its client is over."""
    client.lab.set_time(console=0)
    yield
    client.lab.set_time(console=PATIENCE)


def log_in(one: Console, password: str = PASSWORD) -> None:
    one.type("\n")
    one.until("login: $")
    one.type("root\r\n")
    one.until("Password: ")
    one.type(f"{password}\n")


def test_a_login_with_the_password_given_at_create_leads_to_a_shell(client: Client) -> None:
    with console(client) as one:
        one.until("ct1 login: ")
        log_in(one)
        assert "Linux ct1" in one.until(r"root@ct1:~# ")

        shown = one.run("id -un; pwd; cat /etc/hostname")
        one.type("exit\n")
        one.until("ct1 login: ")

    assert shown == "root\n/root\nct1"


def test_a_key_can_be_appended_and_is_there_afterwards(client: Client) -> None:
    with console(client) as one:
        log_in(one)
        one.until("# ")
        one.run("mkdir -p /root/.ssh && chmod 700 /root/.ssh")
        one.run("echo 'ssh-ed25519 AAAA second' >> /root/.ssh/authorized_keys")

        keys = one.run("cat /root/.ssh/authorized_keys").splitlines()
        one.type("exit\n")
        one.until("login: ")

    assert [key.rpartition(" ")[2] for key in keys] == ["first", "second"]


def test_a_wrong_password_is_refused_and_never_shown(client: Client) -> None:
    with console(client) as one:
        log_in(one, "wrong guess")

        shown = one.until("Login incorrect[\r\n]+ct1 login: ")

    assert "wrong guess" not in shown


def test_keys_arrive_in_pieces_and_the_line_can_be_edited(client: Client) -> None:
    with console(client) as one:
        log_in(one)
        one.until("# ")
        message = b"0:14:echo abX\x7fc def"
        one.send(b"2" + message[:9])
        one.send(message[9:] + b"2" + b"0:1:")
        one.send(b"\n1:80:24:2")

        shown = one.until(r"\nabc def\r\n")
        one.type("nonsense\x03")
        one.until(r"\^C")
        one.type("\x04")
        one.until("login: ")

    assert "# " not in shown.rpartition("abc def")[2]


def test_a_session_outlives_the_connection(client: Client) -> None:
    with console(client) as one:
        log_in(one)
        one.until("# ")
        one.run("cd /etc")
    with console(client) as two:
        two.type("\n")
        two.until(r"root@ct1:/etc# ")

        assert two.run("pwd") == "/etc"
        two.type("logout\n")
        two.until("login: ")


def test_a_container_whose_console_is_a_shell_asks_no_password(client: Client) -> None:
    client.call("PUT", f"{CT}/config", cmode="shell")
    client.task("POST", f"{CT}/status/reboot")

    with console(client) as one:
        one.until(r"root@ct1:~# ")
        assert one.run("whoami") == "root"
        one.type("exit\n")
        with pytest.raises(ConnectionClosed):
            one.until("never shown")

    client.call("PUT", f"{CT}/config", cmode="tty")
    client.task("POST", f"{CT}/status/reboot")


def test_a_container_that_restarts_itself_is_up_again_as_a_new_process(client: Client) -> None:
    current = f"{CT}/status/current"
    before = client.get(current)["pid"]

    with console(client) as one:
        log_in(one)
        one.until("# ")
        one.type("reboot\n")
        after = eventually(lambda: pid_other_than(before, client.get(current)))
    with console(client) as two:
        two.until("ct1 login: ")

    assert after > before


def pid_other_than(before: int, status: dict[str, Any]) -> int | None:
    pid = status.get("pid")
    return None if pid in (None, before) else int(str(pid))


def test_a_shell_ends_when_its_machine_restarts(client: Client) -> None:
    path = "/nodes/pve2/qemu/102"
    eventually(lambda: client.raw("POST", f"{path}/agent/ping").status_code == 200)
    client.call("POST", f"{path}/agent/set-user-password", username="root", password=PASSWORD)
    with console(client, path, serial="serial0") as one:
        one.until("serial2 login: ")
        log_in(one)
        one.until("# ")
        client.task("POST", f"{path}/status/reset")

    with console(client, path, serial="serial0") as two:
        two.until("serial2 login: ")


def test_a_machine_with_a_serial_line_has_a_console_too(client: Client) -> None:
    path = "/nodes/pve2/qemu/100"
    ping = f"{path}/agent/ping"
    eventually(lambda: client.raw("POST", ping).status_code == 200)
    client.call("POST", f"{path}/agent/set-user-password", username="root", password=PASSWORD)

    with console(client, path, serial="serial0") as one:
        one.until("starting serial terminal on interface serial0")
        one.until("serial1 login: ")
        log_in(one)
        one.until("# ")
        one.run("echo from the console > /etc/motd")
        users = client.get(f"{path}/agent/get-users")["result"]

    read = client.get(f"{path}/agent/file-read", file="/etc/motd")
    assert read["content"] == "from the console\n"
    assert [user["user"] for user in users] == ["root"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/nodes/pve2/qemu/101", "unable to find a serial interface"),
        ("/nodes/pve1/lxc/201", "201 is not running"),
    ],
)
def test_a_guest_without_a_line_says_so_and_hangs_up(client: Client, path: str, text: str) -> None:
    if path.endswith("201") and client.raw("GET", f"{path}/config").status_code != 200:
        made = {"vmid": 201, "ostemplate": TEMPLATE, "rootfs": "local-lvm:1"}
        assert client.task("POST", "/nodes/pve1/lxc", **made) == "OK"

    with console(client, path) as one:
        one.until(text)
        with pytest.raises(ConnectionClosed):
            one.until("never shown")


def test_a_stop_of_the_guest_ends_the_connection_and_the_task(client: Client) -> None:
    made = {"vmid": 202, "ostemplate": TEMPLATE, "rootfs": "local-lvm:1", "start": 1}
    assert client.task("POST", "/nodes/pve1/lxc", **made) == "OK"
    client.lab.settle()
    path = "/nodes/pve1/lxc/202"
    ticket = client.call("POST", f"{path}/termproxy")
    with socket(client, path, ticket) as opened:
        opened.send(f"{ticket['user']}:{ticket['ticket']}\n".encode())
        one = Console(opened)
        one.until("login: ")
        assert client.task("POST", f"{path}/status/stop") == "OK"
        with pytest.raises(ConnectionClosed):
            one.until("never shown")

    assert client.wait(ticket["upid"]) == "OK"


def test_a_proxy_that_nobody_calls_gives_up(client: Client) -> None:
    ticket = client.call("POST", f"{CT}/termproxy")

    with nobody_calls(client):
        ended = client.wait(ticket["upid"])

    assert re.fullmatch(r"command '/usr/bin/termproxy 59\d\d .*' failed: exit code 1", ended)


def test_a_socket_needs_the_privilege_and_the_ticket_made_for_it(client: Client) -> None:
    ticket = client.call("POST", f"{CT}/termproxy")
    auditor = f"PVEAPIToken=ops@pve!t={SECRET}"

    statuses = {}
    for name, one, header in (
        ("forged", {**ticket, "ticket": "PVEVNC:00000000::00"}, None),
        ("port", {**ticket, "port": str(int(ticket["port"]) + 1)}, None),
        ("auditor", ticket, auditor),
        ("nobody", ticket, "PVEAPIToken=ops@pve!t=guess"),
    ):
        with pytest.raises(InvalidStatus) as refused, socket(client, CT, one, header):
            pass
        statuses[name] = refused.value.response.status_code
    with nobody_calls(client):
        client.wait(ticket["upid"])
    asked = Client(client.lab, auditor).raw("POST", f"{CT}/termproxy")

    assert statuses == {"forged": 401, "port": 401, "auditor": 403, "nobody": 401}
    assert asked.reason == "Permission check failed (/vms/200, VM.Console)"


def test_a_wrong_first_line_is_answered_by_hanging_up(client: Client) -> None:
    ticket = client.call("POST", f"{CT}/termproxy")

    with socket(client, CT, ticket) as opened:
        opened.send(b"root@pam:PVEVNC:00000000::00\n")
        with pytest.raises(ConnectionClosed):
            opened.recv()
