"""Real processes for tests: started with an environment of their own, read line by line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]


class Program:
    """A running command whose output is read until a line that a test waits for."""

    def __init__(
        self,
        *command: str,
        home: Path,
        api: str | None = None,
        cwd: Path = ROOT,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
        environment = {**kept, **(variables or {})}
        environment["PREFECT_HOME"] = str(home)
        environment["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
        environment["PREFECT_WORKER_QUERY_SECONDS"] = "1"
        if api is not None:
            environment["PREFECT_API_URL"] = api
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-u", *command],
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.rest()

    def until(self, start: str) -> str:
        """The next line that begins so; fails with all that was said when there is none."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith(start):
                return line.rstrip()
        raise AssertionError(f"no line begins with {start!r}:\n" + "\n".join(self.lines))

    def rest(self) -> int:
        """Read to the end; the exit code."""
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip() for line in self.process.stdout)
        return self.process.wait()

    def stop(self, seconds: float = 60) -> None:
        """End it by SIGTERM; a Prefect worker sometimes ignores that, and is killed then."""
        self.send(signal.SIGTERM)
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        self.rest()
        timer.cancel()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


def program(*words: str, home: Path, api: str | None = None) -> Program:
    return Program("-m", "tests.flows.runtime_program", *words, home=home, api=api)


@contextmanager
def prefect_server(home: Path) -> Iterator[str]:
    """A real ``prefect server start`` on a free port of the loopback interface."""
    import socket

    from flows.runtime.server import answers

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    command = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with Program(*command, home=home, api=url) as server:
        assert eventually(lambda: answers(url, 1.0), 120), "\n".join(server.lines)
        try:
            yield url
        finally:
            server.stop()


def eventually(look: object, seconds: float) -> bool:
    """Whether ``look`` becomes true within a bound."""
    assert callable(look)
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
