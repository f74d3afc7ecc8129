"""A thread-safe client of one cluster, on proxmoxer.

Speaks in ``blocks.proxmox.errors``; repeats what may pass next time and is safe to repeat; counts
its calls. Makes no call before it is asked to.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

import requests
from proxmoxer.backends.https import ProxmoxHTTPAuthBase
from proxmoxer.core import ProxmoxResource, ResourceException
from pydantic import SecretStr
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from blocks.model import Model
from blocks.proxmox.answers import Answer
from blocks.proxmox.auth import Anonymous, TicketAuth, TokenAuth
from blocks.proxmox.connection import Connection
from blocks.proxmox.errors import (
    AuthenticationFailed,
    Locked,
    NotProxmox,
    ProxmoxError,
    Unreachable,
)
from blocks.proxmox.tls import TrustingAdapter
from blocks.proxmox.waiting import TaskResult, Waiting, is_upid
from blocks.proxmox.wire import (
    Answers,
    failed,
    not_proxmox,
    open_plain_session,
    open_session,
    refused,
)

STALL_TIMEOUT = 120.0
"""Seconds in which a streamed body must get one block further."""


class Version(Model):
    """What GET /version says: ``release`` (9.2) and ``version`` (9.2.11)."""

    release: str
    version: str


def api_path(*segments: str | int) -> str:
    """A path with every segment quoted: volume ids hold ``:`` and ``/``.

    ``api_path("nodes", "pve1", "storage", "local", "content", "local:iso/a.iso")``
    """
    texts = [str(segment) for segment in segments]
    if any(text in {"", ".", ".."} for text in texts):
        raise ValueError(f"no path: {texts}")
    return "/" + "/".join(quote(text, safe="") for text in texts)


class Client:
    """Calls to the cluster of one connection. Share one among threads; close it at the end.

    ``trust`` says whose certificates are accepted; ``notices`` holds what the operator should be
    told once; ``calls`` counts requests by method (``calls.total()`` in all), repeated ones and
    logins included.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        connect_timeout: float = 5.0,
        read_timeout: float = 60.0,
        retries: int = 4,
    ) -> None:
        """Time-outs in seconds. ``retries``: how often a call is repeated at most.

        Raises BadSettings where the CA file is missing or is none.
        """
        self.connection = connection
        self.calls: Counter[str] = Counter()
        self.notices: list[str] = []
        self._retries = retries
        self._counting = threading.Lock()
        self._adapter = TrustingAdapter(connection)
        self.trust = self._adapter.trust
        if not connection.verify:
            self.notices.append(
                f"the certificate of {connection.host} is not verified; pin its fingerprint or "
                "give a ca_file instead (docs/connecting.md)"
            )
        self._timeout = (connect_timeout, read_timeout)
        self._base = f"{connection.endpoint}/api2/json"
        self._auth = self._authentication()
        self._api = self._resource(self._auth)
        self._plain = open_plain_session(self._adapter, self._auth)
        self._waiting = Waiting(self)

    def __enter__(self) -> Client:
        """The client itself; leaving closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close connections."""
        self.close()

    def __repr__(self) -> str:
        """Where and who, nothing secret."""
        return f"Client({self.connection.endpoint}, {self.connection.identity})"

    def close(self) -> None:
        """Close pooled connections. A later call would open new ones."""
        self._adapter.close()

    def get(self, path: str, /, **params: object) -> Answer:
        """GET; repeated on any transient trouble."""
        return self.request("GET", path, params)

    def post(self, path: str, /, **params: object) -> Answer:
        """POST; repeated only where the server surely did nothing."""
        return self.request("POST", path, params)

    def put(self, path: str, /, **params: object) -> Answer:
        """PUT; repeated only where the server surely did nothing.

        PUT is not idempotent here: a size of ``+1G`` grows again, a disk given as ``local:4`` is
        made again. A config written by PUT is written in the call, image imports included
        (06-cloud-image-template): what may take long goes by POST, which is a task.
        """
        return self.request("PUT", path, params)

    def delete(self, path: str, /, **params: object) -> Answer:
        """DELETE; repeated only where the server surely did nothing."""
        return self.request("DELETE", path, params)

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, object] | None = None,
        *,
        idempotent: bool | None = None,
        retries: int | None = None,
    ) -> Answer:
        """The ``data`` of one call.

        ``path`` as in the API viewer (``/nodes/pve1/qemu/101/config``); use ``api_path`` where a
        segment may hold ``/`` or ``:``. ``params``: booleans become 0 and 1, secrets are opened,
        None is left out. ``idempotent``: repeat it although it may have had its effect (default:
        GET only). Raises the errors of ``blocks.proxmox.errors``.
        """
        sent = _form(params or {})
        target = self._api(quote(path.strip("/"), safe="/%:@!$&'()*+,;=~").split("/"))
        call = getattr(target, method.lower())
        return self._repeat(
            lambda: self._once(method, lambda: call(**sent)),
            idempotent=method == "GET" if idempotent is None else idempotent,
            retries=self._retries if retries is None else retries,
        )

    def stream(self, path: str, make_body: Callable[[], tuple[Any, str]]) -> Answer:
        """POST a body that is read while it is sent.

        ``make_body`` gives body and content type; it is called again for a repetition. There is
        no time-out for the whole, but for a block that gets stuck (``STALL_TIMEOUT``).
        """
        url = self._base + path

        def send() -> Answer:
            body, kind = make_body()
            response = self._plain.post(
                url,
                data=body,
                headers={"Content-Type": kind},
                timeout=(STALL_TIMEOUT, STALL_TIMEOUT),
            )
            answers = Answers()
            if response.status_code >= 400:
                raise ResourceException(
                    response.status_code, "", "", errors=answers.loads_errors(response)
                )
            return answers.loads(response)

        return self._repeat(
            lambda: self._once("POST", send), idempotent=False, retries=self._retries
        )

    def run(
        self, method: str, path: str, /, *, timeout: float = 600.0, **params: object
    ) -> TaskResult | Answer:
        """A call; where its answer is a task, wait for that and give its TaskResult.

        ``timeout`` bounds the wait. A parameter of that name for the server (shutdown has one)
        goes through ``request`` and ``wait``.
        """
        data = self.request(method.upper(), path, params)
        return self.wait(data, timeout=timeout) if is_upid(data) else data

    def wait(
        self,
        upid: str,
        *,
        timeout: float = 600.0,
        on_log: Callable[[str], None] | None = None,
    ) -> TaskResult:
        """Wait until a task ends; see ``waiting.Waiting.wait``."""
        return self._waiting.wait(upid, timeout=timeout, on_log=on_log)

    def version(self) -> Version:
        """Release and version of the server."""
        return _version(self.get("/version"), self.connection)

    def check(self) -> Version:
        """One call, not repeated: does a Proxmox VE answer there, and does it know us?

        Raises Unreachable, UntrustedCertificate, NotProxmox or AuthenticationFailed, each with
        advice.
        """
        return _version(self.request("GET", "/version", retries=0), self.connection)

    def _authentication(self) -> ProxmoxHTTPAuthBase:
        asked = self.connection
        if asked.token_id is not None and asked.token_secret is not None:
            return TokenAuth(asked.token_id, asked.token_secret, self._timeout)
        return TicketAuth(self._log_in, self._timeout)

    def _resource(self, auth: ProxmoxHTTPAuthBase) -> ProxmoxResource:
        session = open_session(self._adapter, auth)
        return ProxmoxResource(base_url=self._base, session=session, serializer=Answers())

    def _log_in(self) -> tuple[str, str]:
        asked = self.connection
        if asked.user is None or asked.password is None:
            raise AuthenticationFailed("neither a token nor a user with password is given")
        login = self._resource(Anonymous(timeout=self._timeout, verify_ssl=True))
        self._count("POST")
        answer = login.access.ticket.post(
            username=asked.user, password=asked.password.get_secret_value()
        )
        if not isinstance(answer, dict) or not answer.get("ticket"):
            raise not_proxmox(asked, "answers a login without a ticket")
        if answer.get("NeedTFA"):
            raise AuthenticationFailed(
                f"{asked.user} needs a second factor, which a flow cannot give",
                advice="make an API token for this user; tokens need no second factor",
            )
        return str(answer["ticket"]), str(answer.get("CSRFPreventionToken", ""))

    def _count(self, method: str) -> None:
        with self._counting:
            self.calls[method] += 1

    def _repeat(self, call: Callable[[], Any], *, idempotent: bool, retries: int) -> Answer:
        def passes_later(error: BaseException) -> bool:
            if isinstance(error, Unreachable):
                return error.transient and (idempotent or not error.effect_unknown)
            return isinstance(error, Locked) and error.transient

        attempts = Retrying(
            retry=retry_if_exception(passes_later),
            stop=stop_after_attempt(retries + 1),
            wait=wait_random_exponential(multiplier=0.4, max=8),
            reraise=True,
        )
        return attempts(call)

    def _once(self, method: str, send: Callable[[], Any]) -> Answer:
        """One call, with a new ticket if the server takes the old one no longer."""
        held = self._auth.ticket() if isinstance(self._auth, TicketAuth) else None
        try:
            return self._translated(method, send)
        except AuthenticationFailed:
            if held is None or not isinstance(self._auth, TicketAuth):
                raise
            self._auth.refused(held)
            return self._translated(method, send)

    def _translated(self, method: str, send: Callable[[], Any]) -> Answer:
        # `from None`: the causes quote URLs and parameters.
        self._count(method)
        try:
            return send()
        except ResourceException as error:
            raise _as_sent(refused(error, self.connection), method) from None
        except NotProxmox as error:
            if error.advice is not None:
                raise
            raise not_proxmox(self.connection, error.message) from None
        except requests.RequestException as error:
            raise _as_sent(failed(error, self.connection), method) from None


def _as_sent(trouble: ProxmoxError, method: str) -> ProxmoxError:
    """Say that a write's effect is unknown; of a read there is none."""
    if not isinstance(trouble, Unreachable) or not trouble.effect_unknown:
        return trouble
    if method == "GET":
        trouble.effect_unknown = False
        return trouble
    return Unreachable(
        f"{trouble.message}; whether the {method} had its effect is unknown",
        effect_unknown=True,
        advice=trouble.advice or "look at the cluster before doing it again",
    )


def _version(data: object, connection: Connection) -> Version:
    if not isinstance(data, dict) or not {"release", "version"} <= data.keys():
        raise not_proxmox(connection, "has no version of Proxmox VE")
    return Version(release=str(data["release"]), version=str(data["version"]))


def _form(params: Mapping[str, object]) -> dict[str, object]:
    """Parameters as a form carries them. Recorded: ``true`` and ``yes`` are refused."""
    sent: dict[str, object] = {}
    for key, value in params.items():
        if value is None:
            continue
        if isinstance(value, bool):
            sent[key] = int(value)
        elif isinstance(value, SecretStr):
            sent[key] = value.get_secret_value()
        else:
            sent[key] = value
    return sent
