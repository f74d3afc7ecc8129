"""Walk recorded transcripts against a fresh lab and tell every difference.

``python -m deployments.lab.replay FILE...`` prints a table and exits 1 if anything differs.
"""

from __future__ import annotations

import hashlib
import http.client
import http.server
import json
import re
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from ruamel.yaml import YAML

from deployments.lab import replay_fixtures as fixtures
from deployments.lab.replay_match import cut_like, differences, fold_log, sorted_like, text_pattern
from deployments.lab.testing import RunningLab, running_lab

TIME_SCALE = 0.02
_BOUNDARY = "replay-boundary-3141592653"
_SOURCE_PORT, _CLOSED_PORT = "127.0.0.1:8299", "127.0.0.1:8298"
_TASK_SECONDS = 60
_START_SECONDS = 12


@dataclass(frozen=True)
class Difference:
    """One step that was answered otherwise than recorded."""

    file: str
    step: int
    why: str
    text: str


@dataclass
class Answer:
    """Status line and body of one answer."""

    status: int
    reason: str
    content_type: str | None
    text: str

    def json(self) -> dict[str, Any]:
        """The body, or an empty dict when it is no JSON object."""
        try:
            parsed = json.loads(self.text)
        except json.JSONDecodeError:
            return {}
        return parsed if isinstance(parsed, dict) else {}


@dataclass
class Player:
    """Plays one transcript."""

    lab: RunningLab
    web_port: int
    closed_port: int
    upids: dict[str, str] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)
    began: int = field(default_factory=lambda: int(time.time()))
    tickets: dict[str, dict[str, str]] = field(default_factory=dict)
    connection: http.client.HTTPSConnection | None = None

    # -- talking to the lab ------------------------------------------------------------------

    def send(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> Answer:
        """One HTTPS request; the path goes out as it stands."""
        if self.connection is None:
            context = ssl.create_default_context(cafile=self.lab.connection["ca_file"])
            self.connection = http.client.HTTPSConnection(
                "127.0.0.1", self.lab.port, context=context, timeout=60
            )
        self.connection.request(method, "/api2/json" + path, body=body, headers=headers)
        response = self.connection.getresponse()
        text = response.read().decode()
        reason = response.reason.encode("latin-1").decode("utf-8", "replace")
        return Answer(response.status, reason, response.getheader("content-type"), text)

    def form(
        self, method: str, path: str, params: dict[str, Any], headers: dict[str, str]
    ) -> Answer:
        """A call with a query string or a form."""
        encoded = urlencode(params, quote_via=quote, doseq=True)
        if method in ("GET", "DELETE"):
            return self.send(method, path + (f"?{encoded}" if encoded else ""), headers)
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.send(method, path, {**headers, **kind}, encoded.encode())

    def headers_for(self, caller: str) -> dict[str, str]:
        """Login headers of a recorded caller."""
        secret = fixtures.TOKEN_SECRET
        simple = {
            "root-token": {"Authorization": f"PVEAPIToken=root@pam!seed={secret}"},
            "auditor": {"Authorization": f"PVEAPIToken=low@pve!seed={secret}"},
            "noperm-token": {"Authorization": f"PVEAPIToken=admin@pve!seed={secret}"},
            "none": {},
            "bad-secret": {"Authorization": "PVEAPIToken=root@pam!seed=wrong"},
            "unknown-token": {"Authorization": f"PVEAPIToken=root@pam!nosuch={secret}"},
            "unknown-user": {"Authorization": f"PVEAPIToken=nobody@pve!seed={secret}"},
            "malformed-header": {"Authorization": "PVEAPIToken rubbish"},
            "bad-cookie": {"Cookie": "PVEAuthCookie=rubbish"},
        }
        if caller in simple:
            return simple[caller]
        name, no_csrf = caller.removesuffix("-nocsrf"), caller.endswith("-nocsrf")
        if name not in self.tickets:
            user, password = {
                "root-ticket": ("root@pam", str(self.lab.connection["password"])),
                "admin-ticket": ("admin@pve", fixtures.ADMIN_PASSWORD),
            }[name]
            answer = self.form(
                "POST", "/access/ticket", {"username": user, "password": password}, {}
            )
            self.tickets[name] = answer.json()["data"]
        ticket = self.tickets[name]
        headers = {"Cookie": "PVEAuthCookie=" + quote(ticket["ticket"])}
        return (
            headers
            if no_csrf
            else {**headers, "CSRFPreventionToken": ticket["CSRFPreventionToken"]}
        )

    # -- one step ----------------------------------------------------------------------------

    def localise(self, text: str) -> str:
        """Recorded addresses and check sums in terms of this replay."""
        text = text.replace(_SOURCE_PORT, f"127.0.0.1:{self.web_port}")
        text = text.replace(_CLOSED_PORT, f"127.0.0.1:{self.closed_port}")
        tiny = fixtures.file_content("tiny.iso", fixtures.TINY_BYTES)
        for recorded, algorithm in fixtures.RECORDED_SUMS.items():
            ours = hashlib.new(algorithm, tiny).hexdigest()
            text = text.replace(recorded, ours).replace(recorded.upper(), ours.upper())
        return text

    def play(self, step: dict[str, Any]) -> list[str]:
        """Do one step; returns what differs."""
        if "out_of_band" in step:
            self._out_of_band(step["out_of_band"])
            return []
        step = json.loads(self.localise(json.dumps(step, ensure_ascii=False)))
        path = self._path(step["path"])
        if path.startswith(("/cluster/resources", "/pools")):
            time.sleep(10 * TIME_SCALE + 0.05)
        answer = self._call(step, path)
        found = self._compare(step, path, answer)
        data = answer.json().get("data")
        if isinstance(data, str) and data.startswith("UPID:"):
            kind, task_id = data.split(":")[5:7]
            self.upids.setdefault(f"<UPID:{kind}:{task_id}>", data)
            if "task" in step:
                found += self._compare_task(step["task"], data)
        return found

    def _path(self, recorded: str) -> str:
        path = recorded.replace("{node}", fixtures.NODE)

        def upid(match: re.Match[str]) -> str:
            kind, task_id = match.group(1), match.group(2)
            made_up = (
                f"UPID:{fixtures.NODE}:0000FFFF:0000FFFF:6B000000:{kind}:{task_id}:root@pam!seed:"
            )
            return self.upids.get(match.group(0), made_up)

        path = re.sub(r"<UPID:([^:>]*):([^>]*)>", upid, path)
        return quote(path, safe="/:%!@$&'()*+,;=?~")

    def _call(self, step: dict[str, Any], path: str) -> Answer:
        method, params = step["method"], dict(step["params"])
        headers = self.headers_for(step["as"])
        for key, value in params.items():
            if value == "<scenario start>":
                params[key] = self.began
            elif value == "<password>":
                params[key] = fixtures.ADMIN_PASSWORD
            elif value == "<current DIGEST>":
                params[key] = self.form("GET", path, {}, headers).json()["data"]["digest"]
                self.digests.append(params[key])
            elif value == "<stale DIGEST>":
                params[key] = self.digests[-1]
        if "upload" in step:
            return self._upload(path, params, step["upload"], headers)
        if step["why"] == "broken JSON":
            return self.send(method, path, {**headers, "Content-Type": "application/json"}, b"{x")
        if step.get("body_type") == "json":
            body = json.dumps(params).encode()
            return self.send(method, path, {**headers, "Content-Type": "application/json"}, body)
        return self.form(method, path, params, headers)

    def _upload(
        self, path: str, params: dict[str, Any], upload: dict[str, Any], headers: dict[str, str]
    ) -> Answer:
        parts = []
        for name in upload["field_order"]:
            if name == "filename":
                content = fixtures.file_content(upload["filename"], upload["size"])
                head = f'form-data; name="filename"; filename="{upload["filename"]}"'
                parts.append((head + "\r\nContent-Type: application/octet-stream", content))
            else:
                parts.append((f'form-data; name="{name}"', str(params[name]).encode()))
        body = b"".join(
            f"--{_BOUNDARY}\r\nContent-Disposition: {head}\r\n\r\n".encode() + content + b"\r\n"
            for head, content in parts
        )
        body += f"--{_BOUNDARY}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
        return self.send("POST", path, {**headers, **kind}, body)

    def _compare(self, step: dict[str, Any], path: str, answer: Answer) -> list[str]:
        found = differences(step["status"], answer.status, "status")
        found += differences(step["reason"], answer.reason, "reason")
        if "body" in step:
            found += differences(step["body"], answer.text, "body")
            found += differences(step["content_type"], answer.content_type, "content_type")
            return found
        body = answer.json()
        expected = {key: step[key] for key in ("errors", "message") if key in step}
        actual = {key: body[key] for key in ("errors", "message") if key in body}
        found += differences(expected, actual, "body")
        recorded = sorted_like(step.get("data"), path)
        found += differences(recorded, cut_like(recorded, body.get("data"), path), "data")
        extra = {k: v for k, v in body.items() if k not in ("data", "errors", "message")}
        return found + differences(step.get("extra", {}), extra, "extra")

    def _compare_task(self, recorded: dict[str, Any], upid: str) -> list[str]:
        base = f"/nodes/{fixtures.NODE}/tasks/{quote(upid, safe='')}"
        headers = self.headers_for("root-token")
        deadline = time.monotonic() + _TASK_SECONDS
        while True:
            status = self.form("GET", f"{base}/status", {}, headers).json()["data"]
            if status["status"] == "stopped":
                break
            if time.monotonic() > deadline:
                return [f"task: {upid} does not end"]
            time.sleep(0.01)
        rows = self.form("GET", f"{base}/log", {"limit": 0}, headers).json()["data"]
        lines = fold_log([row["t"] for row in rows])[:40]
        found = []
        for key in ("type", "id", "status", "exitstatus"):
            found += differences(recorded[key], status.get(key), f"task.{key}")
        wanted = recorded["log"]
        if len(wanted) != len(lines):
            return [*found, f"task.log: wanted {wanted}, got {lines}"]
        for number, (one, other) in enumerate(zip(wanted, lines, strict=True), 1):
            if one != other and not text_pattern(one).fullmatch(other):
                found.append(f"task.log[{number}]: wanted {one!r}, got {other!r}")
        return found

    def _out_of_band(self, text: str) -> None:
        vmid = re.search(r"guest (\d+)", text)
        assert vmid is not None
        folder = self.lab.state / "etc" / "nodes" / fixtures.NODE
        file = next(
            f
            for f in (folder / kind / f"{vmid.group(1)}.conf" for kind in ("qemu-server", "lxc"))
            if f.exists()
        )
        head, mark, tail = file.read_text().partition("\n[")
        lines = [line for line in head.splitlines() if not line.startswith("lock:")]
        lock = re.search(r'first line "(lock: [^"]+)"', text)
        if lock:
            lines.insert(0, lock.group(1))
        file.write_text("\n".join(lines) + "\n" + (mark + tail if mark else ""))

    # -- before the first step ---------------------------------------------------------------

    def prepare(self, setup: fixtures.Setup) -> None:
        """Bring the lab to the state in which the recorder began."""
        headers = self.headers_for("root-token")
        base = f"/nodes/{fixtures.NODE}/qemu"
        container = self.lab.state / "etc" / "nodes" / fixtures.NODE / "lxc" / "200.conf"
        container.parent.mkdir(parents=True, exist_ok=True)
        container.write_text(fixtures.CONTAINER_200)
        self.form("PUT", "/pools", {"poolid": "seedpool", "vms": 200}, headers)
        for guest in setup.guests:
            self._done(self.form("POST", base, guest, headers))
        for vmid in setup.start:
            self._done(self.form("POST", f"{base}/{vmid}/status/start", {}, headers))
        for vmid in setup.template:
            self._done(self.form("POST", f"{base}/{vmid}/template", {}, headers))
        for vmid, name in setup.snapshots.items():
            file = self.lab.state / "etc" / "nodes" / fixtures.NODE / "qemu-server" / f"{vmid}.conf"
            text = file.read_text()
            file.write_text(f"{text}parent: {name}\n\n[{name}]\n{text}snaptime: {self.began}\n")

    def _done(self, answer: Answer) -> None:
        data = answer.json().get("data")
        if answer.status == 200 and isinstance(data, str):
            self.lab.settle()


@contextmanager
def web_source() -> Iterator[int]:
    """A loopback HTTP server with the files that the recorder downloaded."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "rec-web"
        root.mkdir()
        for name, size in fixtures.WEB_FILES.items():
            (root / name).write_bytes(fixtures.file_content(name, size))

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, directory=folder, **kwargs)

            def guess_type(self, path: Any) -> str:
                """Types as the recorder's web server gave them."""
                iso = str(path).endswith(".iso")
                return "application/x-iso9660-image" if iso else "application/octet-stream"

            def log_message(self, *_args: Any) -> None:
                """Silence."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_seed(target: Path, name: str, setup: fixtures.Setup) -> Path:
    """The seed file of one scenario."""
    seed = json.loads(json.dumps(fixtures.SEED))
    seed["files"] += setup.files
    if name.startswith("13"):
        seed["storages"].append(fixtures.THIN_STORAGE)
    seed["users"].insert(
        0,
        {
            "userid": "root@pam",
            "tokens": [{"name": "seed", "secret": fixtures.TOKEN_SECRET, "privsep": False}],
        },
    )
    YAML(typ="safe").dump(seed, target)
    return target


def replay_file(file: Path) -> list[Difference]:
    """All differences of one transcript, played against a lab of its own."""
    name = file.stem
    setup = fixtures.SETUPS.get(name, fixtures.Setup())
    found: list[Difference] = []
    with tempfile.TemporaryDirectory() as folder, web_source() as web_port:
        seed_file = write_seed(Path(folder) / "seed.yaml", name, setup)
        state = Path(folder) / "state"
        with running_lab(state, time_scale=TIME_SCALE, seed_file=seed_file) as lab:
            lab.set_time(qmstart=_START_SECONDS, vzstart=_START_SECONDS)
            player = Player(lab, web_port, _closed_port())
            player.prepare(setup)
            for line in file.read_text().splitlines():
                step = json.loads(line)
                for text in player.play(step):
                    found.append(Difference(name, step["step"], step["why"], text))
            if player.connection is not None:
                player.connection.close()
    return found


def main(arguments: list[str] | None = None) -> int:
    """Replay files; prints a table of differences."""
    names = sys.argv[1:] if arguments is None else arguments
    if not names or names[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if names else 2
    total = 0
    for name in names:
        if not Path(name).is_file():
            print(f"replay: {name}: no such file", file=sys.stderr)
            return 2
        found = replay_file(Path(name))
        total += len(found)
        steps = len(Path(name).read_text().splitlines())
        bad = len({difference.step for difference in found})
        print(f"{Path(name).name}: {steps - bad} of {steps} steps equal")
        for one in found:
            print(f"  {one.step:>3}  {one.why[:44]:<44}  {one.text}")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
