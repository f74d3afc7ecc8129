"""proxmoxer's answers and requests' exceptions, put into our words.

Also the place where proxmoxer is kept from logging what it sends.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar

import requests
import urllib3.exceptions as urllib3_errors
from proxmoxer.backends.https import JsonSerializer, ProxmoxHttpSession
from proxmoxer.core import ResourceException
from requests.adapters import BaseAdapter
from requests.auth import AuthBase

from blocks.proxmox.answers import Answer
from blocks.proxmox.connection import Connection
from blocks.proxmox.errors import AuthenticationFailed, NotProxmox, ProxmoxError, Unreachable
from blocks.proxmox.refusals import GATEWAY_STATUSES, refusal
from blocks.proxmox.tls import causes, tls_trouble

_Session = TypeVar("_Session", bound=requests.Session)
_NO_COOKIES = DefaultCookiePolicy(allowed_domains=[])

_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "record layer failure")


def _is_quiet(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


def silence_proxmoxer() -> None:
    """Keep proxmoxer from logging bodies and answers at INFO and DEBUG: they hold secrets.

    A filter, since levels are set anew by whoever configures logging after us.
    """
    for name in ("proxmoxer", "proxmoxer.core", "proxmoxer.backends.https"):
        logger = logging.getLogger(name)
        if _is_quiet not in logger.filters:
            logger.addFilter(_is_quiet)


silence_proxmoxer()


class Answers(JsonSerializer):  # type: ignore[misc]
    """Reads bodies strictly: an answer without ``data`` is not one of Proxmox VE."""

    def loads(self, response: requests.Response) -> Answer:
        """``data`` of an answer; raises NotProxmox."""
        body = _json(response)
        if not isinstance(body, dict) or "data" not in body:
            raise NotProxmox(f"answered {response.status_code} with {_kind(response)}")
        return body["data"]

    def loads_errors(self, response: requests.Response) -> dict[str, Any]:
        """Everything that a refusal says; proxmoxer hands it on as ``errors``."""
        body = _json(response)
        fields = body if isinstance(body, dict) else {}
        return {
            "text": fields.get("message") or response.reason or "",
            "errors": fields.get("errors"),
            "html": "html" in response.headers.get("Content-Type", ""),
        }


def _json(response: requests.Response) -> object:
    try:
        return json.loads(response.content)
    except ValueError:
        return None


def _kind(response: requests.Response) -> str:
    given = response.headers.get("Content-Type", "").partition(";")[0]
    return f"a body of type {given}" if given else "a body that is no JSON"


def open_session(adapter: BaseAdapter, auth: AuthBase) -> ProxmoxHttpSession:
    """A session of proxmoxer that takes nothing from the environment and follows no redirects.

    Cookies that the server (or a proxy in front) sets are ignored: proxmoxer would send those in
    place of the ticket.
    """
    return _prepared(ProxmoxHttpSession(), adapter, auth)


def open_plain_session(adapter: BaseAdapter, auth: AuthBase) -> requests.Session:
    """The same without proxmoxer's handling of bodies, for streams."""
    return _prepared(requests.Session(), adapter, auth)


def _prepared(session: _Session, adapter: BaseAdapter, auth: AuthBase) -> _Session:
    session.trust_env = False
    session.max_redirects = 0
    session.auth = auth
    session.headers["Accept"] = "application/json"
    session.cookies.set_policy(_NO_COOKIES)
    session.mount("https://", adapter)
    return session


def refused(error: ResourceException, connection: Connection) -> ProxmoxError:
    """What a status of 400 and more means."""
    said: dict[str, Any] = error.errors or {}
    status = error.status_code
    if said.get("html") and status not in GATEWAY_STATUSES:
        return not_proxmox(connection, f"answered {status} with a web page")
    found = refusal(status, str(said.get("text") or ""), said.get("errors"))
    if isinstance(found, NotProxmox):
        return not_proxmox(connection, found.message)
    if isinstance(found, AuthenticationFailed):
        return AuthenticationFailed(
            f"{connection.label} does not accept {connection.identity}: {found.message}",
            advice=_login_advice(connection),
        )
    return found


def _login_advice(connection: Connection) -> str:
    if connection.token_id:
        return (
            "check the token's id (USER@REALM!NAME), its secret and its expiry: `pveum user token "
            f"list {connection.token_id.partition('!')[0]}`; a lost secret cannot be shown "
            "again; make a new token (docs/connecting.md)"
        )
    return "check user, realm (root@pam, NAME@pve) and password"


def not_proxmox(connection: Connection, what: str) -> NotProxmox:
    """Something else listens at the endpoint."""
    return NotProxmox(
        f"{connection.endpoint} is no Proxmox VE API: it {what}",
        advice="the API listens on port 8006 of every node; check host and port",
    )


def failed(error: requests.RequestException, connection: Connection) -> ProxmoxError:
    """What it means that a request got no answer at all."""
    if isinstance(error, requests.TooManyRedirects):
        target = error.response.headers.get("Location", "?") if error.response is not None else "?"
        return not_proxmox(connection, f"redirects to {target}")
    if isinstance(error, requests.exceptions.SSLError):
        return _tls_failed(error, connection)
    return _connection_failed(error, connection)


def _tls_failed(error: requests.exceptions.SSLError, connection: Connection) -> ProxmoxError:
    known = tls_trouble(error, connection)
    if known is not None:
        return known
    if any(sign in str(error) for sign in _NO_TLS):
        return not_proxmox(connection, "does not speak TLS on this port")
    inner = next((e for e in causes(error) if isinstance(e, ssl.SSLError) and e.reason), None)
    why = f" ({inner.reason})" if isinstance(inner, ssl.SSLError) else ""
    return Unreachable(
        f"the TLS connection to {connection.host}:{connection.port} broke{why}",
        effect_unknown=True,
    )


def _connection_failed(error: requests.RequestException, connection: Connection) -> ProxmoxError:
    at = f"{connection.host}:{connection.port}"
    found = causes(error)
    lookup = next((e for e in found if isinstance(e, socket.gaierror)), None)
    if lookup is not None:
        unknown = Unreachable(
            f"the name {connection.host} cannot be resolved",
            advice="check the spelling and this machine's DNS, or give the address",
        )
        unknown.transient = lookup.errno == socket.EAI_AGAIN
        return unknown
    if any(isinstance(e, ConnectionRefusedError) for e in found):
        return Unreachable(
            f"{at} refuses connections",
            advice="is it the right port (8006), and does pveproxy run on that node?",
        )
    if isinstance(error, requests.ConnectTimeout):
        return Unreachable(
            f"{at} does not answer",
            advice="the host is down, or a firewall drops the connection",
        )
    if any(isinstance(e, urllib3_errors.NewConnectionError) for e in found):
        cause = next((e.strerror for e in found if isinstance(e, OSError) and e.strerror), None)
        return Unreachable(f"no connection to {at}: {cause or 'unknown reason'}")
    if isinstance(error, requests.ReadTimeout):
        return Unreachable(f"{at} took the call but did not answer in time", effect_unknown=True)
    return Unreachable(f"the connection to {at} broke during a call", effect_unknown=True)
