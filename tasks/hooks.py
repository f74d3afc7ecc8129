"""The hooks of a manifest: a command, a request, a line, when something happens."""

from __future__ import annotations

import getpass
import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import requests
from pydantic import SecretStr

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Guest
from blocks.manifest.hooks import AuditHook, ExecHook, Hook, LogHook, SlackHook, WebhookHook
from tasks.masking import masked

Happening = Literal[
    "on_validate_success",
    "on_apply_start",
    "on_apply_success",
    "on_apply_failure",
    "on_vm_ready",
    "on_teardown_start",
    "on_teardown_success",
]

Log = Callable[[int, str], None]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class HookFailed(Exception):
    """A hook did not do what it was to do; the text has its type and the reason, no secret."""


def fire(
    happening: Happening,
    environment: Environment,
    *,
    guest: Guest | None = None,
    detail: str = "",
    log: Log,
) -> tuple[str, ...]:
    """Run the hooks of a happening in their order; what went wrong comes back, a line a hook.

    ``detail``: what there is to say about it, such as the errors of a failed run.
    """

    def mask(text: str) -> str:
        return masked(text, environment)

    told = facts(happening, environment, guest, mask(detail))
    troubles = []
    for number, hook in enumerate(getattr(environment.hooks, happening), start=1):
        try:
            _run(hook, told, lambda level, text: log(level, mask(text)))
        except HookFailed as error:
            troubles.append(f"hook {happening}[{number}] ({hook.type}): {mask(str(error))}")
    return tuple(troubles)


def facts(
    happening: str, environment: Environment, guest: Guest | None, detail: str
) -> dict[str, str]:
    """What a hook is told. Nothing in it is secret."""
    told = {"event": happening, "environment": environment.name, "detail": detail}
    if guest is not None:
        told |= {"guest": guest.label, "vmid": str(guest.vmid), "node": guest.node}
        if guest.ssh_addresses:
            told["address"] = str(guest.ssh_addresses[0])
    return told


def _run(hook: Hook, told: Mapping[str, str], log: Log) -> None:
    match hook:
        case LogHook():
            log(_LEVELS.get(hook.level, logging.ERROR), hook.message or _sentence(told))
        case AuditHook():
            _audit(hook, told)
        case ExecHook():
            _exec(hook, told)
        case SlackHook():
            address = hook.webhook_url or _from_environment("SLACK_WEBHOOK_URL")
            message: dict[str, Any] = {"text": hook.message or _sentence(told)}
            if hook.channel:
                message["channel"] = hook.channel
            _call("POST", address, {}, message, 30)
        case WebhookHook():
            body = told if hook.body is None else hook.body
            _call(hook.method, hook.url, hook.headers, body, hook.timeout)


def _sentence(told: Mapping[str, str]) -> str:
    subject = f"{told['environment']}/{told['guest']}" if "guest" in told else told["environment"]
    detail = f": {told['detail']}" if told["detail"] else ""
    return f"{subject}: {told['event']}{detail}"


def _from_environment(name: str) -> SecretStr:
    value = os.environ.get(name)
    if not value:
        raise HookFailed(f"no address; set webhook_url, or {name} in the environment")
    return SecretStr(value)


def _audit(hook: AuditHook, told: Mapping[str, str]) -> None:
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "user": getpass.getuser(),
        **{key: value for key, value in told.items() if value},
        **({"message": hook.message} if hook.message else {}),
    }
    path = Path(hook.path or "proxflow-audit.jsonl").expanduser()
    try:
        with path.open("a") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    except OSError as error:
        raise HookFailed(f"cannot write {path}: {error.strerror}") from None


def _exec(hook: ExecHook, told: Mapping[str, str]) -> None:
    """Run the command; its output is not kept, but for the last line of what it complains.

    A line for the shell goes to its standard input, since arguments of processes are visible to
    others. Inside the braces, which the shell reads whole, there is nothing to read. Processes that
    the command has started end with it when its time is over.
    """
    secrets = {name: value.get_secret_value() for name, value in hook.env.items()}
    variables = {f"PROXFLOW_{name.upper()}": value for name, value in told.items()}
    line = isinstance(hook.command, str)
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-s"] if line else list(hook.command),
            cwd=hook.cwd,
            env={**os.environ, **variables, **secrets},
            stdin=subprocess.PIPE if line else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
    except OSError as error:
        raise HookFailed(f"cannot be run: {error.strerror}") from None
    with process:
        try:
            given = f"{{ : ; {hook.command}\n}} </dev/null\n" if line else None
            _, complaints = process.communicate(given, timeout=hook.timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise HookFailed(f"did not end within {hook.timeout:g} s and was killed") from None
        except BaseException:
            _kill(process)
            raise
    if process.returncode:
        last = next((text for text in reversed(complaints.splitlines()) if text.strip()), "")
        for value in filter(None, secrets.values()):
            last = last.replace(value, "***")
        raise HookFailed(f"ended with {process.returncode}" + (f": {last.strip()}" if last else ""))


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _call(
    method: str, address: SecretStr, headers: Mapping[str, SecretStr], body: Any, timeout: float
) -> None:
    """Send JSON. Errors of the HTTP library are not passed on: they quote the address."""
    opened = {name: value.get_secret_value() for name, value in headers.items()}
    try:
        answer = requests.request(
            method, address.get_secret_value(), headers=opened, json=body, timeout=timeout
        )
    except requests.RequestException as error:
        raise HookFailed(f"no answer ({type(error).__name__})") from None
    if not answer.ok:
        raise HookFailed(f"was answered with {answer.status_code} {answer.reason}")
