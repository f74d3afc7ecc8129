"""Which Prefect API a local run uses, and the temporary server where there is none.

Figures for Prefect 3.9.1 are in the docstring of :mod:`flows.runtime`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Final

import httpx
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    get_current_settings,
)

from flows.runtime.network import certificate_trouble, unproxied

USUAL_URL: Final = "http://127.0.0.1:4200/api"
STARTUP_BOUND: Final = 120.0

_CHILD: Final = Path(__file__).with_name("child.py")

_RECORDER: Final = {
    # One record at a time is the default, and what is still queued at the end is lost. The
    # interval is cut to whole seconds: 0.5 would be 0, a loop that never sleeps.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
_TEMPORARY: Final = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # Automations are a lasting server's; here they would cost a tenth of the start.
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
}


class RuntimeUnavailable(Exception):
    """No Prefect API can be used; the text says which one was tried and what to do."""


def answers(url: str, seconds: float) -> bool:
    """Whether a Prefect API is healthy at an address such as ``http://127.0.0.1:4200/api``."""
    auth = PREFECT_API_AUTH_STRING.value()
    user, _, password = auth.get_secret_value().partition(":") if auth else ("", "", "")
    try:
        reply = httpx.get(
            f"{url}/health",
            timeout=seconds,
            trust_env=False,
            auth=(user, password) if auth else None,
        )
    except httpx.HTTPError:
        return False
    return reply.status_code == httpx.codes.OK and reply.text.strip() == "true"


def find_server() -> str | None:
    """The address of a server to use, None where a temporary one is needed.

    The one that the environment or the active profile names; else one at the usual address.
    Raises :class:`RuntimeUnavailable` when the named one does not answer, and when the environment
    names a file of certificates that Prefect's client could not read.
    """
    if trouble := certificate_trouble():
        raise RuntimeUnavailable(trouble)
    named: str | None = PREFECT_API_URL.value()
    if named is None:
        return USUAL_URL if answers(USUAL_URL, 1.0) else None
    if not answers(named, 5.0):
        raise RuntimeUnavailable(
            f"The Prefect API at {named} (PREFECT_API_URL) does not answer.\n"
            "  next: start it (`prefect server start`), or unset PREFECT_API_URL"
            " (`prefect config unset PREFECT_API_URL`) to run without a server."
        )
    return named


class TemporaryServer:
    """A Prefect server for this process only, with its database in ``PREFECT_HOME``.

    It starts at once and without blocking; :meth:`wait` gives its address when it is healthy.
    """

    def __init__(self) -> None:
        """Start the process on a free port of the loopback interface."""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._stopped = threading.Lock()
        lock = get_current_settings().home / "proxflow" / "server.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
            self._process = subprocess.Popen(
                # By its path, and without its folder on the import path (-P): importing this
                # package first would only cost time.
                [sys.executable, "-P", str(_CHILD), str(listener.fileno()), str(lock)],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[listener.fileno()],
                # A Ctrl-C at the terminal must reach the run only: it still has to be recorded.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self._process.pid

    def wait(self, seconds: float | None = None) -> str:
        """The address, once healthy; waits 120 s, or as long as Prefect's setting says if longer.

        Raises :class:`RuntimeUnavailable`.
        """
        if seconds is None:
            seconds = max(STARTUP_BOUND, PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value())
        # The socket listens already: a request waits in its queue until the server takes it.
        began = time.monotonic()
        probe = threading.Event()
        healthy: list[bool] = []

        def ask() -> None:
            healthy.append(answers(self.url, seconds))
            probe.set()

        threading.Thread(target=ask, daemon=True).start()
        while not probe.wait(0.05):
            if self._process.poll() is not None:
                break
        if healthy == [True]:
            return self.url
        # A server that failed closes its socket, and the question ends before its time.
        slow = time.monotonic() - began >= seconds
        self.stop()
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace").strip().splitlines()[-5:]
        said = "".join(f"\n  | {line}" for line in tail)
        home = get_current_settings().home
        if slow:
            raise RuntimeUnavailable(
                f"The temporary Prefect server did not answer within {seconds:.0f} s.{said}\n"
                "  next: try again; or start one with `prefect server start`, which the next run"
                f" uses. Its database is in {home}."
            )
        raise RuntimeUnavailable(
            f"The temporary Prefect server did not start:{said or ' it gave no reason.'}\n"
            f"  next: look at {home}, or start `prefect server start` and set PREFECT_API_URL."
        )

    def stop(self, seconds: float = 5.0) -> None:
        """End the process and reap it; safe to call again, also from a signal handler."""
        if not self._stopped.acquire(blocking=False):
            return
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """For the server: this process's, the active profile's settings, and what it must have."""
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    environment = {**os.environ, **settings}
    for name in ("PREFECT_API_URL", "PREFECT_API_KEY"):
        environment.pop(name, None)
    recorder = {key: os.environ.get(key, value) for key, value in _RECORDER.items()}
    exempted = unproxied("http://127.0.0.1", environment)
    return {**environment, **exempted, **recorder, **_TEMPORARY}
