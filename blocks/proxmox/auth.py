"""Who asks, put on every request: an API token, or a ticket that is renewed in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from proxmoxer.backends.https import ProxmoxHTTPAuthBase
from pydantic import SecretStr
from requests.models import PreparedRequest

RENEW_AFTER = 3600.0
"""Seconds; the server takes a ticket for two hours."""


class Anonymous(ProxmoxHTTPAuthBase):  # type: ignore[misc]
    """Nobody; for the login call itself."""


class TokenAuth(ProxmoxHTTPAuthBase):  # type: ignore[misc]
    """An API token. Needs no CSRF header and never expires within a run."""

    def __init__(self, token_id: str, secret: SecretStr, timeout: tuple[float, float]) -> None:
        """``timeout``: to connect and between bytes, seconds."""
        super().__init__(timeout=timeout, verify_ssl=True)
        self._token_id, self._secret = token_id, secret

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Add the header."""
        secret = self._secret.get_secret_value()
        request.headers["Authorization"] = f"PVEAPIToken={self._token_id}={secret}"
        return request


class TicketAuth(ProxmoxHTTPAuthBase):  # type: ignore[misc]
    """A ticket got by password, shared by all threads and renewed by one of them at a time."""

    def __init__(self, log_in: Callable[[], tuple[str, str]], timeout: tuple[float, float]) -> None:
        """``log_in`` returns ticket and CSRF token; it is called at the first request."""
        super().__init__(timeout=timeout, verify_ssl=True)
        self._log_in = log_in
        self._lock = threading.Lock()
        self._ticket: tuple[str, str] | None = None
        self._born = 0.0
        self.clock: Callable[[], float] = time.monotonic

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Add cookie and, for writes, CSRF token; renew first if the ticket is old."""
        ticket, csrf = self._current()
        request.headers["Cookie"] = f"PVEAuthCookie={ticket}"
        if request.method != "GET":
            request.headers["CSRFPreventionToken"] = csrf
        return request

    def _current(self) -> tuple[str, str]:
        with self._lock:
            if self._ticket is None or self.clock() - self._born >= RENEW_AFTER:
                self._ticket = self._log_in()
                self._born = self.clock()
            return self._ticket

    def ticket(self) -> str | None:
        """The present ticket, to tell ``refused`` which one it was."""
        held = self._ticket
        return held[0] if held else None

    def refused(self, ticket: str | None) -> None:
        """Forget a ticket that the server refused, unless another thread has renewed it already."""
        with self._lock:
            if self._ticket is not None and self._ticket[0] == ticket:
                self._ticket = None
