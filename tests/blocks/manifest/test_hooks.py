"""Hooks are typed, take their older spellings, and keep parameters that are not known here."""

from __future__ import annotations

from pathlib import Path

import pytest

from blocks.manifest.hooks import (
    AuditHook,
    ExecHook,
    Hooks,
    LogHook,
    SlackHook,
    WebhookHook,
)
from tests.blocks.manifest.sample import ENV, load, only_fault


def hooks(folder: Path, words: str, env: dict[str, str] | None = None) -> Hooks:
    return load(folder, f"{ENV}hooks:\n{words}", env).hooks


def test_each_type_has_its_parameters(tmp_path: Path) -> None:
    found = hooks(
        tmp_path,
        "  on_apply_success:\n"
        "    - { type: slack, channel: '#ops', message: done, url: https://hooks/x }\n"
        "    - { type: exec, cmd: echo ok, timeout: 5, env: { A: b } }\n"
        "    - { type: webhook, url: https://ci/x, headers: { Authorization: y }, payload: [1] }\n"
        "    - { type: audit, file: /var/log/a.jsonl }\n"
        "    - { type: log, text: done, level: warning }\n",
    ).on_apply_success

    slack, command, webhook, audit, log = found
    assert isinstance(slack, SlackHook)
    assert slack.webhook_url is not None
    assert slack.webhook_url.get_secret_value() == "https://hooks/x"
    assert (slack.channel, slack.message) == ("#ops", "done")
    assert isinstance(command, ExecHook)
    assert (command.command, command.timeout) == ("echo ok", 5)
    assert isinstance(webhook, WebhookHook)
    assert (webhook.method, webhook.body) == ("POST", [1])
    assert webhook.headers["Authorization"].get_secret_value() == "y"
    assert isinstance(audit, AuditHook)
    assert audit.path == "/var/log/a.jsonl"
    assert isinstance(log, LogHook)
    assert (log.message, log.level) == ("done", "warning")


@pytest.mark.parametrize(
    ("older", "present"),
    [
        ("pre_apply", "on_apply_start"),
        ("post_apply", "on_apply_success"),
        ("pre_destroy", "on_teardown_start"),
        ("post_destroy", "on_teardown_success"),
    ],
)
def test_the_older_spelling_means_a_command_at_the_present_event(
    older: str, present: str, tmp_path: Path
) -> None:
    found = hooks(tmp_path, f'  {older}:\n    - run: "echo $PROXCTL_ENV"\n')

    (hook,) = getattr(found, present)
    assert hook == ExecHook(command="echo $PROXCTL_ENV")


def test_both_spellings_of_an_event_add_up(tmp_path: Path) -> None:
    found = hooks(
        tmp_path,
        "  pre_apply: [{ run: two }]\n  on_apply_start: [{ type: exec, command: one }]\n",
    )

    assert [hook.command for hook in found.on_apply_start if isinstance(hook, ExecHook)] == [
        "one",
        "two",
    ]


def test_parameters_that_are_not_known_are_kept_but_not_shown(tmp_path: Path) -> None:
    (hook,) = hooks(tmp_path, "  on_vm_ready: [{ type: slack, emoji: ':tada:' }]\n").on_vm_ready

    assert hook.extra == {"emoji": ":tada:"}
    assert "tada" not in repr(hook)


def test_an_empty_list_and_nothing_at_all_are_no_hooks(tmp_path: Path) -> None:
    assert hooks(tmp_path, "  pre_apply: []\n  post_apply:\n") == Hooks()


@pytest.mark.parametrize(
    ("words", "key", "message"),
    [
        ("{ type: slak }", "hooks.on_vm_ready[0].type", "did you mean 'slack'?"),
        ("{ channel: x }", "hooks.on_vm_ready[0].type", "is missing"),
        ("{ type: webhook }", "hooks.on_vm_ready[0].url", "is missing"),
        ("{ type: exec }", "hooks.on_vm_ready[0].command", "is missing"),
        ("{ type: log, level: loud }", "hooks.on_vm_ready[0].level", "must be one of debug"),
    ],
)
def test_a_wrong_hook_is_refused_at_its_place(
    words: str, key: str, message: str, tmp_path: Path
) -> None:
    fault = only_fault(tmp_path, f"{ENV}hooks:\n  on_vm_ready: [{words}]\n")

    assert fault.key == key
    assert message in str(fault)


def test_a_fault_under_an_older_name_keeps_that_name(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, f"{ENV}hooks:\n  pre_apply: [{{ run: 5 }}]\n")

    assert fault.key == "hooks.pre_apply[0].run"


def test_an_unknown_event_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, f"{ENV}hooks:\n  on_aply_start: []\n")

    assert "did you mean 'on_apply_start'?" in str(fault)
