"""The Prefect block that holds a connection to a Proxmox VE cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prefect.blocks.core import Block
from pydantic import Field, SecretStr, ValidationError

from blocks.proxmox.connection import Connection
from blocks.proxmox.errors import BadSettings

if TYPE_CHECKING:
    from blocks.proxmox.client import Client


class ProxmoxCluster(Block):
    """A Proxmox VE cluster and who calls it. Flows name it as ``block:NAME``.

    Register it with ``prefect block register -m blocks``. Secrets are encrypted in Prefect's
    database, but whoever may call Prefect's API can read them: guard that API.
    """

    _block_type_name = "Proxmox Cluster"
    _block_type_slug = "proxmox-cluster"
    _description = (
        "Connection to a Proxmox VE cluster: endpoint, API token and how its certificate is "
        "trusted."
    )

    endpoint: str = Field(
        description="Any node of the cluster: HOST, HOST:PORT or https://HOST:PORT.",
        examples=["https://pve.example.com:8006"],
    )
    token_id: str | None = Field(
        default=None, description="API token id.", examples=["automation@pve!proxflow"]
    )
    token_secret: SecretStr | None = Field(default=None, description="The token's secret.")
    user: str | None = Field(
        default=None,
        description="User with realm, where no token is used.",
        examples=["root@pam"],
    )
    password: SecretStr | None = Field(default=None, description="The user's password.")
    ca_file: Path | None = Field(
        default=None,
        description="PEM file, on the machine where flows run, of the authority that signed the "
        "node's certificate.",
        examples=["/etc/proxflow/pve-root-ca.pem"],
    )
    fingerprint: str | None = Field(
        default=None,
        description="SHA-256 fingerprint of the node's certificate, to pin it.",
        examples=["AB:CD:...:EF"],
    )
    verify: bool = Field(default=True, description="False trusts any certificate. Labs only.")
    guest_proxy: str | None = Field(
        default=None,
        description="SOCKS5 proxy through which guests' addresses are reached.",
        examples=["socks5://127.0.0.1:1080"],
    )

    def to_connection(self) -> Connection:
        """The same as a Connection. Raises BadSettings with every fault at once."""
        name = self._block_document_name or "unsaved"
        values = {key: getattr(self, key) for key in type(self).model_fields if key != "name"}
        known = {key: value for key, value in values.items() if key in Connection.model_fields}
        try:
            return Connection(**known, name=f"block:{name}")
        except ValidationError as error:
            faults = []
            for fault in error.errors(include_input=False, include_url=False):
                key = f"{fault['loc'][0]} " if fault["loc"] else ""
                faults.append(f"block {name}: {key}{fault['msg'].removeprefix('Value error, ')}")
            raise BadSettings(faults) from None

    def client(self) -> Client:
        """A client of the cluster; close it at the end."""
        from blocks.proxmox.client import Client

        return Client(self.to_connection())


def load_cluster(name: str) -> ProxmoxCluster:
    """The block document of that name. Raises BadSettings where there is none."""
    try:
        loaded = ProxmoxCluster.load(name, _sync=True)  # type: ignore[call-arg]
    except ValueError:
        raise BadSettings(
            [f"there is no Prefect block proxmox-cluster/{name}"],
            advice="list them with `prefect block ls`; make one in the UI after "
            "`prefect block register -m blocks`",
        ) from None
    if not isinstance(loaded, ProxmoxCluster):
        raise BadSettings([f"the Prefect block {name} is no Proxmox Cluster"])
    return loaded
