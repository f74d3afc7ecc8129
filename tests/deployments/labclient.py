"""A plain HTTPS client for the lab's tests; it shares nothing with the product's client."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
from python_socks import ProxyConnectionError, ProxyError
from python_socks.sync import Proxy

from deployments.lab.testing import RunningLab

PATIENCE_SECONDS = 60


@dataclass
class Client:
    lab: RunningLab
    header: str | None = None
    session: requests.Session = field(default_factory=requests.Session)

    def __post_init__(self) -> None:
        self.session.trust_env = False
        self.session.verify = self.lab.connection["ca_file"]
        self.session.headers["Authorization"] = self.header or self.lab.token_header

    def raw(self, method: str, path: str, /, **more: Any) -> requests.Response:
        return self.session.request(
            method, f"{self.lab.endpoint}/api2/json{path}", timeout=PATIENCE_SECONDS, **more
        )

    def get(self, path: str, /, **params: Any) -> Any:
        answer = self.raw("GET", path, params=params)
        assert answer.status_code == 200, f"{answer.status_code} {answer.reason}"
        return answer.json()["data"]

    def call(self, method: str, path: str, /, **params: Any) -> Any:
        place = "params" if method == "DELETE" else "data"
        answer = self.raw(method, path, **{place: params})
        assert answer.status_code == 200, f"{answer.status_code} {answer.reason} {answer.text}"
        return answer.json()["data"]

    def task(self, method: str, path: str, /, **params: Any) -> str:
        """Do a call that answers with a UPID; returns how the task ended."""
        return self.wait(self.call(method, path, **params))

    def wait(self, upid: str) -> str:
        node = upid.split(":")[1]
        path = f"/nodes/{node}/tasks/{quote(upid, safe='')}/status"
        return str(eventually(lambda: self.get(path).get("exitstatus")))

    def upload(self, node: str, storage: str, file: Path) -> str:
        with file.open("rb") as handle:
            answer = self.raw(
                "POST",
                f"/nodes/{node}/storage/{storage}/upload",
                data={"content": "iso"},
                files={"filename": (file.name, handle)},
            )
        return self.wait(answer.json()["data"])

    def ssh_banner(self, address: str, port: int = 22) -> str:
        """What answers at a guest's address: the banner, or the refusal of the proxy."""
        proxy = Proxy.from_url(self.lab.connection["guest_proxy"])
        try:
            sock = proxy.connect(dest_host=address, dest_port=port, timeout=PATIENCE_SECONDS)
        except (ProxyError, ProxyConnectionError) as error:
            return str(error)
        with sock:
            return sock.recv(100).decode()


def eventually(probe: Any, seconds: float = PATIENCE_SECONDS) -> Any:
    """The first true value of ``probe``; fails after a bound."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = probe()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"nothing within {seconds} s")
