"""``kind: Env``: the master document, with all its layers in place."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from blocks.manifest.cluster import Cluster, Database, Linux
from blocks.manifest.fields import DnsLabel, DnsName, Tags
from blocks.manifest.hooks import Hooks
from blocks.manifest.hypervisor import Hypervisor
from blocks.manifest.networks import Networks
from blocks.manifest.storage import StorageClasses
from blocks.model import Model


def _version(value: Any) -> Any:
    return "1" if value == 1 and not isinstance(value, bool) else value


Version = Annotated[Literal["1"], BeforeValidator(_version), WithJsonSchema({"enum": ["1", 1]})]


class Metadata(Model):
    """What the environment is called, and where it belongs."""

    name: DnsLabel = Field(description="Name of the environment", examples=["rac-prod"])
    domain: DnsName | None = Field(
        default=None, description="DNS domain of the guests", examples=["example.com"]
    )
    proxmox_context: str | None = Field(
        default=None, description="Connection to use where none is named", examples=["prod"]
    )
    dbx_context: str | None = Field(
        default=None, description="For the database tool", examples=["prod-dbx"]
    )
    tags: Tags = Field(
        default=(), description="Tags of every guest", examples=[{"owner": "dba-team"}]
    )
    description: str = Field(default="", description="Free text", examples=["Two-node RAC"])


class Spec(Model):
    """The layers, each inline or ``{ $ref: ./file.yaml }``."""

    hypervisor: Hypervisor = Field(description="The guests")
    networks: Networks = Field(description="The network zones")
    storage_classes: StorageClasses = Field(description="The storages")
    cluster: Cluster | None = Field(default=None, description="What the guests are together")
    linux: Linux | None = Field(default=None, description="Passed through")
    databases: tuple[Database, ...] = Field(default=(), description="Passed through")


class Env(Model):
    """An environment."""

    version: Version = Field(description="Version of the format", examples=["1"])
    kind: Literal["Env"] = Field(description="The kind of document", examples=["Env"])
    metadata: Metadata = Field(description="Name and place")
    extends: str | None = Field(
        default=None, description="Profile to start from", examples=["pg-single"]
    )
    spec: Spec = Field(description="The layers")
    hooks: Hooks = Field(default=Hooks(), description="What happens on which event")
