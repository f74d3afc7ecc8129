"""Clients that nobody here wrote: proxmoxer, curl, and Ansible's community.proxmox collection.

Ansible is looked for beside ``PROXFLOW_ANSIBLE_PYTHON``, the interpreter of a virtual environment
with ansible-core, proxmoxer, requests and the collection, else in the present environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from proxmoxer import ProxmoxAPI, ResourceException

from deployments.lab.testing import RunningLab
from tests.deployments.labclient import eventually
from tests.labfixture import lab, lab_factory

__all__ = ["lab", "lab_factory"]

PLAYBOOK = Path(__file__).with_name("lab_clients.yaml")
ANSIBLE_PYTHON = Path(os.environ.get("PROXFLOW_ANSIBLE_PYTHON") or sys.executable)


def lacking(reason: str, *, required_by: str) -> None:
    """Skip; but fail where a variable of the environment says that it has to be there."""
    if os.environ.get(required_by):
        pytest.fail(reason)
    pytest.skip(reason)


# -- proxmoxer -------------------------------------------------------------------------------------


@pytest.fixture
def api(lab: RunningLab) -> ProxmoxAPI:
    return ProxmoxAPI(
        "127.0.0.1",
        port=lab.port,
        user="root@pam",
        token_name="lab",
        token_value=lab.connection["token_secret"],
        verify_ssl=lab.connection["ca_file"],
    )


def test_proxmoxer_takes_a_machine_from_creation_to_deletion(api: ProxmoxAPI) -> None:
    def done(upid: str) -> bool:
        task = api.nodes("pve1").tasks(upid).status
        return bool(eventually(lambda: task.get().get("exitstatus")) == "OK")

    qemu = api.nodes("pve1").qemu
    vmid = api.cluster.nextid.get()

    assert done(qemu.post(vmid=vmid, name="one", scsi0="local-lvm:4", scsihw="virtio-scsi-pci"))
    assert done(qemu(vmid).status.start.post())
    assert qemu(vmid).status.current.get()["status"] == "running"
    assert done(qemu(vmid).status.stop.post())
    assert done(qemu(vmid).delete(purge=1))
    assert int(vmid) not in [row["vmid"] for row in api.cluster.resources.get(type="vm")]


def test_proxmoxer_uploads_by_password_and_csrf_token(lab: RunningLab, tmp_path: Path) -> None:
    api = ProxmoxAPI(
        "127.0.0.1",
        port=lab.port,
        user=lab.connection["user"],
        password=lab.connection["password"],
        verify_ssl=lab.connection["ca_file"],
    )
    iso = tmp_path / "by-proxmoxer.iso"
    iso.write_bytes(b"x" * 4096)
    local = api.nodes("pve1").storage("local")

    with iso.open("rb") as handle:
        upid = local.upload.post(content="iso", filename=handle)

    task = api.nodes("pve1").tasks(upid).status
    assert eventually(lambda: task.get().get("exitstatus")) == "OK"
    assert "local:iso/by-proxmoxer.iso" in [row["volid"] for row in local.content.get()]


def test_proxmoxer_shows_the_server_s_own_words_of_a_refusal(api: ProxmoxAPI) -> None:
    with pytest.raises(ResourceException) as refused:
        api.nodes("pve1").qemu.post(vmid=99, cores="many")

    assert refused.value.status_code == 400
    assert set(refused.value.errors) == {"vmid", "cores"}


# -- curl ------------------------------------------------------------------------------------------


def curl(lab: RunningLab, *arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("curl") is None:
        lacking("curl is not installed", required_by="PROXFLOW_REQUIRE_TOOLS")
    return subprocess.run(
        [
            *("curl", "--silent", "--show-error", "--noproxy", "*", "--http1.1", "--include"),
            *("--cacert", str(lab.connection["ca_file"]), "--header", "@-", *arguments),
        ],
        input=f"Authorization: {lab.token_header}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_curl_trusts_the_certificate_by_the_lab_s_own_authority(lab: RunningLab) -> None:
    answer = curl(lab, f"{lab.endpoint}/api2/json/version").stdout

    assert answer.startswith("HTTP/1.1 200 OK")
    assert json.loads(answer.rpartition("\n")[2])["data"]["version"]


def test_curl_sees_a_refusal_in_the_status_line(lab: RunningLab) -> None:
    answer = curl(lab, f"{lab.endpoint}/api2/json/nodes/pve1/qemu/999/config").stdout

    first = answer.splitlines()[0]
    assert first.startswith("HTTP/1.1 500 Configuration file 'nodes/pve1/qemu-server/999.conf'")


def test_curl_uploads_a_file_that_waits_for_a_go_ahead(lab: RunningLab, tmp_path: Path) -> None:
    iso = tmp_path / "by-curl.iso"
    iso.write_bytes(b"y" * (3 << 20))

    answer = curl(
        lab,
        *("--header", "Expect: 100-continue", "--form", "content=iso"),
        *(
            "--form",
            f"filename=@{iso}",
            f"{lab.endpoint}/api2/json/nodes/pve1/storage/local/upload",
        ),
    ).stdout

    lab.settle()
    assert "UPID:pve1:" in answer
    assert any(name.endswith("local:iso/by-curl.iso") for name in lab.snapshot()["volumes"])


def test_curl_may_put_the_parameters_of_a_write_into_the_address(lab: RunningLab) -> None:
    answer = curl(lab, "--request", "POST", f"{lab.endpoint}/api2/json/pools?poolid=by-address")

    assert answer.stdout.startswith("HTTP/1.1 200 OK")
    assert "by-address" in lab.snapshot()["pools"]


# -- Ansible ---------------------------------------------------------------------------------------


def ansible(lab: RunningLab, tool: str, *arguments: str) -> str:
    """Standard output of an Ansible tool that talks to the lab."""
    program = ANSIBLE_PYTHON.with_name(tool)
    if not program.exists():
        lacking(
            f"there is no {tool} beside {ANSIBLE_PYTHON}; set PROXFLOW_ANSIBLE_PYTHON",
            required_by="PROXFLOW_ANSIBLE_PYTHON",
        )
    probe = "import ansible_collections.community.proxmox, proxmoxer, requests"
    if subprocess.run([ANSIBLE_PYTHON, "-c", probe], capture_output=True, check=False).returncode:
        lacking(
            "Ansible is there without community.proxmox, proxmoxer or requests",
            required_by="PROXFLOW_ANSIBLE_PYTHON",
        )
    ended = subprocess.run(
        [program, *arguments],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(lab.state),
            "LANG": "C.UTF-8",
            "ANSIBLE_HOME": str(lab.state / "ansible"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "LAB_PASSWORD": str(lab.connection["password"]),
            "NO_PROXY": "127.0.0.1",
            "REQUESTS_CA_BUNDLE": str(lab.connection["ca_file"]),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-2000:]
    return ended.stdout


@pytest.fixture(scope="module")
def played(lab_factory: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tasks of the playbook registered, and what was left on the cluster."""
    cluster = lab_factory()
    folder = tmp_path_factory.mktemp("ansible")
    (folder / "etc").mkdir()
    archive = folder / "box_1.0_amd64.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "etc", "etc")
    ansible(
        cluster,
        "ansible-playbook",
        *("--inventory", "localhost,", "--connection", "local"),
        *("--extra-vars", f"ansible_python_interpreter={ANSIBLE_PYTHON}"),
        *("--extra-vars", f"lab_port={cluster.port} lab_archive={archive}"),
        *("--extra-vars", f"lab_results={folder / 'results.json'}"),
        str(PLAYBOOK),
    )
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return {"results": results, "left": cluster.snapshot(), "writes": cluster.writes()}


@pytest.mark.processes
def test_ansible_changes_what_is_not_so_and_nothing_twice(played: dict[str, Any]) -> None:
    changed = {name for name, result in played["results"].items() if result["changed"]}

    assert changed == played["results"].keys() - {
        *("created_again", "started_again", "current", "snapped_again", "uploaded_again"),
        "refused",
    }


@pytest.mark.processes
def test_ansible_finds_the_machine_as_it_asked_for_it(played: dict[str, Any]) -> None:
    config = played["left"]["guests"]["200"]["config"]

    assert played["results"]["current"]["status"] == "running"
    assert {"cores: 4", "memory: 2048", "name: web1", "tags: blue;green"} < set(config.splitlines())
    assert "template: 1" in played["left"]["guests"]["210"]["config"]


@pytest.mark.processes
def test_ansible_deletes_containers_and_templates_without_a_trace(played: dict[str, Any]) -> None:
    assert set(played["left"]["guests"]) == {"200", "210"}
    assert not [name for name in played["left"]["volumes"] if "vztmpl" in name or "-201-" in name]


@pytest.mark.processes
def test_ansible_is_told_why_a_machine_cannot_be_made(played: dict[str, Any]) -> None:
    assert "storage 'attic' does not exist" in played["results"]["refused"]["msg"]


@pytest.mark.processes
def test_the_inventory_plugin_finds_guests_with_their_facts(
    lab_factory: Any, tmp_path: Path
) -> None:
    cluster = lab_factory(seed=SEED)
    eventually(lambda: all(run["phase"] == "up" for run in cluster.snapshot()["running"]))
    source = tmp_path / "lab.proxmox.yml"
    source.write_text(
        "plugin: community.proxmox.proxmox\n"
        f"url: {cluster.endpoint}\n"
        "user: root@pam\n"
        "password: \"{{ lookup('ansible.builtin.env', 'LAB_PASSWORD') }}\"\n"
        "validate_certs: true\n"
        "want_facts: true\n"
    )

    listed = ansible(cluster, "ansible-inventory", "-i", str(source), "--list")
    found = json.loads(listed, object_hook=lambda one: one.get("__ansible_unsafe", one))

    assert found["proxmox_all_running"]["hosts"] == ["web1"]
    assert found["proxmox_all_stopped"]["hosts"] == ["db1"]
    assert found["proxmox_pool_shop"]["hosts"] == ["web1"]
    facts = found["_meta"]["hostvars"]["web1"]
    assert facts["proxmox_tags_parsed"] == ["blue", "green"]
    addresses = [one["ip-addresses"] for one in facts["proxmox_agent_interfaces"]]
    assert any("10.77.0.50/16" in text for text in addresses)


SEED = """
pools: [shop]
guests:
  - vmid: 100
    node: pve1
    pool: shop
    running: true
    config:
      name: web1
      tags: green;blue
      agent: enabled=1
      scsi0: "local-lvm:8"
      ide2: "local-lvm:cloudinit"
      net0: virtio,bridge=vmbr0
      ipconfig0: ip=10.77.0.50/16
      boot: order=scsi0
  - {vmid: 101, node: pve2, config: {name: db1, scsi0: "local-lvm:8"}}
"""
