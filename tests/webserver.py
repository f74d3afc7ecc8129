"""A web server for tests: files of a folder, with ranges, counted, and breaking off where asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Web:
    """What is served, and how.

    ``break_after``: bytes after which the next GET ends too soon. ``deaf_to``: clients whose name
    (User-Agent) begins so get no answer. ``fail``: statuses of the next answers, in order.
    ``gets``: ranges asked for, with the path in ``asked``.
    """

    folder: Path
    url: str = ""
    break_after: int | None = None
    deaf_to: str | None = None
    fail: list[int] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def put(self, name: str, data: bytes) -> str:
        """Serve a file; its URL."""
        (self.folder / name).write_bytes(data)
        return f"{self.url}/{name}"

    def fetches(self, name: str) -> list[str]:
        """The ranges asked for of a file, without those that want only its beginning."""
        return [
            span
            for path, span in self.asked
            if path == f"/{name}" and not re.fullmatch(r"bytes=0-\d+", span)
        ]


@contextmanager
def served(folder: Path) -> Iterator[Web]:
    """Serve a folder on loopback."""
    web = Web(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            if web.deaf_to and self.headers.get("User-Agent", "").startswith(web.deaf_to):
                self.close_connection = True
                return
            if web.fail:
                self.send_error(web.fail.pop(0))
                return
            file = folder / path.lstrip("/")
            if not file.is_file():
                self.send_error(404)
                return
            data = file.read_bytes()
            asked = self.headers.get("Range", "")
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
            start = int(found[1]) if found else 0
            if found and start >= len(data):
                self.send_error(416)
                return
            stop = min(len(data), int(found[2]) + 1) if found and found[2] else len(data)
            self.send_response(206 if found else 200)
            self.send_header("Content-Length", str(stop - start))
            if found:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
            self.end_headers()
            if not body:
                return
            web.gets.append(asked)
            web.asked.append((path, asked))
            if web.break_after is not None and not (found and found[2]):
                stop, web.break_after = min(stop, start + web.break_after), None
            self.wfile.write(data[start:stop])

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
