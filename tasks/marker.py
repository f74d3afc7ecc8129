"""The marker file of an installed system: which installation made it, read by the guest agent."""

from __future__ import annotations

import re
from typing import Final, Literal

from blocks.manifest.guest import Guest
from blocks.model import Model
from blocks.proxmox.client import Client
from blocks.proxmox.errors import NotFound, ProxmoxError

PATH: Final = "/etc/proxflow-release"
_LINE = re.compile(r"^PROXFLOW_(?P<key>[A-Z]+)=[\"']?(?P<value>[^\s\"']*)[\"']?$", re.MULTILINE)


class Marker(Model):
    """``state``: ``read``, ``missing`` (the system answers and has no such file) or ``unread``.

    ``why`` says why it was not read. ``content`` is the hash of the installer files.
    """

    state: Literal["read", "missing", "unread"]
    why: str = ""
    environment: str = ""
    guest: str = ""
    content: str = ""


def read_marker(client: Client, guest: Guest) -> Marker:
    """The marker of a guest whose agent answers. One call; never raises.

    It takes VM.GuestAgent.FileRead (Proxmox VE 8: VM.Monitor), and an agent that allows file-read,
    which the Red Hat family's forbids as it is shipped.
    """
    path = f"/nodes/{guest.node}/qemu/{guest.vmid}/agent/file-read"
    try:
        text = str(client.get(path, file=PATH).get("content", ""))
    except NotFound:
        return Marker(state="missing")
    except ProxmoxError as error:
        return Marker(state="unread", why=error.message.strip().partition("\n")[0])
    found = {line["key"]: line["value"] for line in _LINE.finditer(text)}
    if "CONTENT" not in found:
        return Marker(state="unread", why=f"{PATH} holds something else")
    return Marker(
        state="read",
        environment=found.get("ENVIRONMENT", ""),
        guest=found.get("GUEST", ""),
        content=found["CONTENT"],
    )
