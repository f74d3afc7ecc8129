"""A small HTTPS server for what a good Proxmox VE never does: breaking off, odd bodies, odd names.

Anything that the real API answers is tested against the lab instead.
"""

import contextlib
import datetime
import hashlib
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
from pydantic import SecretStr

from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection

VERSION = {"release": "9.2", "version": "9.2.11", "repoid": "x"}


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    size: int = 0


@dataclass
class Reply:
    status: int = 200
    reason: str = "OK"
    data: object = None
    message: str | None = None
    errors: dict[str, str] | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    def bytes(self) -> bytes:
        if self.body is not None:
            return self.body
        document: dict[str, object] = {"data": self.data}
        if self.message is not None:
            document["message"] = self.message
        if self.errors is not None:
            document["errors"] = self.errors
        return json.dumps(document).encode()


class Reset(Exception):
    """Raised by an answer: break the connection off."""


Answer = Callable[[Request], Reply]


@dataclass
class StandIn:
    port: int
    ca_file: Path
    fingerprint: str
    requests: list[Request]
    connections: list[object]

    @property
    def endpoint(self) -> str:
        return f"https://localhost:{self.port}"

    def connection(self, **settings: object) -> Connection:
        """By token, trusting the stand-in's authority, unless ``settings`` say otherwise."""
        chosen: dict[str, object] = {"endpoint": self.endpoint, "ca_file": self.ca_file}
        if "user" not in settings:
            chosen |= {"token_id": "root@pam!test", "token_secret": SecretStr("s3cret")}
        return Connection.model_validate(chosen | settings)

    def client(self, *, retries: int = 4, read_timeout: float = 10.0, **settings: object) -> Client:
        return Client(self.connection(**settings), retries=retries, read_timeout=read_timeout)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Answer
    seen: list[Request]
    drain: bool

    def _any(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = b"" if self.drain else self.rfile.read(size)
        unread = size - len(body)
        while unread > 0:
            unread -= len(self.rfile.read(min(unread, 1 << 20)))
        request = Request(self.command, self.path, dict(self.headers.items()), body, size)
        self.seen.append(request)
        try:
            reply = type(self).answer(request)
        except Reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
            return
        content = reply.bytes()
        self.send_response(reply.status, reply.reason)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", reply.content_type)
        for key, value in reply.headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _any

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext
    accepted: list[object]

    def finish_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        assert isinstance(request, socket.socket)
        self.accepted.append(client_address)
        with contextlib.suppress(OSError):
            secured = self.context.wrap_socket(request, server_side=True)
            super().finish_request(secured, client_address)
            secured.close()

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        pass


@contextlib.contextmanager
def standin(
    folder: Path,
    answer: Answer,
    *,
    name: str = "localhost",
    expired: bool = False,
    drain: bool = False,
) -> Iterator[StandIn]:
    """Serve until the block ends; ``answer`` is called in the connection's thread.

    ``drain``: throw bodies away as they come.
    """
    authority = trustme.CA()
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=-3 if expired else 3)
    certificate = authority.issue_cert(
        name, not_before=end - datetime.timedelta(days=9), not_after=end
    )
    ca_file = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    seen: list[Request] = []
    attributes = {"answer": staticmethod(answer), "seen": seen, "drain": drain}
    handler = type("Handler", (_Handler,), attributes)
    server = _Server(("127.0.0.1", 0), handler)
    server.context, server.accepted = context, []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    der = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
    digest = hashlib.sha256(der).hexdigest().upper()
    try:
        yield StandIn(
            port=server.server_address[1],
            ca_file=ca_file,
            fingerprint=":".join(digest[i : i + 2] for i in range(0, 64, 2)),
            requests=seen,
            connections=server.accepted,
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def in_turn(*replies: Reply | type[Reset]) -> Answer:
    """Each request gets the next reply, those after the last one the last again."""
    remaining = list(replies)
    lock = threading.Lock()

    def answer(_: Request) -> Reply:
        with lock:
            reply = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(reply, type):
            raise reply
        return reply

    return answer


def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
