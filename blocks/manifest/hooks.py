"""``hooks``: what is to happen when something has happened. Only their shape is here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, SecretStr, model_validator

from blocks.model import Model


class _Hook(Model):
    """Parameters that have no meaning here are kept in ``extra``, as older tools take any."""

    extra: dict[str, Any] = Field(
        default={}, repr=False, description="Parameters that are passed on as they are"
    )

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known: set[str] = set()
        for name, field in cls.model_fields.items():
            known.add(name)
            alias = field.validation_alias
            if isinstance(alias, AliasChoices):
                known.update(choice for choice in alias.choices if isinstance(choice, str))
        taken = {key: value for key, value in data.items() if key in known}
        others = {key: value for key, value in data.items() if key not in known}
        return {**taken, "extra": {**others, **data.get("extra", {})}} if others else taken


class SlackHook(_Hook):
    """A message to Slack."""

    type: Literal["slack"] = Field(default="slack", description="A message to Slack")
    webhook_url: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("webhook_url", "url", "webhook"),
        description="Incoming webhook; SLACK_WEBHOOK_URL of the environment if unset",
        examples=["${env:SLACK_WEBHOOK_URL}"],
    )
    channel: str | None = Field(default=None, description="Channel", examples=["#ops"])
    message: str | None = Field(
        default=None,
        validation_alias=AliasChoices("message", "text"),
        description="Text of the message",
        examples=["rac-prod is up"],
    )


class ExecHook(_Hook):
    """A command on the machine that runs the flow."""

    type: Literal["exec"] = Field(default="exec", description="A command")
    command: str | tuple[str, ...] = Field(
        validation_alias=AliasChoices("command", "cmd", "run"),
        repr=False,
        description="A line for the shell, or a list of arguments",
        examples=["echo ready"],
    )
    env: dict[str, SecretStr] = Field(
        default={}, description="Environment variables", examples=[{"TOKEN": "${env:TOKEN}"}]
    )
    cwd: str | None = Field(default=None, description="Working folder", examples=["/tmp"])  # noqa: S108
    timeout: float = Field(default=300, gt=0, description="Seconds", examples=[60])


class WebhookHook(_Hook):
    """An HTTP request."""

    type: Literal["webhook"] = Field(default="webhook", description="An HTTP request")
    url: SecretStr = Field(description="Address", examples=["https://ci.example.com/hook"])
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = Field(
        default="POST", description="HTTP method"
    )
    headers: dict[str, SecretStr] = Field(
        default={}, description="HTTP headers", examples=[{"Authorization": "${env:HOOK_TOKEN}"}]
    )
    body: Any = Field(
        default=None,
        validation_alias=AliasChoices("body", "payload"),
        repr=False,
        description="What is sent; the event as JSON if unset",
        examples=[{"text": "up"}],
    )
    timeout: float = Field(default=30, gt=0, description="Seconds", examples=[30])


class AuditHook(_Hook):
    """A line in an audit file."""

    type: Literal["audit"] = Field(default="audit", description="A line in an audit file")
    path: str | None = Field(
        default=None,
        validation_alias=AliasChoices("path", "file"),
        description="The file, one JSON object a line",
        examples=["/var/log/proxflow-audit.jsonl"],
    )
    message: str | None = Field(default=None, description="Text", examples=["applied"])


class LogHook(_Hook):
    """A line in the log of the run."""

    type: Literal["log"] = Field(default="log", description="A line in the log")
    message: str | None = Field(
        default=None,
        validation_alias=AliasChoices("message", "text"),
        description="Text",
        examples=["done"],
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Log level"
    )


Hook = Annotated[
    SlackHook | ExecHook | WebhookHook | AuditHook | LogHook, Field(discriminator="type")
]

HOOK_TYPES = ("slack", "exec", "webhook", "audit", "log")

OLDER_SPELLINGS = {
    "pre_apply": "on_apply_start",
    "post_apply": "on_apply_success",
    "pre_destroy": "on_teardown_start",
    "post_destroy": "on_teardown_success",
}


class Hooks(Model):
    """Hooks by the event that they wait for. Each list runs in order."""

    on_validate_success: tuple[Hook, ...] = Field(default=(), description="The manifest is good")
    on_apply_start: tuple[Hook, ...] = Field(default=(), description="Before anything is made")
    on_apply_success: tuple[Hook, ...] = Field(default=(), description="Everything stands")
    on_apply_failure: tuple[Hook, ...] = Field(default=(), description="Something failed")
    on_vm_ready: tuple[Hook, ...] = Field(default=(), description="One guest stands")
    on_teardown_start: tuple[Hook, ...] = Field(default=(), description="Before the teardown")
    on_teardown_success: tuple[Hook, ...] = Field(default=(), description="Everything is gone")

    @model_validator(mode="before")
    @classmethod
    def _older_spelling(cls, data: Any) -> Any:
        """``pre_apply`` and the like, and ``run:`` without a type, in the present spelling."""
        if not isinstance(data, dict):
            return data
        hooks: dict[str, Any] = {}
        for name, entries in data.items():
            typed = entries
            if isinstance(entries, list | tuple):
                typed = [
                    {"type": "exec", **entry}
                    if isinstance(entry, dict) and "run" in entry and "type" not in entry
                    else entry
                    for entry in entries
                ]
            present = OLDER_SPELLINGS.get(str(name), str(name))
            if isinstance(typed, list) and isinstance(hooks.get(present), list):
                hooks[present] = [*hooks[present], *typed]
            else:
                hooks[present] = typed
        return hooks
