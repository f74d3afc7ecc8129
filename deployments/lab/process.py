"""A lab in a process of its own: start in the background, stop, status, reset."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from deployments.lab import statefolder
from deployments.lab.files import CONNECTION, read_json

_START_SECONDS = 60
_STOP_SECONDS = 15


class LabProcessError(RuntimeError):
    """The background lab could not be started, stopped or reached; ``code`` is an exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def default_state() -> Path:
    """``PROXFLOW_LAB_STATE``, else ``.demo/lab`` below the current folder."""
    return Path(os.environ.get("PROXFLOW_LAB_STATE") or Path(".demo") / "lab")


def connection_of(state: Path) -> dict[str, Any] | None:
    """Connection data of a lab that answers, None otherwise."""
    data: dict[str, Any] | None = read_json(state / CONNECTION, None)
    return data if data is not None and _healthy(data) else None


def _healthy(data: dict[str, Any]) -> bool:
    # Loading these takes as long as a child needs to begin; `start` has its child by then.
    import ssl
    import urllib.request

    try:
        context = ssl.create_default_context(cafile=data["ca_file"])
        request = urllib.request.Request(  # noqa: S310 - our own https address
            f"{data['endpoint']}/_lab/health", headers={"X-Lab-Token": data["control_token"]}
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=5) as response:
            return bool(json.loads(response.read()).get("ok"))
    except (OSError, ValueError, KeyError):
        return False


def start(state: Path, arguments: list[str]) -> tuple[dict[str, Any], bool]:
    """Start a background lab unless one serves the folder; its data, and whether it is new.

    LabProcessError when it ends at once (with its last words and its exit code) or does not answer
    within a minute; it is ended then.
    """
    known = connection_of(state)
    if known is not None:
        return known, False
    log = state / statefolder.LOG
    child: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if child is None:
            # Asked again each time: a lab that is just ending has the folder a moment longer.
            child = None if statefolder.in_use(state) else _spawn(state, log, arguments)
        elif child.poll() is not None and not statefolder.in_use(state):
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            said = " ".join(tail).removeprefix("lab: ") or f"see {log}"
            raise LabProcessError(f"the lab did not start: {said}", child.returncode)
        found = connection_of(state)
        if found is not None:
            return found, child is not None and found["pid"] == child.pid
        time.sleep(0.03)
    if child is not None:
        child.kill()
        child.wait()
    raise LabProcessError(f"the lab did not answer within {_START_SECONDS} s, see {log}")


def _spawn(state: Path, log: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    state.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "deployments.lab", "serve", "--state", str(state), *arguments],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def stop(state: Path) -> bool:
    """End the lab that serves the folder, even one too busy to answer; False when none does."""
    if not statefolder.in_use(state):
        (state / CONNECTION).unlink(missing_ok=True)
        return False
    data = read_json(state / CONNECTION, None)
    if data is None:
        raise LabProcessError(f"a lab is starting or ending in {state}; try again")
    pid = int(data["pid"])
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline:
        if not _alive(pid):
            return True
        time.sleep(0.03)
    raise LabProcessError(f"process {pid} did not end within {_STOP_SECONDS} s")


def _alive(pid: int) -> bool:
    try:
        finished, _ = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        finished = 0
    if finished == pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def reset(state: Path) -> bool:
    """Stop and remove the state folder; StateFolderError for a folder that is no lab's."""
    stop(state)
    if not state.exists():
        return False
    statefolder.refuse_foreign(state)
    with statefolder.holding(state):
        shutil.rmtree(state)
    return True
