"""Serving a state folder: certificate, HTTPS server, guest gateway, connection file."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import uvicorn

from deployments.lab import statefolder
from deployments.lab.app import Application
from deployments.lab.cluster import Lab
from deployments.lab.credentials import CREDENTIALS, Credentials
from deployments.lab.files import CONNECTION, read_json, remove_partials, write_atomic, write_json
from deployments.lab.protocol import ReasonProtocol, web_socket_protocol
from deployments.lab.socks import Gateway

_PATIENCE = 1.0


def ensure_state(root: Path, seed_file: Path | None) -> Credentials:
    """Credentials of a state folder, which is made and seeded if it is new.

    The credentials are written last: a folder without them is what a killed process has left of
    its seeding, and is begun anew.
    """
    known = read_json(root / CREDENTIALS, None)
    if known is not None:
        remove_partials(root)
        return Credentials(**known)
    statefolder.refuse_foreign(root)
    from deployments.lab.seeding import create_state, load_seed

    seed = load_seed(seed_file)
    for part in statefolder.PARTS:
        shutil.rmtree(root / part, ignore_errors=True)
    return create_state(root, seed_file, seed)


def ensure_certificate(root: Path) -> tuple[Path, Path, str]:
    """CA file, server key and chain, and the server certificate's SHA-256 fingerprint."""
    folder = root / "tls"
    authority, server = folder / "ca.pem", folder / "server.pem"
    if not server.exists():
        import trustme

        ca = trustme.CA(organization_name="Proxflow lab", organization_unit_name="lab")
        certificate = ca.issue_cert("localhost", "127.0.0.1")
        write_atomic(authority, ca.cert_pem.bytes())
        write_atomic(server, certificate.private_key_and_cert_chain_pem.bytes(), 0o600)
    text = server.read_text()
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[begin:end])).hexdigest().upper()
    return authority, server, ":".join(digest[n : n + 2] for n in range(0, len(digest), 2))


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which ends the process before the lab has cleaned up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever serves the lab."""
        yield


@asynccontextmanager
async def serving(
    root: Path,
    *,
    port: int = 0,
    proxy_port: int = 0,
    time_scale: float = 1.0,
    seed_file: Path | None = None,
) -> AsyncIterator[tuple[Lab, dict[str, Any], uvicorn.Server]]:
    """Serve until the block ends; yields the lab, the connection data and the server."""
    with statefolder.holding(root, patience=_PATIENCE):
        # One that a killed process has left names a process that is not ours.
        (root / CONNECTION).unlink(missing_ok=True)
        async with _serving(root, port, proxy_port, time_scale, seed_file) as served:
            yield served


@asynccontextmanager
async def _serving(
    root: Path, port: int, proxy_port: int, time_scale: float, seed_file: Path | None
) -> AsyncIterator[tuple[Lab, dict[str, Any], uvicorn.Server]]:
    credentials = ensure_state(root, seed_file)
    authority, server_pem, fingerprint = ensure_certificate(root)
    lab = Lab(root, time_scale)
    lab.web["fingerprint"] = fingerprint
    # With the protocol named, asyncio switches Nagle's delay off; without, each answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"port {port}: {error.strerror}") from None
    config = uvicorn.Config(
        Application(lab, credentials.control_token),
        http=ReasonProtocol,
        ws=cast("Any", web_socket_protocol),
        ws_per_message_deflate=False,
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        ssl_certfile=str(server_pem),
        ssl_keyfile=str(server_pem),
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    gateway = Gateway(lab)
    await gateway.start(proxy_port)
    running = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started:
            if running.done():
                running.result()
                raise RuntimeError("the HTTPS server did not start")
            await asyncio.sleep(0.005)
        connection = {
            "endpoint": f"https://127.0.0.1:{listener.getsockname()[1]}",
            "ca_file": str(authority.resolve()),
            "fingerprint": fingerprint,
            "guest_proxy": f"socks5://127.0.0.1:{gateway.port}",
            "pid": os.getpid(),
            **vars(credentials),
        }
        write_json(root / CONNECTION, connection, 0o600)
        yield lab, connection, server
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await gateway.close()
        with contextlib.suppress(FileNotFoundError):
            known = json.loads((root / CONNECTION).read_text())
            if known.get("pid") == os.getpid():
                (root / CONNECTION).unlink()


async def serve_until_stopped(root: Path, **options: Any) -> None:
    """Serve until SIGTERM or SIGINT; both are a clean end."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with serving(root, **options) as (_lab, connection, _server):
        print(f"lab: {connection['endpoint']} (state {root}, pid {connection['pid']})", flush=True)
        print(f"lab: certificate SHA-256 {connection['fingerprint']}", flush=True)
        await stopped.wait()
