"""Whatever an operator gets wrong: exit code 2, words that say where and what, nothing changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from blocks.proxmox.client import Client
from deployments.lab.testing import RunningLab
from flows.up import up
from tests.defaults import set_default
from tests.environments import Document, Place
from tests.flows.commands import Commands, Said
from tests.labfixture import LabFactory

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"""
users:
  - userid: low@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /, role: PVEAuditor}}]
"""
COMMANDS = ("up", "plan", "verify", "status", "down", "rollback")
ASKING = ("up", "down", "rollback")


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    """A cluster with a token that may only look."""
    return lab_factory(seed=SEED)


def refused(place: Place, run: Commands, name: str, *words: object) -> Said:
    """A command that must be refused, and must not have changed anything."""
    before = place.lab.snapshot()
    place.lab.forget_requests()
    said = run(name, *words, *(["--yes"] if name in ASKING else []))
    assert said.code == 2, said.text
    assert said.out == ""
    assert place.lab.writes() == []
    assert place.lab.snapshot() == before
    return said


def node(document: Document, label: str = "n1") -> Document:
    found: Document = document["spec"]["hypervisor"]["nodes"][label]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_manifest_that_is_not_there(place: Place, run: Commands, name: str) -> None:
    said = refused(place, run, name, place.folder / "none.yaml")
    assert "none.yaml" in said.err
    assert "1 fault in the manifest" in said.err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_cluster_that_nobody_knows(place: Place, run: Commands, name: str) -> None:
    said = refused(place, run, name, place.write(), "--cluster", "prod")
    assert "prod" in said.err
    assert "--cluster lab" in said.err


@pytest.mark.parametrize("name", ["up", "plan", "verify", "status", "down"])
def test_a_node_that_the_manifest_does_not_have(place: Place, run: Commands, name: str) -> None:
    said = refused(place, run, name, place.write(count=2), "--only", "n3")
    assert f"{place.env} has no node 'n3'; choose a known one (nodes: n1, n2)" in said.err


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_does_not_exist(place: Place, run: Commands, name: str) -> None:
    said = refused(place, run, name, place.write(), "--colour", "red")
    assert "--colour" in said.err


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_number_of_nodes_at_once_that_makes_no_sense(
    place: Place, run: Commands, number: str
) -> None:
    said = refused(place, run, "up", place.write(), f"--parallel={number}")
    assert "--parallel" in said.err


def test_a_file_that_is_no_yaml(place: Place, run: Commands) -> None:
    path = place.write()
    path.write_text("kind: Env\nmetadata: { name: shop\n")
    said = refused(place, run, "up", path)
    assert "env.yaml:" in said.err


def test_references_in_a_circle(place: Place, run: Commands) -> None:
    document = place.document()
    document["spec"]["networks"] = {"$ref": "./a.yaml"}
    path = place.write(document)
    (place.folder / "a.yaml").write_text("$ref: ./b.yaml\n")
    (place.folder / "b.yaml").write_text("$ref: ./a.yaml\n")
    said = refused(place, run, "up", path)
    assert "a.yaml" in said.err
    assert "b.yaml" in said.err


def change_vmid(document: Document, place: Place) -> None:
    node(document, "n2")["proxmox"]["vm_id"] = place.vmid(1)


def change_ip(document: Document, place: Place) -> None:
    node(document, "n2")["ips"]["public"] = place.address(1)


def change_macs(document: Document, _place: Place) -> None:
    for label in ("n1", "n2"):
        node(document, label)["nics"][0]["mac"] = "02:00:00:00:00:01"


def change_unknown_key(document: Document, _place: Place) -> None:
    node(document)["resources"]["memroy"] = 2048


def change_type(document: Document, _place: Place) -> None:
    node(document)["resources"]["memory"] = "plenty"


def change_zone(document: Document, _place: Place) -> None:
    node(document)["nics"][0]["network"] = "publik"


def change_class(document: Document, _place: Place) -> None:
    node(document)["disks"][0]["storage_class"] = "local-lwm"


def change_address(document: Document, _place: Place) -> None:
    node(document)["ips"]["public"] = "10.200.0.1"


def change_secret(document: Document, _place: Place) -> None:
    kickstart = document["spec"]["hypervisor"]["kickstart"]
    kickstart["root_password_hash"] = "${env:NO_SUCH_SECRET}"


def change_key_file(document: Document, _place: Place) -> None:
    document["spec"]["hypervisor"]["kickstart"]["ssh_keys"] = {"root": ["./no-such-key.pub"]}


def change_name(document: Document, _place: Place) -> None:
    document["spec"]["hypervisor"]["nodes"]["db_1"] = node(document, "n2") | {"hostname": "ok"}
    del document["spec"]["hypervisor"]["nodes"]["n2"]


def change_size(document: Document, _place: Place) -> None:
    node(document)["disks"][0]["size"] = "4 gigs"


def change_profile(document: Document, _place: Place) -> None:
    document["extends"] = "host-onyl"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_vmid, ["spec.hypervisor.nodes.n2.proxmox.vm_id", "is taken at"]),
        (change_ip, ["spec.hypervisor.nodes.n2.ips.public", "taken"]),
        (change_macs, ["spec.hypervisor.nodes.n2.nics[0].mac", "02:00:00:00:00:01 is taken at"]),
        (change_unknown_key, ["n1.resources.memroy", "did you mean 'memory'?"]),
        (change_type, ["n1.resources.memory", "number"]),
        (change_zone, ["nics[0].network", "did you mean 'public'?"]),
        (change_class, ["disks[0].storage_class", "did you mean 'local-lvm'?"]),
        (change_address, ["10.200.0.1", ".0/24"]),
        (change_secret, ["root_password_hash", "export NO_SUCH_SECRET"]),
        (change_key_file, ["ssh_keys.root[0]", "no-such-key.pub"]),
        (change_name, ["db_1", "Proxmox VE refuses it"]),
        (change_size, ["disks[0].size", "4G"]),
        (change_profile, ["extends", "did you mean 'host-only'?"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_in_the_manifest_is_named_with_file_line_and_key(
    place: Place,
    run: Commands,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Document, Place], None],
    words: list[str],
) -> None:
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    document = place.document(count=2)
    change(document, place)

    said = refused(place, run, "up", place.write(document))

    assert "env.yaml:" in said.err
    for word in words:
        assert word in said.err, said.err


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("n1: the cluster has no node pve9; did you mean pve3?", "node", "pve9"),
        ("n1: node pve1 has no storage fast for disks", "storage", "fast"),
        ("n1: node pve1 has no local:iso/none.iso", "iso", "none.iso"),
        ("n1: node pve1 has no bridge vmbr9", "bridge", "vmbr9"),
    ],
)
def test_a_manifest_for_another_cluster(
    place: Place, run: Commands, words: str, key: str, value: str
) -> None:
    document = place.document()
    part = node(document)
    if key == "node":
        part["proxmox"]["node_name"] = value
    elif key == "storage":
        part["disks"][0]["storage"] = value
    elif key == "iso":
        document["spec"]["hypervisor"]["iso"]["image"] = value
    else:
        part["nics"][0]["bridge"] = value

    said = refused(place, run, "up", place.write(document))

    assert words.partition(";")[0] in said.err
    assert "what is declared cannot be had here; nothing was changed" in said.err


def test_everything_that_the_cluster_lacks_is_said_in_one_go(place: Place, run: Commands) -> None:
    document = place.document(count=3)
    node(document, "n1")["proxmox"]["node_name"] = "pve9"
    node(document, "n2")["nics"][0]["bridge"] = "vmbr9"
    node(document, "n3")["iso"] = {"image": "none.iso"}

    said = refused(place, run, "up", place.write(document))

    for word in ("no node pve9", "no bridge vmbr9", "no local:iso/none.iso"):
        assert word in said.err


def test_a_number_that_somebody_elses_guest_has(place: Place, run: Commands) -> None:
    place.strange(name="payroll")
    said = refused(place, run, "up", place.write())
    assert f"n1: {place.vmid()} is taken by virtual machine 'payroll' on pve1" in said.err
    assert f"give it another vm_id, such as {place.vmid() + 1}" in said.err


def test_a_lab_that_does_not_run(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manifest = place.write()
    monkeypatch.setenv("PROXFLOW_LAB_STATE", str(tmp_path / "nowhere"))
    said = refused(place, run, "up", manifest)
    assert "the lab does not run" in said.err
    assert "python -m deployments.lab start" in said.err


def test_a_token_that_may_only_look(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXMOX_ENDPOINT", place.lab.endpoint)
    monkeypatch.setenv("PROXMOX_TOKEN_ID", "low@pve!t")
    monkeypatch.setenv("PROXMOX_TOKEN_SECRET", SECRET)
    monkeypatch.setenv("PROXMOX_CA_FILE", place.lab.connection["ca_file"])
    monkeypatch.setenv("PROXMOX_GUEST_PROXY", place.lab.connection["guest_proxy"])

    said = refused(place, run, "up", place.write())

    assert "low@pve!t lacks Datastore.AllocateSpace on /storage/local-lvm" in said.err
    assert "on a node, as root: pveum role add Proxflow" in said.err
    assert SECRET not in said.text


@pytest.mark.parametrize("name", COMMANDS)
def test_a_token_that_is_unknown(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PROXMOX_ENDPOINT", place.lab.endpoint)
    monkeypatch.setenv("PROXMOX_TOKEN_ID", "root@pam!other")
    monkeypatch.setenv("PROXMOX_TOKEN_SECRET", "not-the-secret-at-all")
    monkeypatch.setenv("PROXMOX_CA_FILE", place.lab.connection["ca_file"])
    said = run(name, place.write(), *(["--yes"] if name in ASKING else []))

    assert said.code == 1
    assert "root@pam!other" in said.text
    assert "not-the-secret-at-all" not in said.text


def test_a_cluster_that_does_not_answer(
    place: Place, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_default(monkeypatch, Client.__init__, "retries", 0)
    monkeypatch.setenv("PROXMOX_ENDPOINT", "https://127.0.0.1:1")
    monkeypatch.setenv("PROXMOX_TOKEN_ID", "root@pam!other")
    monkeypatch.setenv("PROXMOX_TOKEN_SECRET", "not-the-secret-at-all")
    said = run("plan", place.write())

    assert said.code == 1
    assert "127.0.0.1" in said.err
    assert "next:" in said.err


@pytest.mark.usefixtures("prefect_api")
@pytest.mark.parametrize(
    ("cluster", "said", "advice"),
    [
        ("lab", "none.yaml: no such file", "put that right and start the run again"),
        ("no-such", "cluster 'no-such' is not known", "use --cluster lab"),
    ],
)
def test_a_refused_run_of_a_deployment_logs_the_reason_and_the_next_step(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    cluster: str,
    said: str,
    advice: str,
) -> None:
    known = place.write()
    manifest = known if cluster == "no-such" else known.with_name("none.yaml")
    # What tells a worker's child from a command line.
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(uuid4()))

    state = up(manifest=str(manifest), cluster=cluster, return_state=True)

    logged = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert state.name == "Refused"
    assert state.message == logged[0]
    assert said in logged[0].splitlines()[0]
    assert logged[0].splitlines()[1].startswith("  next: ")
    assert advice in logged[0]
