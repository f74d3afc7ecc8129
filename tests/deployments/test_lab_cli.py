"""The lab's command line: what it explains, and what it says to mistakes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deployments.lab.__main__ import main
from deployments.lab.control import ACTS
from deployments.lab.testing import RunningLab, running_lab
from tests.deployments.labclient import Client

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "lab.md"
NODES = "nodes: [{name: alpha}]\n"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a refused command line says; its exit code is 2 and there is no traceback."""
    try:
        code = main(list(arguments))
    except SystemExit as left:
        code = int(str(left.code))
    said = capsys.readouterr().err
    assert code == 2, said
    assert "Traceback" not in said
    return said


def test_help_explains_what_a_newcomer_has_to_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])

    text = " ".join(capsys.readouterr().out.split())
    assert left.value.code == 0
    for topic in (
        *("three nodes (pve1, pve2, pve3)", "vmbr0 (10.77.0.0/16)", "local-lvm (thin volumes)"),
        *("--time-scale", "1 is real time", "0 is immediate", "$PROXFLOW_LAB_STATE", ".demo/lab"),
        *("connection.json", "--port", "SOCKS5", "--seed", "guests:", "count: 500", "Exit codes"),
    ):
        assert topic in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--port", "70000"], "'70000' is no port; give 0 to 65535"),
        (["--port", "https"], "'https' is no port"),
        (["--proxy-port", "-1"], "'-1' is no port"),
        (["--time-scale", "-1"], "'-1' is no factor"),
        (["--time-scale", "nan"], "'nan' is no factor"),
        (["--time-scale", "fast"], "'fast' is no factor"),
        (["launch"], "invalid choice: 'launch'"),
        (["--nodes"], "unrecognized arguments: --nodes"),
    ],
)
def test_a_bad_option_is_named_with_what_would_be_right(
    capsys: pytest.CaptureFixture[str], state: Path, arguments: list[str], reason: str
) -> None:
    said = refusal(capsys, "--state", str(state), *arguments)

    assert reason in said
    assert not state.exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nodes: [{name: a, cores: none}]", "nodes.0.cores"),
        ("storages: [{name: s, type: ceph}]", "storages.0.type"),
        ("guests: [{vmid: 7}]", "guests.0.vmid"),
        ("nodes: []", "nodes: List should have at least 1 item"),
        ("nodes: [{name: a}, {name: a}]", "node a is named twice"),
        ("users: [{userid: ops}]", "users.0.userid"),
        ("users: [{userid: ops@pve, tokens: [{secret: x}]}]", "users.0.tokens.0.name"),
        ("users: [{userid: ops@pve, acl: [{path: /, role: Boss}]}]", "there is no role Boss"),
        ("[1, 2]", "valid dictionary"),
        ("nodes: [", "no YAML"),
        (NODES + "guests: [{vmid: 100, node: beta}]", "there is no node beta, only alpha"),
        (NODES + "guests: [{vmid: 100}, {vmid: 100}]", "guest 100 is named twice"),
        (NODES + "guests: [{vmid: 100, config: {scsi0: 'attic:1'}}]", "'attic' does not exist"),
        (NODES + "files: [{storage: attic, name: a.iso}]", "'attic' does not exist"),
    ],
)
def test_a_broken_seed_is_named_with_place_and_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, state: Path, text: str, reason: str
) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text(text)

    said = refusal(capsys, "--state", str(state), "--seed", str(seed))

    assert str(seed) in said
    assert reason in said


def test_a_seed_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    assert "gone.yaml" in refusal(capsys, "--state", str(state), "--seed", "gone.yaml")


def test_a_mended_seed_is_taken_after_a_broken_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, state: Path
) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text(NODES + "guests: [{vmid: 100}, {vmid: 101, node: beta}]")
    refusal(capsys, "--state", str(state), "--seed", str(seed))
    seed.write_text(NODES + "guests: [{vmid: 100}, {vmid: 101}]")

    with running_lab(state, seed_file=seed) as lab:
        assert set(lab.snapshot()["guests"]) == {"100", "101"}


def test_the_seed_file_of_the_documentation_is_a_good_one(tmp_path: Path, state: Path) -> None:
    text = DOCUMENTATION.read_text().partition("```yaml\n")[2].partition("```")[0]
    seed = tmp_path / "seed.yaml"
    seed.write_text(text.replace("count: 500", "count: 5"))

    with running_lab(state, seed_file=seed) as lab:
        left = lab.snapshot()
        nodes = {row["node"] for row in Client(lab).get("/nodes")}

    assert nodes == {"alpha"}
    assert set(left["guests"]) == {"100", *(str(vmid) for vmid in range(1000, 1005))}
    assert {"alpha/local:iso/big.iso", "alpha/local:import/base.qcow2"} < set(left["volumes"])


def test_every_control_call_is_documented() -> None:
    text = DOCUMENTATION.read_text()

    assert [call for call in sorted(ACTS) if f"`{' '.join(call)}`" not in text] == []


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        code = main(["--state", str(state), "--port", str(port)])

    assert code == 1
    assert f"port {port}: Address already in use" in capsys.readouterr().err


def test_status_and_stop_of_nothing_say_so(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    codes = [main([command, "--state", str(state)]) for command in ("status", "stop", "reset")]

    said = capsys.readouterr().out
    assert codes == [3, 0, 0]
    assert "not running" in said
    assert "nothing to remove" in said


def test_status_tells_where_a_lab_is(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    with running_lab(state) as lab:
        assert main(["status", "--state", str(state)]) == 0
        said = capsys.readouterr().out

    assert lab.endpoint in said
    assert lab.connection["fingerprint"] in said
    assert lab.connection["token_secret"] not in said


def test_reset_removes_everything_and_the_next_lab_has_secrets_of_its_own(
    capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    with running_lab(state) as lab:
        Client(lab).call("POST", "/pools", poolid="old")
        before = lab.connection

    assert main(["reset", "--state", str(state)]) == 0
    assert not state.exists()
    with running_lab(state) as lab:
        assert Client(lab).get("/pools") == []
        assert different(before, lab)
    assert "removed" in capsys.readouterr().out


def different(before: dict[str, str], lab: RunningLab) -> bool:
    keys = ("token_secret", "password", "control_token", "fingerprint")
    return all(before[key] != lab.connection[key] for key in keys)


def test_labs_side_by_side_have_everything_of_their_own(tmp_path: Path) -> None:
    with running_lab(tmp_path / "one") as one, running_lab(tmp_path / "two") as two:
        Client(one).call("POST", "/pools", poolid="mine")

        assert Client(two).get("/pools") == []
        assert different(one.connection, two)
        assert one.connection["guest_proxy"] != two.connection["guest_proxy"]
        assert Client(two, one.token_header).raw("GET", "/version").status_code == 401
