"""Hooks of a manifest: commands, requests, lines; what they are told, and how they fail."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from tasks.announce import announce
from tasks.hooks import Happening, facts, fire
from tests.deployments.labclient import eventually
from tests.environments import Document, Place, opened


class Receiver(ThreadingHTTPServer):
    """Takes requests and answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.taken: list[tuple[str, str, dict[str, str], Any]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.taken.append((self.command, self.path, headers, body))
        self.send_response(self.server.status)
        self.end_headers()

    do_PUT = do_POST

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


def fired(
    place: Place,
    hooks: list[Document],
    happening: Happening = "on_apply_success",
    detail: str = "",
) -> tuple[tuple[str, ...], list[tuple[int, str]]]:
    """Troubles and lines of the hooks."""
    lines: list[tuple[int, str]] = []
    with opened(place.write(iso=False, hooks={happening: hooks})) as here:
        guest = here.guest("n1") if happening == "on_vm_ready" else None
        troubles = fire(
            happening,
            here.environment,
            guest=guest,
            detail=detail,
            log=lambda level, text: lines.append((level, text)),
        )
    return troubles, lines


def test_a_line_says_what_happened_or_what_it_was_told_to_say(place: Place) -> None:
    hooks = [{"type": "log"}, {"type": "log", "message": "open", "level": "warning"}]

    troubles, lines = fired(place, hooks, detail="3 done")

    assert troubles == ()
    assert lines == [
        (logging.INFO, f"{place.env}: on_apply_success: 3 done"),
        (logging.WARNING, "open"),
    ]


def test_a_command_knows_what_happened_to_whom(place: Place) -> None:
    place.folder.mkdir(parents=True)
    file = place.folder / "told"
    hook = {"type": "exec", "command": f"env | grep ^PROXFLOW_ | sort > {file}"}

    assert fired(place, [hook], "on_vm_ready") == ((), [])

    told = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert told["PROXFLOW_EVENT"] == "on_vm_ready"
    assert told["PROXFLOW_ENVIRONMENT"] == place.env
    assert (told["PROXFLOW_GUEST"], told["PROXFLOW_NODE"]) == ("n1", "pve1")
    assert (told["PROXFLOW_VMID"], told["PROXFLOW_ADDRESS"]) == (
        str(place.vmid()),
        place.address(),
    )


def test_a_list_of_words_is_run_without_a_shell(place: Place) -> None:
    hook = {"type": "exec", "command": ["sh", "-c", 'test "$1" = "a b"', "sh", "a b"]}
    assert fired(place, [hook])[0] == ()


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ({"command": "echo first >&2; echo last >&2; exit 4"}, "ended with 4: last"),
        ({"command": ["/no/such/program"]}, "cannot be run: No such file"),
        ({"command": "sleep 30", "timeout": 0.1}, "did not end within 0.1 s and was killed"),
        ({"command": "true", "cwd": "/no/such/folder"}, "cannot be run: No such file"),
    ],
)
def test_a_command_that_fails_is_told_in_one_line(place: Place, hook: Document, words: str) -> None:
    troubles, _ = fired(place, [{"type": "log"}, {"type": "exec"} | hook])

    assert len(troubles) == 1
    assert troubles[0].startswith(f"hook on_apply_success[2] (exec): {words}")


def test_a_secret_of_a_command_is_masked_in_what_it_complains(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "swordfish")
    hook = {
        "type": "exec",
        "command": "echo wrong: $TOKEN >&2; exit 1",
        "env": {"TOKEN": "${env:TEST_TOKEN}"},
    }

    (trouble,) = fired(place, [hook])[0]

    assert trouble.endswith("ended with 1: wrong: ***")


def test_a_secret_in_a_line_or_a_command_is_masked_in_what_is_said(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "swordfish")
    hooks = [
        {"type": "log", "message": "open with ${env:TEST_TOKEN}"},
        {"type": "log"},
        {"type": "exec", "command": "echo wrong: ${env:TEST_TOKEN} >&2; exit 1"},
    ]

    (trouble,), lines = fired(place, hooks, detail="swordfish is wrong")

    assert [text for _, text in lines] == [
        "open with ***",
        f"{place.env}: on_apply_success: *** is wrong",
    ]
    assert trouble.endswith("ended with 1: wrong: ***")


def test_a_line_for_the_shell_is_in_no_arguments_and_has_nothing_to_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.folder.mkdir(parents=True)
    monkeypatch.setenv("TEST_TOKEN", "swordfish")
    arguments, given = place.folder / "arguments", place.folder / "given"
    command = f"cat > {given}\n: ${{env:TEST_TOKEN}}\ntr '\\0' ' ' < /proc/$$/cmdline > {arguments}"

    assert fired(place, [{"type": "exec", "command": command}])[0] == ()

    assert arguments.read_text() == "/bin/sh -s "
    assert given.read_text() == ""


def test_what_a_command_has_started_ends_when_its_time_is_over(place: Place) -> None:
    place.folder.mkdir(parents=True)
    number = place.folder / "number"
    command = f"sleep 30 & echo $! > {number}; wait"

    (trouble,) = fired(place, [{"type": "exec", "command": command, "timeout": 2}])[0]

    assert trouble.endswith("did not end within 2 s and was killed")
    state = Path(f"/proc/{number.read_text().strip()}/stat")
    # The signal has been sent; a busy machine takes a moment to act on it.
    assert eventually(lambda: not lives(state))


def lives(state: Path) -> bool:
    """Whether the process of that file in /proc runs; one that nobody has reaped does not."""
    try:
        return " Z " not in state.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_webhook_sends_what_happened_as_json_with_its_headers(
    place: Place, receiver: Receiver
) -> None:
    hook = {"type": "webhook", "url": receiver.url, "headers": {"X-Key": "k1"}}
    given = {"type": "webhook", "url": receiver.url, "method": "PUT", "body": {"a": 1}}

    assert fired(place, [hook, given], detail="3 done")[0] == ()

    (method, path, headers, body), (other, _, _, sent) = receiver.taken
    assert (method, path, headers["x-key"]) == ("POST", "/hook", "k1")
    assert body == {"event": "on_apply_success", "environment": place.env, "detail": "3 done"}
    assert (other, sent) == ("PUT", {"a": 1})


def test_slack_gets_a_text_at_the_address_of_the_hook_or_the_environment(
    place: Place, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_WEBHOOK_URL", receiver.url)
    hook = {"type": "slack", "channel": "#ops", "message": "up"}

    assert fired(place, [hook, {"type": "slack", "webhook_url": receiver.url}])[0] == ()

    assert [body for *_, body in receiver.taken] == [
        {"text": "up", "channel": "#ops"},
        {"text": f"{place.env}: on_apply_success"},
    ]


def test_slack_without_an_address_says_how_to_give_one(place: Place) -> None:
    (trouble,) = fired(place, [{"type": "slack"}])[0]
    assert "set webhook_url, or SLACK_WEBHOOK_URL in the environment" in trouble


def test_a_request_that_fails_is_told_without_its_address(place: Place, receiver: Receiver) -> None:
    receiver.status = 403
    refused = {"type": "webhook", "url": receiver.url + "?key=swordfish"}
    nobody = {"type": "webhook", "url": "http://127.0.0.1:1/?key=swordfish"}

    troubles, _ = fired(place, [refused, nobody])

    assert troubles[0].endswith("was answered with 403 Forbidden")
    assert troubles[1].endswith("no answer (ConnectionError)")
    assert "swordfish" not in "".join(troubles)


def test_an_audit_line_says_who_did_what_and_when(place: Place) -> None:
    place.folder.mkdir(parents=True)
    file = place.folder / "audit.jsonl"
    hook = {"type": "audit", "path": str(file), "message": "by hand"}

    for _ in range(2):
        assert fired(place, [hook], detail="3 done")[0] == ()

    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(entries) == 2
    assert entries[0].keys() == {"time", "user", "event", "environment", "detail", "message"}


def test_an_audit_file_that_cannot_be_written_is_named(place: Place) -> None:
    (trouble,) = fired(place, [{"type": "audit", "path": "/no/such/audit.jsonl"}])[0]
    assert "cannot write /no/such/audit.jsonl: No such file or directory" in trouble


def test_the_stage_announces_a_guest_and_a_failing_hook_is_a_warning(place: Place) -> None:
    hooks = {"on_vm_ready": [{"type": "log"}, {"type": "exec", "command": "exit 2"}]}
    with opened(place.write(iso=False, hooks=hooks)) as here, disable_run_logger():
        outcome = announce.fn(here.run, "n1")

    assert (outcome.status, outcome.detail) == ("done", "2 hooks")
    assert outcome.warnings == ("hook on_vm_ready[2] (exec): ended with 2",)


def test_what_a_hook_is_told_holds_no_secret(place: Place) -> None:
    with opened(place.write()) as here:
        told = facts("on_vm_ready", here.environment, here.guest("n1"), "")

    assert set(told) == {"event", "environment", "detail", "guest", "vmid", "node", "address"}
