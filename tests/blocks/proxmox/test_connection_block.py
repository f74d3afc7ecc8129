"""The Prefect block, against a Prefect server of the session."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

import blocks
from blocks.proxmox.errors import BadSettings

ROOT = Path(__file__).parents[3]


def test_the_package_offers_the_block_without_importing_it() -> None:
    assert "ProxmoxCluster" in dir(blocks)
    assert blocks.ProxmoxCluster.__name__ == "ProxmoxCluster"
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        blocks.Nonsense  # noqa: B018


def test_a_block_becomes_a_connection() -> None:
    block = blocks.ProxmoxCluster(
        endpoint="pve.example.com",
        token_id="automation@pve!proxflow",
        token_secret=SecretStr("s3cret"),
        fingerprint="ab" * 32,
    )
    connection = block.to_connection()
    assert connection.endpoint == "https://pve.example.com:8006"
    assert connection.fingerprint == ":".join(["AB"] * 32)
    assert "s3cret" not in repr(block)
    with block.client() as client:
        assert client.calls.total() == 0


def test_a_block_with_bad_settings_tells_all_of_them() -> None:
    block = blocks.ProxmoxCluster(endpoint="http://pve", user="root", password=SecretStr("x"))
    with pytest.raises(BadSettings) as told:
        block.to_connection()
    assert len(told.value.faults) == 2
    assert all(fault.startswith("block unsaved: ") for fault in told.value.faults)


@pytest.mark.processes
def test_the_block_is_registered_saved_and_resolved_by_name(
    tmp_path: Path, prefect_api: str
) -> None:
    code = """
from pydantic import SecretStr
from blocks import ProxmoxCluster
from blocks.proxmox.connection import resolve
from blocks.proxmox.errors import BadSettings
ProxmoxCluster(endpoint="pve", token_id="a@pve!b", token_secret=SecretStr("x")).save("prod")
found = resolve("block:prod")
print(found.name, found.identity, found.token_secret.get_secret_value())
try:
    resolve("block:gone")
except BadSettings as error:
    print(error)
"""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "PROXMOX_"))},
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_API_URL": prefect_api,
        "PREFECT_LOGGING_LEVEL": "ERROR",
    }

    def python(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        ).stdout

    assert "Proxmox Cluster" in python("-m", "prefect", "block", "register", "-m", "blocks")
    assert python("-c", code).splitlines()[-2:] == [
        "block:prod a@pve!b x",
        "there is no Prefect block proxmox-cluster/gone",
    ]
