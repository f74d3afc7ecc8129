"""``kind: Cluster``, and the layers for other tools that are passed through unread."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from blocks.manifest.fields import Ip, Network
from blocks.model import Model

ClusterType = Literal["oracle-rac", "oracle-single", "pg-single", "pg-ha", "plain", "host-only"]


class HostNames(Model):
    """A line for /etc/hosts."""

    ip: Ip = Field(description="The address", examples=["10.10.0.201"])
    names: tuple[str, ...] = Field(
        min_length=1, description="Names of that address", examples=[["db1-vip"]]
    )


class Cluster(Model):
    """What the guests are together."""

    kind: Literal["Cluster"] = Field(description="The kind of document", examples=["Cluster"])
    type: ClusterType | None = Field(
        default=None, description="What the guests form together", examples=["oracle-rac"]
    )
    scan_name: str | None = Field(
        default=None, description="Oracle SCAN name", examples=["rac-scan.example.com"]
    )
    scan_ips: tuple[Ip, ...] = Field(
        default=(), description="Oracle SCAN addresses, three as a rule", examples=[["10.10.0.110"]]
    )
    interconnect_subnet: Network | None = Field(
        default=None, description="Network between the nodes", examples=["10.10.1.0/24"]
    )
    hosts_entries: tuple[HostNames, ...] = Field(
        default=(), description="Lines for /etc/hosts on every node"
    )


class Linux(Model):
    """Settings inside the guests, for another tool; only disk tags are checked."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["Linux"] = Field(description="The kind of document", examples=["Linux"])


class Database(Model):
    """A database, for another tool; only disk tags are checked."""

    model_config = ConfigDict(extra="allow")

    kind: Literal[
        "OracleDatabase",
        "PostgresDatabase",
        "oracle_database",
        "rac_database",
        "pg_database",
        "pg_cluster",
    ] = Field(description="The kind of document", examples=["PostgresDatabase"])
