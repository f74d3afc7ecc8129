"""``kind: StorageClasses``: names for the storages that disks are put on."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from blocks.manifest.fields import StorageId
from blocks.model import Model


class StorageClass(Model):
    """A storage of the Proxmox VE cluster under the manifest's own name."""

    backend: StorageId = Field(
        min_length=1, description="Id of the Proxmox VE storage", examples=["local-lvm"]
    )
    shared: bool = Field(
        default=False, description="The storage is the same on every Proxmox VE node"
    )


class StorageClasses(Model):
    """Every key besides ``kind`` names a storage class."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, StorageClass] = Field(init=False)

    kind: Literal["StorageClasses"] = Field(
        description="The kind of document", examples=["StorageClasses"]
    )

    @property
    def classes(self) -> dict[str, StorageClass]:
        """The storage classes by name."""
        return dict(self.__pydantic_extra__)
