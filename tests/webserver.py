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
    """``break_after``: bytes after which the next GET ends too soon. ``gets``: ranges asked for."""

    folder: Path
    url: str = ""
    break_after: int | None = None
    gets: list[str] = field(default_factory=list)


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
            file = folder / self.path.partition("?")[0].lstrip("/")
            if not file.is_file():
                self.send_error(404)
                return
            data = file.read_bytes()
            asked = self.headers.get("Range", "")
            found = re.fullmatch(r"bytes=(\d+)-", asked)
            start = int(found[1]) if found else 0
            if found and start >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if found else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if not body:
                return
            web.gets.append(asked)
            end, web.break_after = web.break_after, None
            self.wfile.write(data[start : None if end is None else start + end])

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
