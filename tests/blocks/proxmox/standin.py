"""A small HTTPS server for what a good Proxmox VE never does: breaking off, odd bodies, odd names.

Anything that the real API answers is tested against the lab instead.
"""

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme

VERSION = {"release": "9.2", "version": "9.2.11", "repoid": "x"}


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    status: int = 200
    reason: str = "OK"
    data: object = None
    body: bytes | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


class Reset(Exception):
    """Raised by an answer: break the connection off."""


@dataclass
class StandIn:
    port: int
    ca_file: Path
    fingerprint: str
    requests: list[Request]

    @property
    def endpoint(self) -> str:
        return f"https://localhost:{self.port}"


@contextlib.contextmanager
def standin(
    folder: Path,
    answer: Callable[[Request], Reply],
    *,
    name: str = "localhost",
    expired: bool = False,
) -> Iterator[StandIn]:
    """Serve until the block ends; ``answer`` is called in the connection's thread."""
    import datetime
    import hashlib

    authority = trustme.CA()
    until = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if expired else None
    certificate = (
        authority.issue_cert(name, not_before=until - datetime.timedelta(days=9), not_after=until)
        if until
        else authority.issue_cert(name)
    )
    ca_file = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    seen: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            request = Request(
                self.command, self.path, dict(self.headers.items()), self.rfile.read(size)
            )
            seen.append(request)
            try:
                reply = answer(request)
            except Reset:
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                self.connection.close()
                self.close_connection = True
                return
            body = reply.body
            if body is None:
                body = json.dumps({"data": reply.data}).encode()
            self.send_response(reply.status, reply.reason)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", reply.content_type)
            for key, value in reply.headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def finish_request(self, request, client_address):  # type: ignore[no-untyped-def]
            with contextlib.suppress(OSError):
                secured = context.wrap_socket(request, server_side=True)
                super().finish_request(secured, client_address)
                secured.close()

        def handle_error(self, request, client_address):  # type: ignore[no-untyped-def]
            pass

    der = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
    digest = hashlib.sha256(der).hexdigest().upper()
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield StandIn(
            server.server_address[1],
            ca_file,
            ":".join(digest[i : i + 2] for i in range(0, 64, 2)),
            seen,
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
