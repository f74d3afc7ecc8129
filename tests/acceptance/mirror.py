"""A Debian mirror on loopback that has the installer's packages, and remembers what was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.acceptance.components import SUITE, Components


@dataclass
class Mirror:
    """``asked``: paths below ``root``, with the status of each answer, in order."""

    root: str
    port: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)

    def answered(self, part: str) -> bool:
        """Whether something whose path has this part was handed out."""
        return any(part in path and status == 200 for path, status in self.asked)

    def udebs(self) -> list[str]:
        """The installer's packages that were fetched."""
        return [path.rpartition("/")[2] for path, status in self.asked if path.endswith(".udeb")]


@contextmanager
def serving(root: str, packages: Components) -> Iterator[Mirror]:
    """Serve below the path ``root``: Release, the installer's list of packages, the packages."""
    mirror = Mirror(root)
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix(f"/{root}/")
            with turn:
                data = _content(path, packages) if path != self.path else None
            mirror.asked.append((path, 200 if data is not None else 404))
            if data is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    mirror.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield mirror
    finally:
        server.shutdown()
        server.server_close()


def _content(path: str, packages: Components) -> bytes | None:
    if path in {f"dists/{name}/Release" for name in (SUITE, "stable")}:
        return packages.release().encode()
    if path == f"dists/{SUITE}/main/debian-installer/binary-amd64/Packages":
        return packages.packages().encode()
    if path.endswith(".udeb"):
        found = packages.by_path(path)
        return found.read_bytes() if found is not None else None
    return None
