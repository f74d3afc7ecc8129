"""A lab within a test: HTTPS served by a thread of this process.

``with running_lab(tmp_path) as lab: ...`` gives connection data and control calls.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.lab.serve import serving

_START_SECONDS = 60
_SETTLE_SECONDS = 60


@dataclass
class RunningLab:
    """A lab that is being served."""

    state: Path
    connection: dict[str, Any]

    @property
    def endpoint(self) -> str:
        """``https://127.0.0.1:PORT``."""
        return str(self.connection["endpoint"])

    @property
    def port(self) -> int:
        """The port of the HTTPS server."""
        return int(self.endpoint.rpartition(":")[2])

    @property
    def token_header(self) -> str:
        """Value of the Authorization header for the default token."""
        return f"PVEAPIToken={self.connection['token_id']}={self.connection['token_secret']}"

    def control(self, method: str, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One call to the control interface; raises on a refusal."""
        context = ssl.create_default_context(cafile=self.connection["ca_file"])
        request = urllib.request.Request(  # noqa: S310 - our own https address
            f"{self.endpoint}/_lab/{name}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"X-Lab-Token": str(self.connection["control_token"])},
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=_SETTLE_SECONDS + 30) as response:
            found: dict[str, Any] = json.loads(response.read())
            return found

    def fault(self, **rule: Any) -> None:
        """Order trouble, see :mod:`deployments.lab.faultrules`."""
        self.control("POST", "faults", rule)

    def clear_faults(self) -> None:
        """Back to peace."""
        self.control("DELETE", "faults")

    def injected(self) -> list[dict[str, Any]]:
        """Troubles so far: kind, what happened, and to which call, task or guest."""
        found: list[dict[str, Any]] = self.control("GET", "faults")["injected"]
        return found

    def reseed(self, seed: int) -> None:
        """Begin the random numbers that rules with a probability draw from anew."""
        self.control("POST", "seed", {"seed": seed})

    def ticket_seconds(self, seconds: float) -> None:
        """How long tickets live, those that were given out already too."""
        self.control("POST", "ticket-seconds", {"seconds": seconds})

    def requests(self) -> list[dict[str, Any]]:
        """Calls so far: method, path, status, user."""
        found: list[dict[str, Any]] = self.control("GET", "requests")["requests"]
        return found

    def forget_requests(self) -> None:
        """Begin a new list of calls."""
        self.control("DELETE", "requests")

    def writes(self) -> list[dict[str, Any]]:
        """Calls that were not GET."""
        return [row for row in self.requests() if row["method"] != "GET"]

    def snapshot(self) -> dict[str, Any]:
        """Everything that exists; compare two of them to prove that nothing was changed."""
        return self.control("GET", "state")

    def set_time(self, scale: float | None = None, **durations: float) -> None:
        """Change time scale and durations by name, for what is under way too (see `clock`)."""
        body: dict[str, Any] = {"durations": durations}
        if scale is not None:
            body["scale"] = scale
        self.control("POST", "time", body)

    def settle(self) -> None:
        """Wait until no task runs."""
        self.control("POST", "settle", {"timeout": _SETTLE_SECONDS})

    def node_offline(self, name: str, on: bool = True) -> None:
        """Take a node down or bring it back."""
        self.control("POST", "node-offline", {"name": name, "on": on})

    def quorum_lost(self, on: bool = True) -> None:
        """Make the cluster read-only, or give it its majority back."""
        self.control("POST", "quorum", {"lost": on})

    def acpi(self, vmid: int, *, never: bool = False, seconds: float | None = None) -> None:
        """How a guest answers a request to power off: never, or after some (scaled) seconds."""
        self.control("POST", "acpi", {"vmid": vmid, "never": never, "seconds": seconds})

    def storage_full(self, name: str, on: bool = True) -> None:
        """Leave no room on a storage."""
        self.control("POST", "storage-full", {"name": name, "on": on})


@contextmanager
def running_lab(
    state: Path, *, time_scale: float = 0.0, seed_file: Path | None = None
) -> Iterator[RunningLab]:
    """Serve a lab from ``state`` in a thread; several may run side by side."""
    ready = threading.Event()
    box: dict[str, Any] = {}

    async def main() -> None:
        async with serving(state, time_scale=time_scale, seed_file=seed_file) as (
            _lab,
            data,
            server,
        ):
            box["connection"], box["server"] = data, server
            ready.set()
            while not server.should_exit:
                await asyncio.sleep(0.02)

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            box["error"] = error
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="lab", daemon=True)
    thread.start()
    ready.wait(_START_SECONDS)
    if "connection" not in box:
        raise RuntimeError("the lab did not start") from box.get("error")
    try:
        yield RunningLab(state, box["connection"])
    finally:
        box["server"].should_exit = True
        thread.join(_START_SECONDS)
