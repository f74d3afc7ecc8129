"""The guest network's gateway: a SOCKS5 server that reaches the SSH ports of booted guests.

Loopback has no routes to guest addresses; a client that connects through this proxy meets the
guest that has the address, a refusal, or "host unreachable", as on a real network.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deployments.lab.cluster import Lab
    from deployments.lab.guestos import Run

SSH_PORT = 22
BANNER = b"SSH-2.0-OpenSSH_9.6p1 lab\r\n"
_OK, _FAILED, _UNREACHABLE, _REFUSED, _NO_COMMAND, _NO_ADDRESS = 0, 1, 4, 5, 7, 8
_IPV4, _NAME, _IPV6 = 1, 3, 4
_LIMIT_SECONDS = 60


class Gateway:
    """The proxy of one lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, port: int = 0) -> None:
        """Listen on loopback; ``port`` 0 takes a free one."""
        self._server = await asyncio.start_server(self._client, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_LIMIT_SECONDS):
                await self._talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        if version != 5 or 0 not in methods:
            writer.write(b"\x05\xff")
            await writer.drain()
            return
        writer.write(b"\x05\x00")
        version, command, _, kind = await reader.readexactly(4)
        host = await _read_host(reader, kind)
        port = int.from_bytes(await reader.readexactly(2), "big")
        if host is None:
            await _answer(writer, _NO_ADDRESS)
            return
        if command != 1:
            await _answer(writer, _NO_COMMAND)
            return
        code = self._reach(host, port)
        await _answer(writer, code)
        if code == _OK:
            writer.write(BANNER)
            await writer.drain()
            while await reader.read(4096):
                pass

    def _reach(self, host: str, port: int) -> int:
        run = self._owner(host)
        if run is None or run.paused:
            return _UNREACHABLE
        return _OK if port == SSH_PORT else _REFUSED

    def _owner(self, host: str) -> Run | None:
        """The guest at an address or of a name; of several, the one that was up first."""
        running = [run for run in self._lab.life.all_running() if run.interfaces]
        found = [run for run in running if _has_address(run, host)] or [
            run for run in running if host.lower() in self._names(run)
        ]
        return min(found, key=lambda run: run.phase_since, default=None)

    def _names(self, run: Run) -> set[str]:
        full = {self._lab.life.host_name(run.vmid).lower(), run.values.get("name", "").lower()}
        return {name for name in full | {name.partition(".")[0] for name in full} if name}


def _has_address(run: Run, host: str) -> bool:
    try:
        wanted = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(
        ipaddress.ip_interface(text).ip == wanted
        for one in run.interfaces
        for text in one["addresses"]
    )


async def _read_host(reader: asyncio.StreamReader, kind: int) -> str | None:
    if kind == _IPV4:
        return str(ipaddress.IPv4Address(await reader.readexactly(4)))
    if kind == _IPV6:
        return str(ipaddress.IPv6Address(await reader.readexactly(16)))
    if kind == _NAME:
        length = (await reader.readexactly(1))[0]
        return (await reader.readexactly(length)).decode(errors="replace")
    return None


async def _answer(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes([5, code, 0, _IPV4, 0, 0, 0, 0, 0, 0]))
    await writer.drain()
