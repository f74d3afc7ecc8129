"""Terminals over ``termproxy`` and ``vncwebsocket``.

Nothing here was recorded; calls, tickets and framing follow the public sources of pve-container,
qemu-server and the terminal proxy: the client says ``user:ticket`` and a newline, the server
``OK``; then keys come as ``0:LENGTH:DATA``, sizes as ``1:COLUMNS:ROWS:``, signs of life as ``2``,
and output goes back as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from deployments.lab.cluster import Lab
from deployments.lab.errors import ApiError, failure
from deployments.lab.guestos import UP, Run
from deployments.lab.qemu.options import VGA_FORMAT
from deployments.lab.routing import Call, endpoint, on
from deployments.lab.schema import enum, integer, parse_property_string, string
from deployments.lab.tasks import Task
from deployments.lab.terminal import Line

VM = "/nodes/{node}/qemu/{vmid}"
CT = "/nodes/{node}/lxc/{vmid}"
_CONSOLE = on("/vms/{vmid}", "VM.Console")
_PORTS = range(5900, 6000)
_TICKET_SECONDS = 40
_POLL_SECONDS = 0.05
_SOCKET = {
    "vncticket": string(optional=False, max_length=512),
    "port": integer(5900, 5999, optional=False),
}


@dataclass
class Proxy:
    """A terminal proxy that waits for its one client, or serves it."""

    vmid: int
    kind: str
    node: str
    user: str
    ticket: str
    serial: str | None
    born: float = field(default_factory=time.monotonic)
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


def _proxies(lab: Lab) -> dict[int, Proxy]:
    return lab.life.proxies


def _open(call: Call, kind: str, serial: str | None, words: str) -> dict[str, Any]:
    lab, node, vmid = call.lab, call.node, call.vmid
    known = _proxies(lab)
    port = next((number for number in _PORTS if number not in known), None)
    if port is None:
        raise failure("unable to find free vnc port (5900-5999)")
    user = call.who.authid
    ticket = lab.access.console_ticket(user, f"/vms/{vmid}", port)
    proxy = known[port] = Proxy(vmid, kind, node, user, ticket, serial)
    command = f"/usr/bin/termproxy {port} --path /vms/{vmid} --perm VM.Console --vncticket-endpoint"

    async def work(task: Task) -> None:
        try:
            await _taken_or_late(lab, proxy)
            if not proxy.taken.is_set():
                task.log("failed waiting for client: timed out")
                full = f"{command} --verify-port --ticket-fd 6 -- {words}"
                raise failure(f"command '{full}' failed: exit code 1")
            await proxy.over.wait()
        finally:
            proxy.over.set()
            known.pop(port, None)

    upid = lab.tasks.start(node, "vncproxy", str(vmid), call.who, work)
    return {"user": user, "ticket": ticket, "port": str(port), "upid": upid}


async def _taken_or_late(lab: Lab, proxy: Proxy) -> None:
    """Wait for the proxy's client, as long as a console does."""
    began = time.monotonic()
    late = asyncio.create_task(lab.clock.passed(began, lab.clock.console_seconds))
    taken = asyncio.create_task(proxy.taken.wait())
    try:
        await asyncio.wait({late, taken}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        late.cancel()
        taken.cancel()


@endpoint("POST", f"{CT}/termproxy", check=_CONSOLE, needs_quorum=False)
async def ct_terminal(call: Call) -> dict[str, Any]:
    """Open a container's console."""
    mode = call.lab.guests.load(call.node, "lxc", call.vmid).values.get("cmode", "tty")
    inner = f"lxc-console -n {call.vmid}"
    inner += " -t 0" if mode == "console" else ""
    inner += " -e -1"
    if mode == "shell":
        inner = f"lxc-attach --clear-env -n {call.vmid}"
    socket = f"/var/run/dtach/vzctlconsole{call.vmid}"
    return _open(call, "lxc", None, f"/usr/bin/dtach -A {socket} -r winch -z {inner}")


@endpoint(
    "POST",
    f"{VM}/termproxy",
    {"serial": enum("serial0", "serial1", "serial2", "serial3")},
    check=_CONSOLE,
    needs_quorum=False,
)
async def vm_terminal(call: Call) -> dict[str, Any]:
    """Open a machine's serial line."""
    values = call.lab.guests.load(call.node, "qemu", call.vmid).values
    serial = call.params.get("serial")
    shown = (
        parse_property_string(values["vga"], VGA_FORMAT).get("type", "") if "vga" in values else ""
    )
    if serial is None and str(shown).startswith("serial"):
        serial = str(shown)
    words = f"/usr/sbin/qm terminal {call.vmid} -escape 0"
    return _open(call, "qemu", serial, words + (f" -iface {serial}" if serial else ""))


@endpoint("GET", f"{CT}/vncwebsocket", _SOCKET, check=_CONSOLE)
async def ct_socket(call: Call) -> dict[str, Any]:
    """Whether a web socket may be opened; the socket itself is served beside the calls."""
    return _admit(call)


@endpoint("GET", f"{VM}/vncwebsocket", _SOCKET, check=_CONSOLE)
async def vm_socket(call: Call) -> dict[str, Any]:
    """Whether a web socket may be opened; the socket itself is served beside the calls."""
    return _admit(call)


def _admit(call: Call) -> dict[str, Any]:
    lab, port = call.lab, call.params["port"]
    path, ticket = f"/vms/{call.vmid}", call.params["vncticket"]
    lab.access.check_console_ticket(ticket, call.who.authid, path, port, _TICKET_SECONDS)
    return {"port": str(port)}


# -- the socket --------------------------------------------------------------------------------

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


async def serve(lab: Lab, port: int, receive: Receive, send: Send) -> None:
    """Connect an accepted web socket to the proxy behind ``port`` until either side ends."""
    proxy = _proxies(lab).get(port)
    try:
        if proxy is None or proxy.taken.is_set():
            return
        proxy.taken.set()
        rest = await _greeting(lab, proxy, port, receive, send)
        if rest is not None:
            await _bridge(lab, proxy, rest, receive, send)
    finally:
        if proxy is not None:
            proxy.over.set()
        with contextlib.suppress(Exception):
            await send({"type": "websocket.close", "code": 1000})


async def _message(receive: Receive) -> bytes | None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return None
        if message["type"] == "websocket.receive":
            data = message.get("bytes")
            return data if data is not None else str(message.get("text") or "").encode()


async def _greeting(
    lab: Lab, proxy: Proxy, port: int, receive: Receive, send: Send
) -> bytes | None:
    """Read ``user:ticket`` and a newline; what came behind it, or None when it is wrong."""
    buffer = b""
    try:
        async with asyncio.timeout(lab.clock.console_seconds()):
            while b"\n" not in buffer:
                data = await _message(receive)
                if data is None:
                    return None
                buffer += data
    except TimeoutError:
        return None
    first, _, rest = buffer.partition(b"\n")
    user, _, ticket = first.decode(errors="replace").rstrip("\r").partition(":")
    path = f"/vms/{proxy.vmid}"
    try:
        lab.access.check_console_ticket(ticket, user, path, port, _TICKET_SECONDS)
    except ApiError:
        return None
    await send({"type": "websocket.send", "bytes": b"OK"})
    return rest


async def _bridge(lab: Lab, proxy: Proxy, buffer: bytes, receive: Receive, send: Send) -> None:
    line = await _attach(lab, proxy, send)
    if line is None:
        return
    pump = asyncio.create_task(_pump(lab, line, send))
    try:
        while True:
            buffer = _consume(line, buffer)
            reading = asyncio.ensure_future(_message(receive))
            await asyncio.wait({reading, pump}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                return
            data = reading.result()
            if data is None:
                return
            buffer += data
    finally:
        pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pump


async def _attach(lab: Lab, proxy: Proxy, send: Send) -> Line | None:
    run = lab.life.running(proxy.vmid)
    refusal = _refusal(lab, proxy, run)
    if refusal is not None or run is None:
        await send({"type": "websocket.send", "bytes": f"{refusal}\r\n".encode()})
        return None
    if proxy.kind == "lxc" and run.values.get("cmode") == "shell":
        return lab.life.lines.shell(run)
    if proxy.kind == "lxc":
        await send({"type": "websocket.send", "bytes": b"Connected to tty 1\r\n"})
        return lab.life.lines.get(
            run, "console" if run.values.get("cmode") == "console" else "tty1"
        )
    text = f"starting serial terminal on interface {proxy.serial or _first_serial(run)}\r\n"
    await send({"type": "websocket.send", "bytes": text.encode()})
    while lab.life.running(proxy.vmid) is run and run.phase != UP:
        await asyncio.sleep(_POLL_SECONDS)
    name = (proxy.serial or _first_serial(run) or "serial0").replace("serial", "ttyS")
    return lab.life.lines.get(run, name)


def _first_serial(run: Run) -> str | None:
    found = sorted(k for k in run.values if re.fullmatch(r"serial\d", k))
    return next((key for key in found if run.values[key] == "socket"), None)


def _refusal(lab: Lab, proxy: Proxy, run: Run | None) -> str | None:
    if proxy.kind == "lxc":
        return None if run is not None else f"lxc-console: {proxy.vmid} is not running"
    if run is None:
        return f"VM {proxy.vmid} not running"
    wanted = proxy.serial or _first_serial(run)
    if wanted is None:
        return "unable to find a serial interface"
    if run.values.get(wanted) != "socket":
        return f"no serial interface '{wanted}'"
    return None


async def _pump(lab: Lab, line: Line, send: Send) -> None:
    while True:
        data = line.read()
        if data:
            await send({"type": "websocket.send", "bytes": data})
        run = lab.life.running(line.vmid)
        if line.hung_up or run is None or run.booted != line.began:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS * 4):
                await line.changed.wait()


def _consume(line: Line, buffer: bytes) -> bytes:
    """Act on every whole message in the buffer; what is left of it."""
    while buffer:
        kind = buffer[:1]
        if kind == b"2":
            buffer = buffer[1:]
            continue
        if kind not in (b"0", b"1"):
            # The real proxy drops a byte that begins no message.
            buffer = buffer[1:]
            continue
        if buffer[1:2] not in (b":", b""):
            buffer = buffer[1:]
            continue
        head = re.match(rb"[01]:(\d+):", buffer)
        if head is None:
            if re.fullmatch(rb"[01](:\d{0,6})?", buffer):
                return buffer
            buffer = buffer[1:]
            continue
        if kind == b"0":
            end = head.end() + int(head.group(1))
            if len(buffer) < end:
                return buffer
            line.type(buffer[head.end() : end])
        else:
            size = re.match(rb"1:(\d+):(\d+):", buffer)
            if size is None:
                if re.fullmatch(rb"1:\d+:\d{0,6}", buffer):
                    return buffer
                buffer = buffer[1:]
                continue
            line.columns, line.rows = int(size.group(1)), int(size.group(2))
            end = size.end()
        buffer = buffer[end:]
    return buffer
