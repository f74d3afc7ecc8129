"""Is there an SSH server? Asked of the banner alone, with no login and no host key."""

from __future__ import annotations

import socket
from contextlib import closing

from python_socks import ProxyError
from python_socks.sync import Proxy

PORT = 22


def ssh_banner(host: str, *, proxy: str | None = None, timeout: float = 5.0) -> str | None:
    """The banner of the SSH server at an address, None where there is none yet.

    ``proxy``: a SOCKS URL through which the guests' network is reached. ``timeout`` in seconds
    bounds the connection and the banner each.
    """
    try:
        with closing(_connect(host, proxy, timeout)) as connection:
            connection.settimeout(timeout)
            banner = connection.recv(255)
    except (OSError, ProxyError):
        return None
    text = banner.split(b"\n", 1)[0].strip().decode("ascii", "replace")
    return text if text.startswith("SSH-") else None


def _connect(host: str, proxy: str | None, timeout: float) -> socket.socket:
    if proxy is None:
        return socket.create_connection((host, PORT), timeout)
    return Proxy.from_url(proxy).connect(host, PORT, timeout=timeout)
