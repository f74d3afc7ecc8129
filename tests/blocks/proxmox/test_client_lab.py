"""The client and the lab, over HTTPS: what a good server answers."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from blocks.proxmox.client import Client, api_path
from blocks.proxmox.connection import Connection, lab_connection
from blocks.proxmox.errors import (
    AlreadyExists,
    AuthenticationFailed,
    InvalidParameter,
    Locked,
    NotFound,
    NotSupported,
    ProxmoxError,
    TaskFailed,
    Unreachable,
    WrongState,
)
from deployments.lab.testing import RunningLab
from tests.labfixture import lab, lab_factory
from tests.meanwhile import lasting_until

__all__ = ["lab", "lab_factory"]


@pytest.fixture
def client(lab: RunningLab) -> Iterator[Client]:
    with Client(lab_connection(lab.state)) as one:
        yield one
    lab.clear_faults()


@pytest.fixture
def guest(lab: RunningLab, client: Client) -> Iterator[str]:
    client.run("POST", "/nodes/pve1/qemu", vmid=700, name="one", memory=64)
    yield "/nodes/pve1/qemu/700"
    lab.settle()
    client.run("POST", "/nodes/pve1/qemu/700/status/stop")
    client.run("DELETE", "/nodes/pve1/qemu/700")


@pytest.fixture
def by_password(lab: RunningLab) -> Iterator[Client]:
    known = lab.connection
    connection = Connection(
        endpoint=known["endpoint"],
        ca_file=known["ca_file"],
        user=known["user"],
        password=SecretStr(known["password"]),
    )
    with Client(connection) as one:
        yield one


def test_a_check_is_one_call(lab: RunningLab, client: Client) -> None:
    lab.forget_requests()
    assert client.check() == client.version()
    assert [row["path"] for row in lab.requests()] == ["/version", "/version"]


def test_the_lab_is_accepted_by_its_fingerprint_too(lab: RunningLab) -> None:
    connection = Connection(
        endpoint=lab.endpoint,
        fingerprint=lab.connection["fingerprint"],
        token_id=lab.connection["token_id"],
        token_secret=SecretStr(lab.connection["token_secret"]),
    )
    with Client(connection) as one:
        one.check()


def test_a_password_logs_in_for_reads_and_writes(by_password: Client) -> None:
    by_password.post("/pools", poolid="p1")
    assert {"poolid": "p1"} in by_password.get("/pools")
    by_password.delete("/pools/p1")
    assert by_password.calls["POST"] == 2


def test_a_ticket_that_ran_out_is_renewed(lab: RunningLab, by_password: Client) -> None:
    lab.control("POST", "ticket-seconds", {"seconds": 1.5})
    try:
        by_password.version()
        logins = by_password.calls["POST"]
        deadline = time.monotonic() + 60
        while by_password.calls["POST"] == logins and time.monotonic() < deadline:
            by_password.version()
        assert by_password.calls["POST"] > logins
    finally:
        lab.control("POST", "ticket-seconds", {"seconds": 7200})


def test_a_wrong_secret_is_told(lab: RunningLab) -> None:
    wrong = lab_connection(lab.state).model_copy(update={"token_secret": SecretStr("wr0ng")})
    with Client(wrong) as one, pytest.raises(AuthenticationFailed, match="root@pam!lab") as told:
        one.check()
    assert "wr0ng" not in str(told.value)


@pytest.mark.parametrize(
    ("method", "path", "params", "kind"),
    [
        ("GET", "/nodes/pve1/qemu/1999/config", {}, NotFound),
        ("GET", "/nodes/nowhere/qemu", {}, NotFound),
        ("GET", "/nodes/pve1/storage/nosuch/status", {}, NotFound),
        ("GET", "/nodes/pve1/nonsense", {}, NotSupported),
        ("PUT", "/nodes/pve1/qemu/700/config", {"cores": 0}, InvalidParameter),
        ("PUT", "/nodes/pve1/qemu/700/config", {"nonsense": 1}, InvalidParameter),
        ("POST", "/nodes/pve1/qemu", {"vmid": 700}, AlreadyExists),
        ("POST", "/nodes/pve1/qemu/700/status/reset", {}, WrongState),
    ],
)
def test_refusals_arrive_as_types(
    client: Client,
    guest: str,
    method: str,
    path: str,
    params: dict[str, object],
    kind: type[ProxmoxError],
) -> None:
    with pytest.raises(kind):
        client.request(method, path, params)


def test_a_refusal_within_a_task_arrives_as_its_reason(client: Client) -> None:
    with pytest.raises(TaskFailed) as told:
        client.run("POST", "/nodes/pve1/qemu", vmid=701, ide2="local:iso/none.iso,media=cdrom")
    assert isinstance(told.value.reason, NotFound)


def test_a_write_waits_out_the_file_lock_of_a_task(
    lab: RunningLab, client: Client, guest: str
) -> None:
    def refused(call: dict[str, Any]) -> bool:
        return (call["method"], call["status"]) == ("PUT", 500)

    lab.set_time(scale=1.0, qmstart=600, filelock=0.1)
    with lasting_until(lab, refused):
        upid = client.post(guest + "/status/start")
        client.put(guest + "/config", description="written while it starts")
        client.wait(upid)
    lab.set_time(qmstart=2)
    assert client.get(guest + "/config")["description"].startswith("written")


def test_a_locked_guest_is_told_with_its_lock(lab: RunningLab, client: Client, guest: str) -> None:
    (file,) = lab.state.rglob("700.conf")
    text = file.read_text()
    file.write_text("lock: backup\n" + text)
    try:
        with pytest.raises(Locked) as told:
            client.put(guest + "/config", cores=2)
        assert told.value.lock == "backup"
    finally:
        file.write_text(text)


def test_a_node_that_is_down_is_unreachable(lab: RunningLab) -> None:
    lab.node_offline("pve2")
    try:
        with (
            Client(lab_connection(lab.state), retries=1) as one,
            pytest.raises(Unreachable) as told,
        ):
            one.get("/nodes/pve2/qemu")
        assert told.value.transient
    finally:
        lab.node_offline("pve2", on=False)


def test_many_threads_create_and_delete_through_one_client(client: Client) -> None:
    def life(vmid: int) -> str:
        client.run("POST", "/nodes/pve3/qemu", vmid=vmid, memory=64, scsi0="local-lvm:1")
        config = client.get(f"/nodes/pve3/qemu/{vmid}/config")
        client.run("DELETE", f"/nodes/pve3/qemu/{vmid}")
        return str(config["scsi0"])

    with ThreadPoolExecutor(16) as pool:
        disks = list(pool.map(life, range(800, 832)))
    assert disks == [f"local-lvm:vm-{vmid}-disk-0,size=1G" for vmid in range(800, 832)]
    assert threading.active_count() < 100


@given(st.lists(st.text(min_size=1).filter(lambda s: s not in {".", ".."}), min_size=1))
def test_segments_of_a_path_come_back_whatever_they_hold(segments: list[str]) -> None:
    path = api_path(*segments)
    assert [unquote(part) for part in path.split("/")[1:]] == segments


@given(
    st.from_regex(r"[a-z][a-z0-9]{0,9}(\.[a-z0-9]{1,9}){0,3}(:[1-9][0-9]{0,3})?", fullmatch=True)
)
def test_an_endpoint_once_understood_stays_as_it_is(endpoint: str) -> None:
    credentials = {"token_id": "a@pve!b", "token_secret": SecretStr("x")}
    once = Connection(endpoint=endpoint, **credentials).endpoint
    assert Connection(endpoint=once, **credentials).endpoint == once
