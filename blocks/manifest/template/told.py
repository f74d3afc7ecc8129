"""What must hold within a ``cloud_init`` part."""

from __future__ import annotations

from collections.abc import Iterator

from blocks.manifest.faults import Fault
from blocks.manifest.tree import Item

# What the options of Proxmox VE have no word for (facts: 06-cloud-image-template of a 9.2 server).
BEYOND_FIELDS = (
    "timezone",
    "locale",
    "packages",
    "commands",
    "user_data",
    "vendor_data",
    "network_config",
)
_IN_USER_DATA = (
    "user",
    "ssh_keys",
    "password",
    "password_hash",
    "sudo",
    "timezone",
    "locale",
    "upgrade",
    "packages",
    "commands",
)


def check_cloud_init(part: Item, spec: Item) -> Iterator[Fault]:
    """What is asked for can be said in the way that is asked for, and is said once."""
    if part.text("method") == "fields":
        for key in BEYOND_FIELDS:
            item = part.get(key)
            if item is not None and not _empty(item):
                yield item.fault(
                    "cannot be said by the options of Proxmox VE (method: fields)",
                    "write 'method: seed' or 'method: snippets', or leave the method out",
                )
        sudo = part.get("sudo")
        if sudo is not None and sudo.value is False:
            yield sudo.fault(
                "cannot be switched off by the options of Proxmox VE (method: fields)",
                "write 'method: seed' or 'method: snippets', or leave the method out",
            )
        for nic in spec.elements("nics"):
            name = nic.get("name")
            if name is not None:
                yield name.fault(
                    "cannot be given by the options of Proxmox VE (method: fields)",
                    "write 'method: seed' or 'method: snippets', or remove it",
                )
    yield from _secrets(part)
    if part.get("user_data") is not None:
        for key in _IN_USER_DATA:
            item = part.get(key)
            if item is not None and not _empty(item):
                yield item.fault(
                    "has no effect beside user_data, which is the whole document",
                    "say it in that document, or remove it",
                )
    ip = part.get("ip")
    if part.get("network_config") is not None and ip is not None:
        yield ip.fault(
            "has no effect beside network_config, which is the whole document",
            "say it in that document, or remove it",
        )


def _empty(item: Item) -> bool:
    return item.value == [] and not item.broken


def _secrets(part: Item) -> Iterator[Fault]:
    password, hashed = part.get("password"), part.get("password_hash")
    if password is not None and hashed is not None:
        yield password.fault("stands beside password_hash", "keep the hash")
    if password is not None and password.text() and password.masked is None:
        yield password.fault(
            "is written out",
            "name where it is instead: ${env:NAME}, ${file:PATH} or ${vault:PATH#KEY}; let one be "
            "made by ${gen:password:24}; or give its hash under password_hash",
        )
