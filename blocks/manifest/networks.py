"""``kind: Networks``: the network zones."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from blocks.manifest.fields import Bridge, Ip, Network
from blocks.model import Model


class Zone(Model):
    """A network that guests have addresses in."""

    cidr: Network = Field(description="Network and prefix length", examples=["10.10.0.0/24"])
    gateway: Ip | None = Field(
        default=None, description="Default gateway of the zone", examples=["10.10.0.1"]
    )
    dns: tuple[Ip, ...] = Field(
        default=(), description="Name servers of the zone", examples=[["10.10.0.1"]]
    )
    search: tuple[str, ...] = Field(
        default=(), description="DNS search domains", examples=[["example.com"]]
    )
    bridge: Bridge | None = Field(
        default=None,
        description="Bridge of network cards that name none themselves",
        examples=["vmbr0"],
    )
    vlan: int | None = Field(
        default=None, ge=1, le=4094, description="VLAN of the zone's network cards", examples=[120]
    )


class Networks(Model):
    """Every key besides ``kind`` names a zone."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Zone] = Field(init=False)

    kind: Literal["Networks"] = Field(description="The kind of document", examples=["Networks"])

    @property
    def zones(self) -> dict[str, Zone]:
        """The zones by name."""
        return dict(self.__pydantic_extra__)
