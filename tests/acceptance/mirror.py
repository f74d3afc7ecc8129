"""A Debian mirror on loopback that passes on the one in reach, and remembers what was asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.acceptance.components import SUITE, Components

_SUITE = re.compile(r"^Suite: (\S+)$", re.MULTILINE)


@dataclass
class Mirror:
    """``asked``: paths below ``root``, with the status of each answer, in order."""

    root: str
    port: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)

    def __str__(self) -> str:
        """Everything that was asked, a line each."""
        return "\n".join(f"{status} {path}" for path, status in self.asked)

    def components(self, status: int) -> list[str]:
        """The installer's packages that were asked for and answered so."""
        found = [path for path, code in self.asked if code == status and path.endswith(".udeb")]
        return [path.rpartition("/")[2] for path in found]


@contextmanager
def serving(root: str, packages: Components, whole: bool = False) -> Iterator[Mirror]:
    """Serve below the path ``root``: Release, the installer's list of packages, the packages.

    ``whole``: everything else of the mirror in reach, too.
    """
    mirror = Mirror(root)
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix(f"/{root}/")
            with turn:
                data = _content(path, packages, whole) if path != self.path else None
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


def _content(path: str, packages: Components, whole: bool) -> bytes | None:
    release = packages.release()
    for name in {SUITE, *_SUITE.findall(release)}:
        # The installer looks for all the suites that it knows, and refuses one of another name.
        if path == f"dists/{name}/Release":
            return release.encode()
        if path == f"dists/{name}/main/binary-amd64/Release":
            return b"Component: main\nOrigin: Debian\nLabel: Debian\nArchitecture: amd64\n"
        if path == f"dists/{name}/main/debian-installer/binary-amd64/Packages":
            return packages.packages().encode()
    if path.endswith(".udeb"):
        found = packages.by_path(path)
        return found.read_bytes() if found is not None else None
    # The system's own packages, and the lists of them, signed.
    return packages.upstream(path) if whole else None
