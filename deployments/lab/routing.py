"""Endpoints: method, path template, typed parameters, permission check, handler."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deployments.lab import formats
from deployments.lab.access import Identity
from deployments.lab.errors import forbidden
from deployments.lab.schema import Prop, Schema, integer, string

if TYPE_CHECKING:
    from deployments.lab.cluster import Lab


@dataclass(frozen=True)
class JsonBody:
    """What a handler returns that has the text of the whole body ready, ``data`` and all."""

    text: bytes


@dataclass
class Call:
    """One API call: who asks what. ``params`` are checked and typed before the handler runs.

    ``extra`` are further top-level members of the answer (``total`` of lists).
    """

    lab: Lab
    method: str
    path: str
    identity: Identity | None
    uri: dict[str, str]
    raw: dict[str, Any]
    params: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def who(self) -> Identity:
        """The caller; only calls that need no login have none."""
        assert self.identity is not None
        return self.identity

    @property
    def node(self) -> str:
        """The node named in the path."""
        return self.uri["node"]

    @property
    def vmid(self) -> int:
        """The guest named in the path."""
        return int(self.uri["vmid"])

    def require(self, path: str, *privs: str, any_of: bool = False) -> None:
        """403 unless the caller holds the privileges on ``path``."""
        self.lab.access.require(self.who, path, *privs, any_of=any_of)

    def has(self, path: str, *privs: str, any_of: bool = False) -> bool:
        """Whether the caller holds the privileges on ``path``."""
        return self.lab.access.has(self.who, path, *privs, any_of=any_of)


Handler = Callable[[Call], Awaitable[Any]]
Check = Callable[[Call], None]

URI_PROPS: dict[str, Prop] = {
    "node": string(formats.node_name),
    "vmid": Prop("integer", minimum=100, maximum=999999999),
    "storage": string(formats.storage_id),
}


@dataclass(frozen=True)
class Endpoint:
    """One verb on one path."""

    method: str
    template: str
    handler: Handler
    schema: Schema
    check: Check | None
    login: bool = True
    needs_quorum: bool = True

    @property
    def full_schema(self) -> dict[str, Prop]:
        """Parameters of body and path together."""
        names = re.findall(r"\{(\w+)\}", self.template)
        return {name: URI_PROPS.get(name, string()) for name in names} | dict(self.schema)


ENDPOINTS: list[Endpoint] = []


def endpoint(
    method: str,
    template: str,
    schema: Schema | None = None,
    check: Check | None = None,
    login: bool = True,
    needs_quorum: bool = True,
) -> Callable[[Handler], Handler]:
    """Register a handler for a verb and a path such as ``/nodes/{node}/status``.

    ``needs_quorum`` False is for calls that change nothing in the cluster's configuration, such
    as a login or a word with a guest's agent; GET calls never need it.
    """

    def register(handler: Handler) -> Handler:
        one = Endpoint(method, template, handler, schema or {}, check, login, needs_quorum)
        ENDPOINTS.append(one)
        return handler

    return register


def on(path: str, *privs: str, any_of: bool = False) -> Check:
    """A check on a path with fields of the call's path, e.g. ``/vms/{vmid}``."""

    def check(call: Call) -> None:
        call.require(path.format(**call.uri), *privs, any_of=any_of)

    return check


def one_of(*checks: Check) -> Check:
    """Any of several checks; the refusal then names no path."""

    def check(call: Call) -> None:
        from deployments.lab.errors import ApiError

        for one in checks:
            try:
                one(call)
            except ApiError:
                continue
            return
        raise forbidden()

    return check


class Router:
    """Finds the endpoint of a path; ``{volume}`` at the end takes slashes too."""

    def __init__(self, endpoints: list[Endpoint]) -> None:
        self._routes = [(self._pattern(e.template), e) for e in endpoints]

    @staticmethod
    def _pattern(template: str) -> re.Pattern[str]:
        pattern = re.sub(r"\{volume\}", r"(?P<volume>.+)", template)
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern))

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]] | None:
        """The endpoint and the fields of its path."""
        for pattern, candidate in self._routes:
            if candidate.method != method:
                continue
            match = pattern.fullmatch(path)
            if match:
                return candidate, match.groupdict()
        return None


VMID_LIMIT = integer(100, 999999999)
