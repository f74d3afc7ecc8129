"""The four documents that cloud-init reads: user-data, vendor-data, network-config, meta-data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from blocks.manifest.guest import Guest
from tasks.cloudinit.emit import emit
from tasks.cloudinit.network import network_config
from tasks.cloudinit.own import network_document, user_document
from tasks.cloudinit.users import fqdn, user_data
from tasks.cloudinit.vendor import vendor_data

CLOUD_CONFIG = "#cloud-config"
_UNKNOWN = "0" * 64


@dataclass(frozen=True)
class Documents:
    """What cloud-init is told. They may hold a password hash, so they are not in the repr."""

    user_data: str = field(repr=False)
    vendor_data: str = field(repr=False)
    network_config: str = field(repr=False)
    meta_data: str = field(repr=False)

    @property
    def files(self) -> dict[str, str]:
        """The documents by the names that they have on a volume ``cidata``."""
        return {
            "user-data": self.user_data,
            "vendor-data": self.vendor_data,
            "network-config": self.network_config,
            "meta-data": self.meta_data,
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of them, in hex."""
        return _digest(*self.files.values())


def documents(guest: Guest, *, env: str) -> Documents:
    """The documents of a guest that has cloud-init; the same guest gives the same bytes.

    cloud-init applies them anew where the instance id differs: it has the guest's number and the
    hash of all the rest. Raises RenderError, which names the key that cannot be rendered, and
    ValueError for a guest without cloud-init.
    """
    told = guest.cloud_init
    if told is None:
        raise ValueError(f"{guest.label} has no cloud-init")
    user = (
        user_document("cloud_init.user_data", told.user_data)
        if told.user_data is not None
        else emit(user_data(guest, told), head=CLOUD_CONFIG)
    )
    network = (
        network_document("cloud_init.network_config", told.network_config)
        if told.network_config is not None
        else emit(network_config(guest))
    )
    own = told.vendor_data
    if own is not None:
        user_document("cloud_init.vendor_data", own)

    def vendor(content: str) -> str:
        return own if own is not None else vendor_data(guest, env=env, content=content)

    name = fqdn(told)
    content = _digest(user, vendor(_UNKNOWN), network, name)
    meta = emit({"instance-id": f"proxflow-{guest.vmid}-{content[:16]}", "local-hostname": name})
    return Documents(user, vendor(content), network, meta)


def _digest(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
