"""The guest agent of a booted machine: programs, files, passwords, shutdown (public sources)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import Client, eventually
from tests.labfixture import LabFactory, lab_factory

__all__ = ["lab_factory"]

SEED = """
default_isos: false
guests:
  - vmid: 100
    node: pve1
    running: true
    config: {name: web1, agent: "1", scsi0: "local:2,format=qcow2", cores: 2, ciuser: ops,
             cipassword: hunter22, sshkeys: "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAA%20ops",
             net0: "virtio=BC:24:11:00:00:01,bridge=vmbr0", ipconfig0: "ip=10.77.3.1/16",
             net1: "virtio=BC:24:11:00:00:02,bridge=vmbr1"}
  - {vmid: 101, node: pve1, running: true, config: {name: bare, scsi0: "local:1"}}
  - {vmid: 102, node: pve1, config: {name: gold, agent: "1", scsi0: "local:1,format=qcow2"}}
"""
MIB = 1 << 20


@pytest.fixture(scope="module")
def agent_lab(lab_factory: LabFactory) -> RunningLab:
    return lab_factory(seed=SEED)


@pytest.fixture
def client(agent_lab: RunningLab) -> Iterator[Client]:
    yield Client(agent_lab)
    agent_lab.set_time(scale=0)


def path(vmid: int, command: str) -> str:
    return f"/nodes/pve1/qemu/{vmid}/agent/{command}"


def ready(client: Client, vmid: int) -> None:
    eventually(lambda: client.raw("POST", path(vmid, "ping")).status_code == 200)


def run(client: Client, vmid: int, *command: str, data: str | None = None) -> dict[str, Any]:
    ready(client, vmid)
    params: dict[str, object] = {"command": list(command)}
    if data is not None:
        params["input-data"] = data
    pid = client.call("POST", path(vmid, "exec"), **params)["pid"]
    status: dict[str, Any] = client.get(path(vmid, "exec-status"), pid=pid)
    return status


def read(client: Client, vmid: int, file: str, **more: object) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(path(vmid, "file-read"), file=file, **more)
    return answer


@pytest.mark.parametrize(
    ("command", "code", "out"),
    [
        (["echo", "one", "two  three"], 0, "one two  three\n"),
        (["/bin/hostname"], 0, "web1\n"),
        (["uname", "-s", "-m"], 0, "Linux x86_64\n"),
        (["id", "-u"], 0, "0\n"),
        (["true"], 0, None),
        (["false"], 1, None),
        (["cat", "/etc/hostname"], 0, "web1\n"),
        (["sh", "-c", "exit 7"], 7, None),
        (["sh", "-c", "echo $1-$0", "zero", "first"], 0, "first-zero\n"),
        (["sh", "-c", "false || echo rescued; nosuch 2>/dev/null; echo $?"], 0, "rescued\n127\n"),
        (["sh", "-c", "for n in 1 2; do printf '<%s>' $n; done | wc -c"], 0, "6\n"),
    ],
)
def test_a_program_runs_and_its_end_is_told(
    client: Client, command: list[str], code: int, out: str | None
) -> None:
    status = run(client, 100, *command)

    assert (status["exited"], status["exitcode"], status.get("out-data")) == (1, code, out)


def test_input_reaches_the_program_and_errors_come_apart(client: Client) -> None:
    assert run(client, 100, "cat", data="from outside")["out-data"] == "from outside"
    failed = run(client, 100, "cat", "/etc/nothing")

    assert failed["exitcode"] == 1
    assert failed["err-data"] == "cat: /etc/nothing: No such file or directory\n"
    assert "out-data" not in failed


def test_a_program_that_is_not_there_is_refused_and_an_end_is_told_once(client: Client) -> None:
    ready(client, 100)
    refused = client.raw("POST", path(100, "exec"), data={"command": ["/usr/bin/missing"]})
    pid = client.call("POST", path(100, "exec"), command=["true"])["pid"]
    client.get(path(100, "exec-status"), pid=pid)

    again = client.raw("GET", path(100, "exec-status"), params={"pid": pid})

    assert refused.status_code == 500
    assert "Failed to execute child process" in refused.json()["message"]
    assert again.reason == "Agent error: Invalid parameter 'pid'"


def test_what_a_shell_appends_is_there_for_the_next_reader_and_after_a_reboot(
    client: Client,
) -> None:
    run(client, 100, "sh", "-c", "mkdir -p /srv/app && echo one > /srv/app/log")
    run(client, 100, "sh", "-c", "echo two >> /srv/app/log; chmod 600 /srv/app/log")
    assert client.task("POST", "/nodes/pve1/qemu/100/status/reboot") == "OK"
    ready(client, 100)

    assert read(client, 100, "/srv/app/log") == {"content": "one\ntwo\n", "bytes-read": 8}
    assert run(client, 100, "stat", "-c", "%a", "/srv/app/log")["out-data"] == "600\n"


def test_files_are_written_as_text_or_as_base64(client: Client) -> None:
    ready(client, 100)
    encoded = base64.b64encode(bytes(range(256))).decode()

    client.call("POST", path(100, "file-write"), file="/tmp/text", content="é\n")
    client.call("POST", path(100, "file-write"), file="/tmp/bytes", content=encoded, encode=0)

    assert read(client, 100, "/tmp/text")["content"] == "é\n"
    assert read(client, 100, "/tmp/bytes", decode=0)["content"] == encoded
    assert read(client, 100, "/tmp/bytes", offset=65, count=2) == {
        "content": "AB",
        "bytes-read": 2,
        "truncated": 1,
    }


@pytest.mark.parametrize(
    ("params", "status", "text"),
    [
        (
            {"file": "/no/where", "content": "x"},
            500,
            "failed to open file '/no/where' (mode: 'wb')",
        ),
        ({"file": "/tmp/x", "content": "→"}, 500, "Wide character"),
        ({"file": "/tmp/x", "content": "?", "encode": 0}, 500, "Invalid parameter 'buf-b64'"),
        ({"file": "/tmp/x", "content": "x" * 61441}, 400, "61440 characters long"),
        ({"content": "x"}, 400, "property is missing"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(
    client: Client, params: dict[str, object], status: int, text: str
) -> None:
    ready(client, 100)

    answer = client.raw("POST", path(100, "file-write"), data=params)

    assert answer.status_code == status
    assert text in answer.text


def test_a_read_brings_sixteen_mebibytes_and_says_that_there_is_more(client: Client) -> None:
    twice = "cat /tmp/big /tmp/big > /tmp/b2; mv /tmp/b2 /tmp/big"
    doubling = f"for n in 1 2 3 4 5 6 7 8 9 10; do {twice}; done"
    client.call("POST", path(100, "file-write"), file="/tmp/big", content="x" * 17 * 1024)
    run(client, 100, "sh", "-c", doubling)

    whole = read(client, 100, "/tmp/big")
    output = run(client, 100, "cat", "/tmp/big")

    assert (len(whole["content"]), whole["truncated"]) == (16 * MIB, 1)
    assert (len(output["out-data"]), output["out-truncated"]) == (16 * MIB, 1)
    assert "truncated" not in read(client, 100, "/tmp/big", offset=2 * MIB)


def test_the_agent_tells_about_its_system(client: Client) -> None:
    ready(client, 100)

    answers = {
        name: client.get(path(100, name))["result"]
        for name in ("get-host-name", "get-osinfo", "get-vcpus", "get-fsinfo", "get-timezone")
    }

    assert answers["get-host-name"] == {"host-name": "web1"}
    assert answers["get-osinfo"]["machine"] == "x86_64"
    assert len(answers["get-vcpus"]) == 2
    assert answers["get-fsinfo"][0]["mountpoint"] == "/"
    assert answers["get-timezone"]["offset"] == 0
    assert client.get(path(100, "get-time"))["result"] > 1 << 60
    assert client.get(path(100, "get-users"))["result"] == []


def test_fixed_addresses_are_there_at_once_and_leased_ones_after_a_while(client: Client) -> None:
    ready(client, 100)
    client.lab.set_time(scale=1, dhcp=600, boot=0.01, qmstart=0, acpi=0)
    assert client.task("POST", "/nodes/pve1/qemu/100/status/reboot") == "OK"
    ready(client, 100)

    def shown() -> list[str]:
        rows = client.get(path(100, "network-get-interfaces"))["result"]
        return [a["ip-address"] for row in rows for a in row["ip-addresses"]]

    assert "10.77.3.1" in shown()
    assert not any(address.startswith("10.78.") for address in shown())
    client.lab.set_time(scale=1, dhcp=0)
    assert eventually(lambda: any(address.startswith("10.78.") for address in shown()))


def test_frozen_file_systems_answer_only_what_ends_the_freeze(client: Client) -> None:
    ready(client, 100)

    assert client.call("POST", path(100, "fsfreeze-status"))["result"] == "thawed"
    assert client.call("POST", path(100, "fsfreeze-freeze"))["result"] == 1
    refused = client.raw("POST", path(100, "exec"), data={"command": ["true"]})

    assert client.call("POST", path(100, "fsfreeze-status"))["result"] == "frozen"
    assert "the agent is in frozen state" in refused.reason
    assert client.call("POST", path(100, "fsfreeze-thaw"))["result"] == 1
    assert run(client, 100, "true")["exitcode"] == 0


def test_cloud_init_made_the_user_and_its_keys(client: Client) -> None:
    ready(client, 100)

    keys = read(client, 100, "/home/ops/.ssh/authorized_keys")["content"]

    assert keys == "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA ops\n"
    assert run(client, 100, "id", "ops")["out-data"].startswith("uid=1000(ops)")


def test_a_password_is_set_for_a_user_that_exists(client: Client) -> None:
    ready(client, 100)
    before = read(client, 100, "/etc/shadow")["content"]

    client.call("POST", path(100, "set-user-password"), username="root", password="changed")
    unknown = client.raw(
        "POST", path(100, "set-user-password"), data={"username": "nobody9", "password": "x" * 9}
    )

    after = read(client, 100, "/etc/shadow")["content"]
    assert before != after
    assert "changed" not in after
    assert unknown.status_code == 500


def test_a_clone_has_its_own_copy_of_the_files(client: Client) -> None:
    base = "/nodes/pve1/qemu"
    assert client.task("POST", f"{base}/102/status/start") == "OK"
    run(client, 102, "sh", "-c", "echo gold > /etc/made-by")
    assert client.task("POST", f"{base}/102/status/stop") == "OK"
    assert client.task("POST", f"{base}/102/clone", newid=103, name="copy") == "OK"
    for vmid in (102, 103):
        assert client.task("POST", f"{base}/{vmid}/status/start") == "OK"

    run(client, 103, "sh", "-c", "echo copied >> /etc/made-by")

    assert read(client, 103, "/etc/made-by")["content"] == "gold\ncopied\n"
    assert read(client, 102, "/etc/made-by")["content"] == "gold\n"
    assert read(client, 103, "/etc/hostname")["content"] == "copy\n"


def test_a_rolled_back_guest_has_the_files_of_the_snapshot(client: Client) -> None:
    base = "/nodes/pve1/qemu/102"
    if client.get(f"{base}/status/current")["status"] == "stopped":
        assert client.task("POST", f"{base}/status/start") == "OK"
    run(client, 102, "sh", "-c", "echo before > /etc/state")
    assert client.task("POST", f"{base}/snapshot", snapname="then") == "OK"
    run(client, 102, "sh", "-c", "echo after > /etc/state")

    assert client.task("POST", f"{base}/snapshot/then/rollback", start=1) == "OK"

    ready(client, 102)
    assert read(client, 102, "/etc/state")["content"] == "before\n"


def test_without_an_agent_in_the_configuration_every_command_is_refused(client: Client) -> None:
    answers = [
        client.raw("GET", path(101, "get-osinfo")),
        client.raw("POST", path(101, "exec"), data={"command": ["true"]}),
        client.raw("GET", path(101, "file-read"), params={"file": "/etc/hostname"}),
    ]

    assert {answer.reason for answer in answers} == {"No QEMU guest agent configured"}


def test_a_guest_told_to_shut_down_by_its_agent_is_off_after_a_while(client: Client) -> None:
    if client.get("/nodes/pve1/qemu/102/status/current")["status"] == "stopped":
        assert client.task("POST", "/nodes/pve1/qemu/102/status/start") == "OK"
    ready(client, 102)

    client.call("POST", path(102, "shutdown"))

    current = "/nodes/pve1/qemu/102/status/current"
    assert eventually(lambda: client.get(current)["status"] == "stopped")


def test_a_guest_may_ignore_the_power_button_until_it_is_forced(client: Client) -> None:
    base = "/nodes/pve1/qemu/101/status"
    client.lab.acpi(101, never=True)

    assert client.task("POST", f"{base}/shutdown", timeout=1) == (
        "VM quit/powerdown failed - got timeout"
    )
    assert client.get(f"{base}/current")["status"] == "running"
    assert client.task("POST", f"{base}/shutdown", timeout=1, forceStop=1) == "OK"
    assert client.get(f"{base}/current")["status"] == "stopped"


def test_a_guest_may_take_longer_than_it_is_given(client: Client) -> None:
    base = "/nodes/pve1/qemu/100/status"
    ready(client, 100)
    client.lab.acpi(100, seconds=90)
    client.lab.set_time(scale=0.001)

    assert client.task("POST", f"{base}/shutdown", timeout=60).endswith("got timeout")
    assert client.task("POST", f"{base}/shutdown", timeout=100_000) == "OK"
