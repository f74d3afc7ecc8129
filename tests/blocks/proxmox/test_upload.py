"""Uploads into the lab's storages, over HTTPS."""

import hashlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.proxmox.errors import (
    BadUpload,
    InvalidParameter,
    NotFound,
    PermissionDenied,
    ProxmoxError,
    TaskFailed,
    Unreachable,
)
from blocks.proxmox.inventory import storage_content
from blocks.proxmox.upload import upload, volume_name
from deployments.lab.testing import RunningLab
from tests.blocks.proxmox.standin import Reply, Request, standin
from tests.labfixture import lab, lab_factory

__all__ = ["lab", "lab_factory"]


@pytest.fixture
def client(lab: RunningLab) -> Iterator[Client]:
    with Client(lab_connection(lab.state)) as one:
        yield one
    lab.clear_faults()


@pytest.fixture
def iso(tmp_path: Path) -> Path:
    path = tmp_path / "seed.iso"
    path.write_bytes(bytes(range(256)) * 40)
    return path


def test_an_uploaded_file_is_a_volume_of_its_size(client: Client, iso: Path) -> None:
    assert upload(client, "pve1", "local", iso) == "local:iso/seed.iso"
    (row,) = [v for v in storage_content(client, "pve1", "local", "iso") if v.name == "seed.iso"]
    assert row.size == iso.stat().st_size


def test_the_bytes_that_arrive_are_the_bytes_that_were_sent(
    lab: RunningLab, client: Client, iso: Path
) -> None:
    digest = hashlib.sha256(iso.read_bytes()).hexdigest()
    upload(client, "pve1", "local", iso, filename="sum.iso", sha256=digest.upper())
    (stored,) = lab.state.rglob("sum.iso")
    assert stored.read_bytes() == iso.read_bytes()


def test_a_wrong_checksum_fails_and_leaves_no_volume(client: Client, iso: Path) -> None:
    with pytest.raises(TaskFailed, match="checksum mismatch"):
        upload(client, "pve1", "local", iso, filename="bad.iso", sha256="0" * 64)
    names = [volume.name for volume in storage_content(client, "pve1", "local", "iso")]
    assert "bad.iso" not in names


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("rec b+cü.iso", "rec_b_c_.iso"),
        ("../../etc/rec-name.iso", "rec-name.iso"),
        ("C:\\isos\\win.iso", "win.iso"),
        ("rec-upper.ISO", "rec-upper.ISO"),
    ],
)
def test_the_volume_id_is_right_whatever_the_name_was(
    client: Client, iso: Path, name: str, stored: str
) -> None:
    """Recorded in 03-uploads, steps 7 to 9."""
    assert volume_name(name) == stored
    assert upload(client, "pve1", "local", iso, filename=name) == f"local:iso/{stored}"


def test_a_container_template_goes_where_templates_are(client: Client, iso: Path) -> None:
    volid = upload(
        client, "pve1", "local", iso, content="vztmpl", filename="debian-13_1_amd64.tar.zst"
    )
    assert volid == "local:vztmpl/debian-13_1_amd64.tar.zst"


def test_an_existing_volume_is_overwritten(client: Client, iso: Path) -> None:
    upload(client, "pve1", "local", iso, filename="again.iso")
    iso.write_bytes(b"shorter")
    upload(client, "pve1", "local", iso, filename="again.iso")
    sizes = {v.name: v.size for v in storage_content(client, "pve1", "local", "iso")}
    assert sizes["again.iso"] == 7


def test_progress_is_told_and_ends_with_everything(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "big.iso"
    size = 10 * 1024 * 1024 + 17
    path.write_bytes(b"x" * size)
    told: list[tuple[int, int]] = []
    upload(
        client, "pve1", "local", path, on_progress=lambda sent, total: told.append((sent, total))
    )
    assert told == sorted(told)
    assert told[-1] == (size, size)
    assert 10 <= len(told) <= 14


def test_a_large_file_needs_little_memory(tmp_path: Path) -> None:
    """Against a sink in this process's threads, whose own memory is one block."""
    path = tmp_path / "large.iso"
    with path.open("wb") as file:
        file.truncate(200 * 1024 * 1024)

    def sink(_: Request) -> Reply:
        return Reply(status=500, reason="enough", message="enough\n")

    with standin(tmp_path, sink, drain=True) as server, server.client() as client:
        tracemalloc.start()
        try:
            with pytest.raises(ProxmoxError, match="enough"):
                upload(client, "pve1", "local", path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert server.requests[0].size > 200 * 1024 * 1024
    assert peak < 16 * 1024 * 1024


def test_nothing_is_sent_of_a_file_that_is_missing_empty_or_a_folder(
    lab: RunningLab, client: Client, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.iso"
    empty.touch()
    lab.forget_requests()
    for path, what in [
        (tmp_path / "none.iso", "does not exist"),
        (empty, "is empty"),
        (tmp_path, "is a folder"),
    ]:
        with pytest.raises(BadUpload, match=what):
            upload(client, "pve1", "local", path)
    assert lab.writes() == []


def test_a_wrong_extension_is_the_servers_to_refuse(client: Client, iso: Path) -> None:
    with pytest.raises(InvalidParameter) as told:
        upload(client, "pve1", "local", iso, filename="seed.txt")
    assert told.value.fields == {"filename": "wrong file extension"}


def test_a_storage_that_does_not_exist_or_takes_no_isos_is_told(client: Client, iso: Path) -> None:
    with pytest.raises(NotFound, match="nosuch"):
        upload(client, "pve1", "nosuch", iso)
    with pytest.raises(ProxmoxError, match="not a file based storage"):
        upload(client, "pve1", "local-lvm", iso)


def test_a_missing_right_is_told_although_the_file_was_not_read(
    lab: RunningLab, client: Client, tmp_path: Path
) -> None:
    """Recorded in 02-auth-errors, step 13: 403 without a body, before the file is read."""
    path = tmp_path / "big.iso"
    path.write_bytes(b"x" * 8 * 1024 * 1024)
    denied = "Permission check failed (/storage/local, Datastore.AllocateTemplate)"
    lab.fault(method="POST", path=r".*/upload", status=403, reason=denied)
    with pytest.raises(PermissionDenied) as told:
        upload(client, "pve1", "local", path)
    assert told.value.privileges == ("Datastore.AllocateTemplate",)


def test_a_connection_that_breaks_says_that_half_of_it_may_be_there(
    lab: RunningLab, client: Client, iso: Path
) -> None:
    lab.fault(method="POST", path=r".*/upload", reset="before")
    with pytest.raises(Unreachable) as told:
        upload(client, "pve1", "local", iso)
    assert told.value.effect_unknown
    assert told.value.transient


def test_a_full_storage_fails_with_the_servers_words(
    lab: RunningLab, client: Client, iso: Path
) -> None:
    lab.storage_full("local")
    try:
        with pytest.raises(ProxmoxError) as told:
            upload(client, "pve1", "local", iso, filename="full.iso")
    finally:
        lab.storage_full("local", on=False)
    assert not told.value.transient
    assert not isinstance(told.value, BadUpload)


def test_a_volume_of_another_size_is_not_taken_for_good(tmp_path: Path, iso: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.path.endswith("/upload"):
            return Reply(data="UPID:pve1:00000001:00000001:00000001:imgcopy::root@pam:")
        if request.path.endswith("/status"):
            return Reply(data={"status": "stopped", "exitstatus": "OK"})
        return Reply(data=[{"volid": "local:iso/seed.iso", "content": "iso", "size": 12}])

    with standin(tmp_path, answer) as server, server.client() as client:
        with pytest.raises(BadUpload, match="has 12 bytes, 10240 were sent"):
            upload(client, "pve1", "local", iso)
        with pytest.raises(BadUpload, match="does not list it"):
            upload(client, "pve1", "local", iso, filename="other.iso")


def test_a_file_that_shrinks_meanwhile_is_told(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "shrinking.iso"
    path.write_bytes(b"x" * 8 * 1024 * 1024)

    def cut(sent: int, _: int) -> None:
        if sent < 3 * 1024 * 1024:
            path.write_bytes(b"x" * 4 * 1024 * 1024)

    with pytest.raises(BadUpload, match="became shorter"):
        upload(client, "pve1", "local", path, on_progress=cut)
